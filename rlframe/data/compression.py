"""Compressed columns: bytes with a shape and a dtype, unpacked without executing anything."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class PackedArray:
    """An array of numbers as zlib-compressed bytes.

    It slices, and turns into an array, like what it was made from; both unpack it.

    Attributes:
        dtype: Type of the elements.
        shape: Shape of the array.
        data: The compressed bytes.
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, array: NDArray[Any]) -> None:
        if array.dtype.hasobject:
            raise ValueError(f"Got an array of dtype {array.dtype}; only arrays of numbers can be compressed.")
        self.dtype = array.dtype
        self.shape = array.shape
        # Level 1: the aim is memory at the speed of sampling, not the last per cent.
        self.data = zlib.compress(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"", 1)

    def unpack(self) -> NDArray[Any]:
        """Returns the array, freshly allocated and writable."""
        raw = bytearray(zlib.decompress(self.data))
        return np.frombuffer(raw, dtype=self.dtype).reshape(self.shape)

    @property
    def nbytes(self) -> int:
        """Compressed size in bytes."""
        return len(self.data)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> Any:
        return self.unpack()[rows]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("A compressed array cannot be read without a copy.")
        array = self.unpack()
        return array if dtype is None else array.astype(dtype)


def pack_leaf(leaf: Any, *, bulk: bool) -> Any:
    """Returns an array compressed, as one piece (`bulk`) or row by row (object array `[B]` of `PackedArray`).

    Arrays that are compressed already, and arrays of objects, are returned as they are.
    """
    if not isinstance(leaf, np.ndarray) or leaf.dtype.hasobject or leaf.ndim == 0:
        return leaf
    if bulk:
        return PackedArray(leaf)
    rows = np.empty(len(leaf), dtype=object)
    for number, row in enumerate(leaf):
        rows[number] = PackedArray(np.asarray(row))
    return rows


def unpack_leaf(leaf: Any) -> Any:
    """Returns the array behind a leaf that `pack_leaf` made; anything else as it is."""
    if isinstance(leaf, PackedArray):
        return leaf.unpack()
    if isinstance(leaf, np.ndarray) and leaf.dtype == object and len(leaf) and isinstance(leaf[0], PackedArray):
        return np.stack([row.unpack() for row in leaf])
    return leaf
