"""TensorFlow variables as named arrays, and back."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.rllib_names import fitting_weights
from rlframe.utils.quiet_tf import tf


def to_arrays(variables: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Returns copies of named variables as NumPy arrays."""
    return {name: np.array(variable.numpy()) for name, variable in variables.items()}


def load_weights(variables: Mapping[str, Any], weights: Mapping[str, Any], *, owner: str) -> None:
    """Copies named arrays into variables.

    Args:
        variables: The variables to fill.
        weights: `{name: array}`, with the variables' names or those of RLlib 1.x.
        owner: Whose weights they are, for the error message.

    Raises:
        ValueError: If names or shapes differ; the variables are left as they were.
    """
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    weights = fitting_weights(shapes, weights, owner=owner)
    for name, variable in variables.items():
        variable.assign(np.asarray(weights[name]))


class WeightMirror:
    """NumPy arrays that follow variables when told to; NumPy actors read them.

    The arrays stay the same objects: an actor that holds views of them sees each refresh.

    Args:
        variables: Named variables.

    Attributes:
        arrays: The arrays by name.
        stale: Whether the variables may have other values than the arrays. An assignment to one by its methods, as a
            program's own or that of a Keras model, is noticed; who assigns within a traced function sets this.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.empty(variable.shape, variable.dtype.as_numpy_dtype) for name, variable in variables.items()
        }
        self._read = _reader(list(variables.values()))
        for variable in variables.values():
            _watchers_of(variable).add(self)
        self.refresh()

    def refresh(self) -> None:
        """Copies the variables' values into the arrays."""
        # A read gives the variable's own memory, which a view of it lets us copy once; variable.numpy() takes three
        # times as long. Nothing holds the memory when the next step wants to write to it.
        for array, value in zip(self.arrays.values(), self._read(), strict=True):
            np.copyto(array, memoryview(value))
        self.stale = False


def _watchers_of(variable: Any) -> weakref.WeakSet[WeightMirror]:
    """Returns the mirrors that are told when a method of the variable assigns to it."""
    watchers: weakref.WeakSet[WeightMirror] | None = getattr(variable, "_mirrors", None)
    if watchers is None:
        watchers = variable._mirrors = weakref.WeakSet()
        for name in ("assign", "assign_add", "assign_sub"):
            setattr(variable, name, _told(getattr(variable, name), watchers))
    return watchers


def _told(assign: Callable[..., Any], watchers: weakref.WeakSet[WeightMirror]) -> Callable[..., Any]:
    @functools.wraps(assign)
    def assign_and_tell(*args: Any, **kwargs: Any) -> Any:
        assigned = assign(*args, **kwargs)
        for mirror in watchers:
            mirror.stale = True
        return assigned

    return assign_and_tell


def _reader(variables: list[Any]) -> Callable[[], list[Any]]:
    """Returns a function that returns the values of variables as tensors which share the variables' memory.

    One operation for all of them takes a third of the time of one for each, but is internal to TensorFlow: where a
    version has it no more, the others serve.
    """
    handles, dtypes = [variable.handle for variable in variables], [variable.dtype for variable in variables]

    def each() -> list[Any]:
        return [
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
            for handle, dtype in zip(handles, dtypes, strict=True)
        ]

    try:
        from tensorflow.python.eager import context, execute

        now, run = context.context(), execute.execute
        attributes = ("N", len(handles), "dtypes", tuple(dtype.as_datatype_enum for dtype in dtypes))

        def together() -> list[Any]:
            values: list[Any] = run("_ReadVariablesOp", len(handles), handles, attributes, now)
            return values

        together()
    except (ImportError, AttributeError, tf.errors.OpError):
        return each
    return together
