"""Batches to a GPU and results from it, many arrays in one copy: each copy, and each wait, takes a launch's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Bytes of an array up to which it travels with others: larger ones are not worth being copied together first.
SMALL_BYTES = 1 << 18
_ALIGNED = 16  # bytes; what vectorised kernels want


def upload(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """Returns small numeric arrays as tensors on a device, by one copy.

    Args:
        arrays: By name; of any shapes, and of dtypes that PyTorch has.
        device: Where to.
    """
    if not arrays:
        return {}
    places, size = {}, 0
    for name, array in arrays.items():
        places[name] = size
        size += -(-array.nbytes // _ALIGNED) * _ALIGNED
    # PyTorch keeps pinned memory for later, and hands none out that a copy still reads.
    staged = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    buffer = staged.numpy()
    for name, array in arrays.items():
        here = buffer[places[name] : places[name] + array.nbytes]
        np.copyto(here.view(array.dtype).reshape(array.shape), array)
    there = staged.to(device, non_blocking=True)
    made = {}
    for name, array in arrays.items():
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        part = there[places[name] : places[name] + array.nbytes]
        made[name] = part.view(dtype).view(array.shape)
    return made


def download(values: Mapping[Any, Any], device: torch.device) -> dict[Any, Any]:
    """Returns values with a device's float32 tensors as arrays `[...]`, scalars as floats, by one copy.

    Others are as they were.
    """
    tensors = {
        name: value
        for name, value in values.items()
        if isinstance(value, Tensor) and value.dtype == torch.float32 and value.device == device
    }
    if not tensors:
        return dict(values)
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()]).cpu().numpy()
    made, start = dict(values), 0
    for name, tensor in tensors.items():
        part = flat[start : start + tensor.numel()].reshape(tuple(tensor.shape))
        made[name] = part if part.ndim else float(part)
        start += tensor.numel()
    return made
