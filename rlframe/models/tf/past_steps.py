"""What TensorFlow models with memory see of past steps: actions one-hot, and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

Tensor: TypeAlias = Any


def encode_actions(actions: Tensor, encoding: Sequence[int]) -> Tensor:
    """Returns actions `[B, ...]` as float `[B, D]`; see `rlframe.models.action_encoding.encode_actions`."""
    rows = tf.reshape(actions, [-1, len(encoding)])
    parts = [
        tf.one_hot(tf.cast(rows[:, index], tf.int32), size) if size else tf.cast(rows[:, index : index + 1], tf.float32)
        for index, size in enumerate(encoding)
    ]
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


def encode_many(actions: Tensor, encoding: Sequence[int]) -> Tensor:
    """Returns the actions of N past steps, `[B, N, ...]`, as float `[B, N * D]`."""
    steps = actions.shape[1]
    width = sum(size or 1 for size in encoding)
    return tf.reshape(encode_actions(actions, encoding), [-1, steps * width])
