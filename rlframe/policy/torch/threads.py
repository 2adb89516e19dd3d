"""In how many of PyTorch's threads a policy computes."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rlframe.utils.cpus import THREAD_VARIABLES, WORTH_SHARING, capped, default_threads, usable_cpus

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_last_set: int | None = None


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
