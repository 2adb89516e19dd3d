"""Functions of RLlib's TensorFlow policies that nothing here needs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlframe.data.columns import INFOS
from rlframe.models.repeated_values import RepeatedValues
from rlframe.policy.policy import Policy
from rlframe.utils.quiet_tf import tf

tf1: Any = tf.compat.v1
tfv = 2
"""TensorFlow's major version."""
TOWER_SCOPE_NAME = "tower"
"""Begins the names of a device's results in a learner's info."""


def convert_to_non_tf_type(x: Any) -> Any:
    """Returns a nested structure with arrays in place of tensors and variables."""
    return tf.nest.map_structure(_to_array, x)


def _to_array(item: Any) -> Any:
    return item.numpy() if isinstance(item, (tf.Tensor, tf.Variable)) else item


def get_gpu_devices() -> list[str]:
    """Returns the names of the GPUs that TensorFlow sees."""
    return [device.name for device in tf.config.list_physical_devices() if "GPU" in device.device_type]


def get_tf_eager_cls_if_necessary(orig_cls: type[Policy], config: dict[str, Any]) -> type[Policy]:
    """Returns the class that acts and learns eagerly: the class itself, as there is no other way.

    Args:
        orig_cls: A policy class.
        config: Not used: RLlib read its `framework` and `eager_tracing`.
    """
    del config
    return orig_cls


def average_gradients(tower_grads: Sequence[Sequence[tuple[Any, Any]]]) -> list[tuple[Any, Any]]:
    """Returns the mean of several devices' gradients.

    Args:
        tower_grads: For each device its (gradient, variable) pairs, in the same order; None is no gradient.

    Returns:
        (mean gradient, the first device's variable); variables without any gradient are left out.
    """
    averaged = []
    for pairs in zip(*tower_grads, strict=True):
        grads = [grad for grad, _ in pairs if grad is not None]
        if grads:
            averaged.append((tf.reduce_mean(tf.stack(grads), axis=0), pairs[0][1]))
    return averaged


def convert_eager_inputs(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function so that arrays, numbers and batches given to it become tensors.

    Policies stay what they are; `infos` is left out of batches, `info_batch` and `episodes` of the keywords; `timestep`
    becomes int64.
    """

    @functools.wraps(func)
    def converted(*args: Any, **kwargs: Any) -> Any:
        tensors = {
            name: _to_tensors(value, tf.int64 if name == "timestep" else None)
            for name, value in kwargs.items()
            if name not in ("info_batch", "episodes")
        }
        return func(*[_to_tensors(arg) for arg in args], **tensors)

    return converted


def convert_eager_outputs(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function so that tensors in what it returns become arrays."""

    @functools.wraps(func)
    def converted(*args: Any, **kwargs: Any) -> Any:
        return convert_to_non_tf_type(func(*args, **kwargs))

    return converted


def _to_tensors(x: Any, dtype: Any = None) -> Any:
    if x is None or isinstance(x, Policy) or tf.is_tensor(x):
        return x
    if isinstance(x, RepeatedValues):
        return RepeatedValues(_to_tensors(x.values), _to_tensors(x.lengths), x.max_len)
    if isinstance(x, dict):
        return {key: _to_tensors(part, dtype) for key, part in x.items() if key != INFOS}
    if isinstance(x, tuple):
        return tuple(_to_tensors(part, dtype) for part in x)
    if isinstance(x, list) and not (x and np.isscalar(x[0])):
        return [_to_tensors(part, dtype) for part in x]
    return tf.convert_to_tensor(x, dtype)


class OptimizerWrapper:
    """A tape with the one method of an optimiser of TensorFlow 1 that gradient hooks call.

    Args:
        tape: A `tf.GradientTape` that has recorded the loss.
    """

    def __init__(self, tape: Any) -> None:
        self.tape = tape

    def compute_gradients(self, loss: Any, var_list: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Returns (gradient, variable) for each variable."""
        return list(zip(self.tape.gradient(loss, var_list), var_list, strict=True))
