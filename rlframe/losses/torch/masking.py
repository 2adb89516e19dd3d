"""Means over the rows that count, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlframe.data.columns import VALID_MASK


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
        return torch.mean
    count = mask.sum().clamp(min=1)

    def mean(column: Tensor) -> Tensor:
        shaped = mask.reshape(mask.shape + (1,) * (column.dim() - 1))
        per_row = max(column[0].numel(), 1)
        averaged: Tensor = torch.where(shaped, column, torch.zeros_like(column)).sum() / (count * per_row)
        return averaged

    return mean


def valid_rows(batch: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    """Returns the function that leaves the padding rows of `batch` out of a column: `[B, ...]` to `[valid, ...]`."""
    mask = batch.get(VALID_MASK)
    return (lambda column: column) if mask is None else (lambda column: column[mask])
