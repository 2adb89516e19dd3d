"""Small TensorFlow functions that losses and models of users import."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from rlframe.utils.flat_inputs import flat_leaves
from rlframe.utils.numpy import FLOAT_MAX, FLOAT_MIN
from rlframe.utils.quiet_tf import tf
from rlframe.utils.spaces.old_gym import converted

Tensor: TypeAlias = Any

__all__ = [
    "FLOAT_MAX",
    "FLOAT_MIN",
    "explained_variance",
    "flatten_inputs_to_1d_tensor",
    "huber_loss",
    "l2_loss",
    "make_tf_callable",
    "minimize_and_clip",
    "one_hot",
    "reduce_mean_ignore_inf",
    "zero_logps_from_actions",
]


def explained_variance(y: Tensor, pred: Tensor) -> Tensor:
    """Returns the share of the variance of `y` that `pred` explains.

    Args:
        y: Targets. Float `[B]`.
        pred: Predictions. Float `[B]`.

    Returns:
        1 − Var(y − pred) / Var(y), not below −1; −1 where `y` does not vary. Scalar.
    """
    y = tf.convert_to_tensor(y)
    of_targets = tf.math.reduce_variance(y, axis=0)
    share = 1.0 - tf.math.divide_no_nan(tf.math.reduce_variance(y - pred, axis=0), of_targets)
    return tf.where(of_targets > 0, tf.maximum(share, -1.0), -tf.ones_like(share))


def huber_loss(x: Tensor, delta: float = 1.0) -> Tensor:
    """Returns x²/2 where |x| < delta, delta · (|x| − delta/2) elsewhere; shape of `x`."""
    size = tf.abs(x)
    return tf.where(size < delta, 0.5 * tf.square(x), delta * (size - 0.5 * delta))


def l2_loss(x: Tensor) -> Tensor:
    """Returns Σ x² / 2. Scalar."""
    return 0.5 * tf.reduce_sum(tf.square(x))


def reduce_mean_ignore_inf(x: Tensor, axis: int | None = None) -> Tensor:
    """Returns the mean of the entries above `FLOAT_MIN`, which masks are made of, over all dimensions or an axis."""
    finite = tf.greater(x, FLOAT_MIN)
    total = tf.reduce_sum(tf.where(finite, x, tf.zeros_like(x)), axis)
    return total / tf.reduce_sum(tf.cast(finite, total.dtype), axis)


def one_hot(x: Tensor, space: Any) -> Tensor:
    """Returns one-hot codes of actions or observations.

    Args:
        x: Integers counted from 0, `[B]` for Discrete(A), `[B, N]` for MultiDiscrete.
        space: Their space.

    Returns:
        Float `[B, A]`; for MultiDiscrete the codes of all components side by side.

    Raises:
        ValueError: If the space is neither.
    """
    space = converted(space)
    if isinstance(space, spaces.Discrete):
        return tf.one_hot(tf.cast(x, tf.int64), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = np.asarray(space.nvec).ravel()
        parts = [tf.one_hot(tf.cast(x[..., i], tf.int64), int(n)) for i, n in enumerate(sizes)]
        return tf.concat(parts, axis=-1)
    raise ValueError(f"one_hot: got the space {space}; wanted Discrete or MultiDiscrete.")


def flatten_inputs_to_1d_tensor(inputs: Any, spaces_struct: Any = None, time_axis: bool = False) -> Tensor:
    """Returns nested inputs side by side in one tensor, Discrete and MultiDiscrete leaves as one-hot codes.

    Args:
        inputs: A tensor or a dict or tuple of tensors `[B, …]`; dicts count in the order of their sorted keys.
        spaces_struct: The leaves' spaces in the same structure; None means no leaf is one-hot coded.
        time_axis: Whether tensors are `[B, T, …]`.

    Returns:
        Float32 `[B, D]`, or `[B, T, D]` with a time axis.
    """
    keep = 2 if time_axis else 1

    def flatten(leaf: Any, space: Any) -> Tensor:
        tensor = tf.convert_to_tensor(leaf)
        tensor = tf.cast(tensor if space is None else one_hot(tensor, space), tf.float32)
        width = math.prod(tensor.shape[keep:])  # not −1, which has no answer for a batch without rows
        return tf.reshape(tensor, tf.concat([tf.shape(tensor)[:keep], [width]], 0))

    return tf.concat(list(flat_leaves(inputs, spaces_struct, flatten)), axis=-1)


def zero_logps_from_actions(actions: Any) -> Tensor:
    """Returns zeros, float32 `[B]`, for nested actions `[B, …]`: what deterministic actions have as log-likelihoods."""
    return tf.zeros(tf.shape(tf.nest.flatten(actions)[0])[:1], tf.float32)


def minimize_and_clip(
    optimizer: Any, objective: Tensor, var_list: Sequence[Any], clip_val: float | None = 10.0
) -> list[tuple[Tensor, Any]]:
    """Returns the gradients of an objective, each scaled down to a norm of at most `clip_val`.

    Args:
        optimizer: What `compute_gradients_fn` and the like are handed: it has `compute_gradients(loss, variables)`.
        objective: What to minimise. Scalar.
        var_list: Variables.
        clip_val: Largest norm of one variable's gradient; None does not clip.

    Returns:
        Pairs of gradient and variable, without the variables that the objective does not depend on.
    """
    pairs = [
        (gradient, variable)
        for gradient, variable in optimizer.compute_gradients(objective, var_list=list(var_list))
        if gradient is not None
    ]
    if not clip_val:
        return pairs
    return [(tf.clip_by_norm(gradient, clip_val), variable) for gradient, variable in pairs]


def make_tf_callable(session_or_none: Any = None, dynamic_shape: bool = False) -> Callable[[Any], Any]:
    """Returns a decorator for functions of tensors, which then take and return arrays.

    Args:
        session_or_none: None, or what `policy.get_session()` gives, which is false: there are no sessions.
        dynamic_shape: Accepted because RLlib's programs pass it; functions run eagerly, and shapes are as they come.

    Raises:
        ValueError: If there is a session.
    """
    del dynamic_shape
    if session_or_none:
        raise ValueError(
            f"make_tf_callable: got the session {session_or_none!r}, wanted None: functions run eagerly, without one"
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = function(*_tensors(args), **_tensors(kwargs))
            return tf.nest.map_structure(lambda leaf: leaf.numpy() if tf.is_tensor(leaf) else leaf, made)

        return call

    return decorate


def _tensors(values: Any) -> Any:
    """Returns nested values with arrays and numbers as tensors, float64 as float32."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, (np.ndarray, np.generic, int, float)) and not isinstance(leaf, bool):
            array = np.asarray(leaf)
            return tf.convert_to_tensor(array.astype(np.float32) if array.dtype == np.float64 else array)
        return leaf

    return tf.nest.map_structure(convert, values)
