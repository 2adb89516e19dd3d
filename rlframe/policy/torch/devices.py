"""Where a torch policy computes: on which devices, and in how many of PyTorch's threads."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rlframe.utils.errors import ConfigError
from rlframe.utils.threads import THREAD_VARIABLES, WORTH_SHARING, capped, default_threads, usable_cpus

_LOGGER = logging.getLogger("rlframe")
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_last_set: int | None = None


def choose_devices(config: dict[str, Any]) -> list[torch.device]:
    """Returns the devices that a policy learns on: as many GPUs as were asked for, else the CPU.

    The first is where it lives. With `_fake_gpus` the CPU stands for each GPU.

    Raises:
        ConfigError: If more GPUs were asked for than are visible.
    """
    key = "num_gpus_per_worker" if config.get("worker_index") else "num_gpus"
    asked = config.get(key) or 0
    count = max(math.ceil(asked), 1)
    if not asked or config.get("_fake_gpus"):
        if not config.get("worker_index") and not config.get("in_evaluation"):
            _LOGGER.info("policy on %s", f"the CPU, for {count} GPUs" if asked else "the CPU")
        return [torch.device("cpu")] * (count if asked else 1)
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if visible < count:
        raise ConfigError(
            f"{key}: got {asked}, but torch sees {visible or 'no'} GPU(s) here; set it to {visible}, or install a CUDA "
            "torch, or set _fake_gpus=True to try several on the CPU"
        )
    devices = [torch.device("cuda", index) for index in range(count)]
    _LOGGER.info("policy on %s", ", ".join(torch.cuda.get_device_name(device) for device in devices))
    return devices


class Threads:
    """Chooses PyTorch's threads by the work of what comes next.

    The number depends on the model and the rows alone, not on how busy the machine is: another number would round
    otherwise, and the same seed would not give the same run. What the program says has its way: `learner_threads`, else
    `OMP_NUM_THREADS` or `MKL_NUM_THREADS`, else `torch.set_num_threads`.

    Args:
        model: The policy's network.
        observation_space: What it gets; where it is an image, convolutions multiply at each place.
        asked: `config["learner_threads"]`; None chooses.
    """

    def __init__(self, model: nn.Module, observation_space: gym.Space[Any], asked: int | None) -> None:
        self.most = usable_cpus()
        self.work_per_row = multiplications(model, getattr(observation_space, "shape", None) or ())
        self.asked = None if asked is None else capped(asked)

    def count(self, rows: int) -> int | None:
        """Returns the threads for a batch of `rows` rows; None where the program or its environment has said it."""
        if self.asked is not None:
            return self.asked
        if any(name in os.environ for name in THREAD_VARIABLES) or _set_by_program():
            return None
        return self.most if rows * self.work_per_row >= WORTH_SHARING else 1

    def use(self, rows: int) -> None:
        """Sets PyTorch's threads for a batch of `rows` rows."""
        global _last_set
        count = self.count(rows)
        if count is None or count == torch.get_num_threads():
            return
        torch.set_num_threads(count)
        _last_set = count


def _set_by_program() -> bool:
    """Returns whether the program has called `torch.set_num_threads`: it is neither PyTorch's own number nor ours."""
    return torch.get_num_threads() not in (_last_set, *default_threads())


def multiplications(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Returns about how many multiplications one row costs in `model`: one per weight, in convolutions per place.

    Args:
        model: The network; all its layers are counted, in the order in which it names them.
        shape: Shape of an observation; `[H, W, C]` or `[C, H, W]` for images.
    """
    places = float(np.prod(shape)) / max(min(shape), 1) if len(shape) > 1 else 1.0
    work = 0.0
    for layer in model.modules():
        own = sum(parameter.numel() for parameter in layer.parameters(recurse=False))
        if isinstance(layer, _CONVOLUTIONS):
            places = max(places / float(np.prod(layer.stride)), 1.0)
            work += own * places
        else:
            work += own
    return int(work)
