"""Calls of traced functions: one trace for each kind of batch, whatever its size, and few tensors in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

_FLOATS = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


class TracedCalls:
    """A method of a policy as traced functions.

    A function is traced once for each set of column names, dtypes and row shapes (and keywords); the number of rows is
    left open, so that no size of a batch ever traces anew. All results that are scalars of floating point come back in
    one tensor: making a NumPy array of each by itself costs more than most of them do.

    Args:
        method: `fn(columns, scalars, **keywords) -> nested dict of tensors and plain values`.
        jit_compile: Whether XLA compiles the function.
        max_traces: Traces after which an error is raised; None for any number.

    Attributes:
        traces: Number of traces so far.
    """

    def __init__(
        self, method: Callable[..., dict[str, Any]], jit_compile: bool = False, max_traces: int | None = None
    ) -> None:
        self._method = method
        self._jit_compile, self._max_traces = jit_compile, max_traces
        self._made: dict[Any, tuple[Any, _Packing]] = {}
        self.traces = 0

    def __call__(self, columns: Mapping[str, Any], scalars: Mapping[str, Any], **keywords: Any) -> dict[str, Any]:
        """Returns what the method does, in arrays and Python numbers."""
        names, others = sorted(columns), sorted(scalars)
        leaves = [columns[name] for name in names]
        if not all(type(leaf) is np.ndarray for leaf in leaves):
            leaves = tf.nest.flatten(columns)
        kind = (*names, *[(leaf.dtype, leaf.shape[1:]) for leaf in leaves], *others, *keywords.values())
        made = self._made.get(kind)
        if made is None:
            made = self._made[kind] = self._trace(columns, scalars, keywords)
        function, packing = made
        tensors = [staged(leaf) for leaf in leaves]
        result: dict[str, Any] = packing.unpack(function(tensors + [scalars[name] for name in others]))
        return result

    def _trace(self, columns: Any, scalars: Any, keywords: dict[str, Any]) -> tuple[Any, _Packing]:
        """Returns the function for a kind of batch, and what takes its results apart.

        Raises:
            ValueError: If there were too many kinds of batches.
        """
        if self._max_traces is not None and len(self._made) >= self._max_traces:
            kinds = "; ".join(", ".join(map(str, kind)) for kind in list(self._made)[-2:])
            raise ValueError(
                f"the learner step was traced {len(self._made)} times, and each time the batch had other columns, "
                f"dtypes or row shapes than before: the last were {kinds}. Give batches one form, or raise "
                "eager_max_retraces"
            )
        packing = _Packing()

        def packed(columns: Any, scalars: Any) -> Any:
            self.traces += 1
            return packing.pack(self._method(columns, scalars, **keywords))

        signature = [
            tf.nest.map_structure(_open_spec, columns),
            {name: tf.TensorSpec([], value.dtype) for name, value in scalars.items()},
        ]
        # Without AutoGraph, which takes longer than all the rest of tracing; RLlib's graphs did not have it either.
        function = tf.function(
            packed, input_signature=signature, jit_compile=self._jit_compile or None, autograph=False
        )
        return direct_call(function), packing


def direct_call(function: Any) -> Callable[[list[Any]], Any]:
    """Returns a function of flat tensors that calls a `tf.function` with one signature, without the way there.

    Matching arguments with a signature takes five times as long as running a small graph. The short way is internal to
    TensorFlow; where a version has it no more, the long one serves.
    """
    concrete = function.get_concrete_function()
    short = getattr(concrete, "_call_flat", None)
    structure = concrete.structured_input_signature[0]

    def call(tensors: list[Any]) -> Any:
        if tf.config.functions_run_eagerly():  # somebody debugs: run the Python code, line by line
            return function(*tf.nest.pack_sequence_as(structure, tensors))
        if short is None:
            return concrete(*tf.nest.pack_sequence_as(structure, tensors))
        return short(tensors, concrete.captured_inputs)

    return call


_ALIGNMENT = 64
_STAGED = frozenset(map(np.dtype, ("float32", "int64", "int32", "uint8")))


def staged(leaf: Any) -> Any:
    """Returns a tensor with the values of an array, through aligned memory; tensors are returned as they are.

    TensorFlow wants tensors at multiples of 64 bytes, where NumPy's arrays mostly do not lie. A copy to such a place,
    and a tensor of it, take a fraction of the time. The memory is new at each call: a variable that takes the tensor
    keeps the memory, not a copy of it.
    """
    if type(leaf) is not np.ndarray:
        return tf.convert_to_tensor(leaf)
    if leaf.dtype not in _STAGED or leaf.size == 0:
        return tf.constant(leaf)
    size = leaf.nbytes
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    memory = raw[start : start + size].view(leaf.dtype).reshape(leaf.shape)
    np.copyto(memory, leaf)
    return tf.experimental.dlpack.from_dlpack(memory.__dlpack__())


def _open_spec(leaf: Any) -> Any:
    """Returns the signature of a column with any number of rows."""
    dtype = tf.as_dtype(leaf.dtype)
    return tf.TensorSpec([None, *leaf.shape[1:]] if len(leaf.shape) else [], dtype)


class _Packing:
    """Puts float scalars of a nested result into one tensor, and takes them out again."""

    def __init__(self) -> None:
        self._structure: Any = None
        self._kinds: list[tuple[str, Any]] = []

    def pack(self, result: Any) -> Any:
        """Returns `(scalars [S], list of the other tensors)`; plain values are kept here."""
        self._structure, self._kinds = result, []
        numbers, tensors = [], []
        for leaf in tf.nest.flatten(result):
            value = tf.convert_to_tensor(leaf) if isinstance(leaf, tf.Variable) else leaf
            if not tf.is_tensor(value):
                self._kinds.append(("plain", value))
            elif value.shape.rank == 0 and value.dtype in _FLOATS:
                self._kinds.append(("number", None))
                numbers.append(tf.cast(value, tf.float32))
            else:
                self._kinds.append(("tensor", None))
                tensors.append(value)
        # The structure is only a pattern: symbolic tensors in it would keep the whole graph's Python side alive.
        self._structure = tf.nest.map_structure(lambda _: 0, result)
        return (tf.stack(numbers) if numbers else tf.zeros([0])), tensors

    def unpack(self, packed: Any) -> Any:
        """Returns the nested result in arrays and numbers."""
        numbers = iter(packed[0].numpy().tolist())
        tensors = iter(packed[1])
        leaves = [
            value if kind == "plain" else next(numbers) if kind == "number" else np.asarray(next(tensors).numpy())
            for kind, value in self._kinds
        ]
        return tf.nest.pack_sequence_as(self._structure, leaves)
