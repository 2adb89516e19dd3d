"""What a torch policy refuses: devices that are not there, and numbers that are not numbers."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch
from torch import Tensor

from rlframe.policy.nonfinite import explain_nonfinite
from rlframe.utils.errors import ConfigError

_LOGGER = logging.getLogger("rlframe")


def choose_device(config: dict[str, Any]) -> torch.device:
    """Returns the device that a policy lives on: the first GPU when one was asked for, else the CPU.

    Raises:
        ConfigError: If a GPU was asked for and none is visible.
    """
    asked = config.get("num_gpus_per_worker" if config.get("worker_index") else "num_gpus") or 0
    if not asked or config.get("_fake_gpus"):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        key = "num_gpus_per_worker" if config.get("worker_index") else "num_gpus"
        raise ConfigError(f"{key}: got {asked}, but torch sees no GPU here; set it to 0, or install a CUDA torch")
    _LOGGER.info("policy on %s", torch.cuda.get_device_name(0))
    return torch.device("cuda", 0)


def check_finite_loss(loss: Tensor, index: int, policy: Any, samples: Any) -> None:
    """Raises an error that names what was first to be NaN or infinite, if the loss is.

    Raises:
        NonFiniteError: Names a weight, else a column of the batch, else the loss.
    """
    value = loss.item()
    if math.isfinite(value):
        return
    raise explain_nonfinite(index, value, policy, samples)
