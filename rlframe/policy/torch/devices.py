"""Where a torch policy computes: on as many GPUs as were asked for, else on the CPU."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import torch

from rlframe.utils.errors import ConfigError
from rlframe.utils.triton import leave_triton_out

_LOGGER = logging.getLogger("rlframe")


def quiet_cudnn() -> None:
    """Passes over what cuDNN says of recurrent layers whose weights lie in the buffer of a whole model.

    It wants each layer's in one of its own, and copies them into one at each pass.
    """
    warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


def choose_devices(config: dict[str, Any]) -> list[torch.device]:
    """Returns the devices that a policy learns on: as many GPUs as were asked for, else the CPU.

    The first is where it lives. With `_fake_gpus` the CPU stands for each GPU.

    Raises:
        ConfigError: If more GPUs were asked for than are visible.
    """
    leave_triton_out()
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
    quiet_cudnn()
    devices = [torch.device("cuda", index) for index in range(count)]
    _LOGGER.info("policy on %s", ", ".join(torch.cuda.get_device_name(device) for device in devices))
    return devices
