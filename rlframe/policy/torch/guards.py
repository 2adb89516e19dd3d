"""What a torch policy refuses: devices that are not there, and numbers that are not numbers."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlframe.utils.errors import ConfigError, NonFiniteError

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
    step = f"at env step {policy.global_timestep}"
    for name, tensor in policy.model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NonFiniteError(
                f"the weights {name} became NaN or infinite in an earlier update ({step}); lower lr, or set grad_clip"
            )
    for name, column in samples.items():
        array = column if isinstance(column, np.ndarray) else None
        if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise NonFiniteError(
                f"column {name!r} of the training batch has {array[row]!r} in row {row} ({step}); "
                "a postprocessing function, a callback or the input data put it there"
            )
    raise NonFiniteError(
        f"loss number {index} is {value} though weights and batch are finite ({step}); "
        "a term of the loss overflows or divides by zero: lower lr, set grad_clip, or look at the loss function"
    )
