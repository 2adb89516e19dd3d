"""TensorFlow variables as named arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray


def to_arrays(variables: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Returns copies of named variables as NumPy arrays."""
    return {name: np.array(variable.numpy()) for name, variable in variables.items()}


def load_weights(variables: Mapping[str, Any], weights: Mapping[str, Any], *, owner: str) -> None:
    """Copies named arrays into variables.

    Args:
        variables: The variables to fill.
        weights: `{name: array}`, exactly the variables' names.
        owner: Whose weights they are, for the error message.

    Raises:
        ValueError: If names or shapes differ; the variables are left as they were.
    """
    missing, surplus = sorted(set(variables) - set(weights)), sorted(set(weights) - set(variables))
    if missing or surplus:
        raise ValueError(
            f"weights of {owner} do not fit: missing {missing[:4] or 'none'}, unknown {surplus[:4] or 'none'}; "
            "they must come from a policy with the same model and spaces"
        )
    for name, variable in variables.items():
        if tuple(np.shape(weights[name])) != tuple(variable.shape):
            raise ValueError(
                f"weights of {owner} do not fit: {name} is {tuple(np.shape(weights[name]))}, "
                f"wanted {tuple(variable.shape)}"
            )
    for name, variable in variables.items():
        variable.assign(np.asarray(weights[name]))


class WeightMirror:
    """NumPy arrays that follow variables when told to; NumPy actors read them.

    The arrays stay the same objects: an actor that holds views of them sees each refresh.

    Args:
        variables: Named float variables of one dtype.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = list(variables.values())
        sizes = [int(np.prod(variable.shape)) for variable in self._variables]
        self._flat = np.empty(sum(sizes), np.float32)
        parts = np.split(self._flat, np.cumsum(sizes)[:-1])
        self.arrays: dict[str, NDArray[Any]] = {
            name: part.reshape(variable.shape) for (name, variable), part in zip(variables.items(), parts, strict=True)
        }
        # One call that gives one array: reading the variables one by one costs several times as much.
        self._read = tf.function(self._concatenated, input_signature=[])
        self.refresh()

    def _concatenated(self) -> Any:
        return tf.concat([tf.reshape(tf.cast(variable, tf.float32), [-1]) for variable in self._variables], 0)

    def refresh(self) -> None:
        """Copies the variables' values into the arrays."""
        np.copyto(self._flat, self._read().numpy())
