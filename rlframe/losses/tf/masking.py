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
    count = tf.maximum(tf.math.count_nonzero(mask, dtype=tf.int32), 1)

    def mean(column: Tensor) -> Tensor:
        shaped = tf.reshape(mask, tf.concat([tf.shape(mask), tf.ones([tf.rank(column) - 1], tf.int32)], 0))
        total = tf.reduce_sum(tf.where(shaped, column, tf.zeros_like(column)))
        return total / tf.cast(count * tf.reduce_prod(tf.shape(column)[1:]), column.dtype)

    return mean


def valid_rows(batch: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    """Returns the function that leaves the padding rows of `batch` out of a column: `[B, ...]` to `[valid, ...]`."""
    mask = batch.get(VALID_MASK)
    return (lambda column: column) if mask is None else (lambda column: tf.boolean_mask(column, mask))
