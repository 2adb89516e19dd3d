"""A copy of a GPU's weights in the memory of the host, for acting in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Bytes of weights up to which NumPy acts for a policy on a GPU: some 10 microseconds to copy. A small network's pass
#: on a GPU takes a launch for each operation, and a wait, of some microseconds each.
MOST_BYTES = 2**22


def fits(tensors: Mapping[str, Tensor]) -> bool:
    """Returns whether NumPy should act for a GPU: a network of dense or recurrent layers that is copied quickly."""
    parts = tensors.values()
    convolves = any(tensor.dim() > 2 for tensor in parts)
    return not convolves and sum(tensor.numel() * tensor.element_size() for tensor in parts) <= MOST_BYTES


class HostCopy:
    """NumPy arrays that follow tensors when told to; NumPy actors read them.

    Tensors that are views of one buffer, as `FlatParameters` makes them, are copied together.

    Args:
        tensors: Named tensors, on any device.

    Attributes:
        arrays: By name, arrays of the tensors' shapes and dtypes; the same objects all the time.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self.arrays: dict[str, NDArray[Any]] = {}
        for name, tensor in tensors.items():
            place = tensor.untyped_storage().data_ptr()
            if place not in buffers:
                buffers[place] = _buffer_and_copy(tensor)
            here = buffers[place][1]
            self.arrays[name] = np.ndarray(
                tuple(tensor.shape),
                _numpy_dtype(tensor),
                buffer=here.numpy(),
                offset=tensor.storage_offset() * tensor.element_size(),
                strides=[step * tensor.element_size() for step in tensor.stride()],
            )
        self._buffers = list(buffers.values())
        self._devices = {there.device for there, _ in self._buffers if there.device.type == "cuda"}
        self.refresh()

    def refresh(self) -> None:
        """Copies the tensors' values into the arrays; returns when they are there."""
        for there, here in self._buffers:
            here.copy_(there, non_blocking=True)
        for device in self._devices:
            torch.cuda.current_stream(device).synchronize()


def _buffer_and_copy(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the whole buffer behind a tensor, as bytes, and one for it on the host."""
    storage = tensor.untyped_storage()
    there = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    pinned = tensor.device.type == "cuda"  # only from and to such memory does one copy go at full speed
    return there, torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=pinned)


def _numpy_dtype(tensor: Tensor) -> Any:
    return torch.empty(0, dtype=tensor.dtype).numpy().dtype
