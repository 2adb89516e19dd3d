"""Random actions within a step that TensorFlow traces, where NumPy's draw would be made once and for all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.quiet_tf import tf


def drawn_each_time(
    draw: Callable[[Any], Any], logp: Callable[[Any], Any], inputs: Any, action_space: Any
) -> tuple[Any, Any]:
    """Returns actions `[B, ...]` and log-likelihoods, float32 `[B]`, that are drawn anew whenever the step runs.

    Args:
        draw: Of a distribution with `inputs`, actions `[B, ...]` in NumPy.
        logp: Of the same, their log-likelihoods `[B]`.
        inputs: Symbolic tensor `[B, ...]`.
        action_space: What is drawn from.

    Raises:
        UnsupportedSpaceException: If the space is a Dict or a Tuple.
    """
    if isinstance(action_space, (spaces.Dict, spaces.Tuple)):
        raise UnsupportedSpaceException(
            f"Random: got {action_space} within a loss of TensorFlow; wanted a space of one array: make an exploration "
            "for each part of it"
        )
    one = np.asarray(draw(SimpleNamespace(inputs=np.zeros((1, *inputs.shape[1:]), np.float32))))

    def both(values: Any) -> tuple[Any, Any]:
        rows = SimpleNamespace(inputs=values)
        return np.asarray(draw(rows), one.dtype), np.asarray(logp(rows), np.float32)

    actions, log_likelihoods = tf.numpy_function(both, [inputs], [tf.as_dtype(one.dtype), tf.float32])
    rows = inputs.shape[:1]
    return tf.ensure_shape(actions, rows + one.shape[1:]), tf.ensure_shape(log_likelihoods, rows)
