"""Means over the rows that count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlframe.data.columns import VALID_MASK
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def valid_mean(batch: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    """Returns the function that takes the mean of a column over the rows of `batch` that are no padding.

    Args:
        batch: Columns of tensors. Where it has `valid_mask`, bool `[B]`, rows without it do not count, whatever they
            hold (NaN included).

    Returns:
        `fn(column [B, ...]) -> scalar`.
    """
    mask = batch.get(VALID_MASK)
    if mask is None:
        return ops.mean
    count = ops.maximum(ops.sum(ops.to_float(mask)), 1.0)

    def mean(column: Tensor) -> Tensor:
        counted = ops.where(ops.expand_like(mask, column), column, ops.zeros_like(column))
        return ops.sum(counted) / (ops.cast_like(count, column) * ops.row_size(column))

    return mean


def valid_rows(batch: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    """Returns the function that leaves the padding rows of `batch` out of a column: `[B, ...]` to `[valid, ...]`."""
    mask = batch.get(VALID_MASK)
    return (lambda column: column) if mask is None else (lambda column: ops.boolean_mask(column, mask))
