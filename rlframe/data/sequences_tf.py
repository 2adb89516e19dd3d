"""Cutting rows into sequences, for tensors of TensorFlow, whose sizes may only be known when a graph runs."""

from __future__ import annotations

from typing import Any

from rlframe.utils.quiet_tf import tf


def add_time_dimension(padded_inputs: Any, seq_lens: Any, max_seq_len: Any, time_major: bool) -> Any:
    """Returns padded rows with their time axis, see `rlframe.data.sequences.add_time_dimension`.

    Args:
        padded_inputs: Tensor `[B * T, ...]`.
        seq_lens: Valid rows per sequence, `[B]`, where `max_seq_len` is None.
        max_seq_len: T, or None.
        time_major: Return `[T, B, ...]`.
    """
    rows = tf.shape(padded_inputs)
    if max_seq_len is None:
        sequences = tf.shape(seq_lens)[0]
        length = rows[0] // tf.maximum(sequences, 1)
    else:
        length = tf.cast(max_seq_len, tf.int32)
        sequences = rows[0] // tf.maximum(length, 1)
    shaped = tf.reshape(padded_inputs, tf.concat([[sequences, length], rows[1:]], axis=0))
    shaped = tf.ensure_shape(shaped, [None, None, *padded_inputs.shape[1:]])
    return tf.experimental.numpy.swapaxes(shaped, 0, 1) if time_major else shaped
