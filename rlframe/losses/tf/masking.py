"""Means over the rows that count, in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from rlframe.data.columns import VALID_MASK

Tensor: TypeAlias = Any


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
        return tf.reduce_mean  # type: ignore[no-any-return]  # TensorFlow has no types here
    return lambda column: tf.reduce_mean(tf.boolean_mask(column, mask))
