"""Calls of traced functions: one trace for each kind of batch, whatever its size, and few tensors in between."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import SEQ_LENS
from rlframe.utils.quiet_tf import tf

_FLOATS = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


def tensor_columns(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns that can be tensors: float64 as float32, without text and objects such as `infos`."""
    made = {}
    for key, value in batch.items():
        if isinstance(value, np.ndarray):
            if value.dtype.kind in "OUS":
                continue
            made[key] = value.astype(np.float32) if value.dtype == np.float64 else value
        elif isinstance(value, (Mapping, tuple)):
            made[key] = tf.nest.map_structure(
                lambda leaf: leaf.astype(np.float32) if getattr(leaf, "dtype", None) == np.float64 else leaf, value
            )
        elif tf.is_tensor(value) or key == SEQ_LENS:
            made[key] = value
    return made


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
        self._made: dict[Any, _Traced] = {}
        self.traces = 0

    def forget(self) -> None:
        """Has each kind of batch be traced anew."""
        self._made.clear()

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
        result: dict[str, Any] = made(leaves, [scalars[name] for name in others])
        return result

    def _trace(self, columns: Any, scalars: Any, keywords: dict[str, Any]) -> _Traced:
        """Returns the function for a kind of batch.

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
        step = tf.compat.v1.train.get_or_create_global_step()  # of the process; none can be made while tracing

        def packed(columns: Any, scalars: Any) -> Any:
            self.traces += 1
            graph = tf.compat.v1.get_default_graph()
            graph.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_STEP)[:] = [step]
            return packing.pack(self._method(columns, scalars, **keywords))

        signature = [
            tf.nest.map_structure(_open_spec, columns),
            {name: tf.TensorSpec([], value.dtype) for name, value in scalars.items()},
        ]
        # Without AutoGraph, which takes longer than all the rest of tracing; RLlib's graphs did not have it either.
        function = tf.function(
            packed, input_signature=signature, jit_compile=self._jit_compile or None, autograph=False
        )
        return _Traced(function, packing, self._jit_compile)


class _Traced:
    """One traced function, with the memory through which batches reach it."""

    def __init__(self, function: Any, packing: _Packing, jit_compile: bool) -> None:
        concrete = function.get_concrete_function()
        self._call, self._packing = direct_call(function, concrete, jit_compile), packing
        self._passages: list[_StagingBuffer] | None = None if may_keep_inputs(concrete.graph) else []
        self._in_use = threading.Lock()

    def __call__(self, leaves: list[Any], scalars: list[Any]) -> Any:
        """Returns the results for the columns of a batch, in arrays and numbers."""
        # Two threads may act at once: the second takes new memory. So does a debugger, who may keep what he sees.
        if self._passages is None or tf.config.functions_run_eagerly() or not self._in_use.acquire(blocking=False):
            return self._packing.unpack(self._call([staged(leaf) for leaf in leaves] + scalars))
        try:
            if not self._passages:
                self._passages = [_StagingBuffer() for _ in leaves]
            tensors = [passage.take(leaf) for passage, leaf in zip(self._passages, leaves, strict=True)]
            return self._packing.unpack(self._call(tensors + scalars))
        finally:
            self._in_use.release()


def direct_call(function: Any, concrete: Any, jit_compile: bool) -> Callable[[list[Any]], tuple[Any, list[Any]]]:
    """Returns a function of flat tensors that calls a `tf.function` with one signature, without the way there.

    Matching arguments with a signature takes five times as long as running a small graph.

    Args:
        function: Takes nested tensors, and returns a tensor and a list of tensors.
        concrete: Its one concrete function.
        jit_compile: Whether XLA compiles it.
    """
    structure = concrete.structured_input_signature[0]
    late = getattr(concrete.graph, "deferred_external_captures", ())  # values that are looked up at each call
    by_handle = jit_compile or late or _kernels() is None or tf.config.list_logical_devices("GPU")
    short = _call_by_handle(concrete) if by_handle else _call_in_this_thread(concrete)

    def call(tensors: list[Any]) -> Any:
        if tf.config.functions_run_eagerly():  # somebody debugs: run the Python code, line by line
            return function(*tf.nest.pack_sequence_as(structure, tensors))
        return short(tensors)

    return call


def _call_in_this_thread(concrete: Any) -> Callable[[list[Any]], tuple[Any, list[Any]]]:
    """Returns a function of flat tensors that runs a concrete function as an operation.

    A call of the function itself hands it to another thread, and often to another core, which does not have the
    weights in its cache, and waits. An operation runs where it is called; what has loops still takes the other way,
    and operations share their work with other threads as ever.
    """
    captured, dtypes = list(concrete.captured_inputs), [output.dtype for output in concrete.outputs]
    _KERNELS.note(concrete)

    def call(tensors: list[Any]) -> tuple[Any, list[Any]]:
        try:
            made = tf.raw_ops.StatefulPartitionedCall(args=tensors + captured, Tout=dtypes, f=concrete)
        except tf.errors.OpError as error:
            if "is not finite" not in str(error):
                # The function fails again, and says then which line of Python made the operation that failed.
                _call_by_handle(concrete)(tensors)
            raise
        return made[0], made[1:]

    return call


def _call_by_handle(concrete: Any) -> Callable[[list[Any]], tuple[Any, list[Any]]]:
    """Returns a function of flat tensors that calls a concrete function, in the way that TensorFlow has for it."""
    structure = concrete.structured_input_signature[0]
    short = getattr(concrete, "_call_flat", None)

    def call(tensors: list[Any]) -> Any:
        if short is None:
            return concrete(*tf.nest.pack_sequence_as(structure, tensors))
        return short(tensors, concrete.captured_inputs)

    return call


class _Kernels:
    """Lets go of what TensorFlow keeps of functions that were called as operations, and are gone.

    It drops its kernel of a function with the function, but not that of a call of it: up to a megabyte for each learner
    step of each policy that ever was. To drop all kernels costs those in use a moment at their next call, so it is done
    once for many.
    """

    _MANY = 16

    def __init__(self) -> None:
        self._gone = 0

    def note(self, concrete: Any) -> None:
        """Takes note of a new function, and drops the kernels of those that are gone."""
        if self._gone >= self._MANY:
            self._gone = 0
            kernels = _kernels()
            assert kernels is not None
            kernels.clear_kernel_cache()
        weakref.finalize(concrete, self._count).atexit = False

    def _count(self) -> None:
        self._gone += 1


_KERNELS = _Kernels()


def _kernels() -> Any:
    """Returns TensorFlow's context, which keeps the kernels; None where it has no way to drop them."""
    try:
        from tensorflow.python.eager import context

        now = context.context()
    except (ImportError, AttributeError):
        return None
    return now if hasattr(now, "clear_kernel_cache") else None


#: Stateful operations that use values and keep no memory of them. Others may: a variable that is assigned a tensor
#: takes the tensor's memory, not a copy of it.
_KEEPS_NOTHING = re.compile(
    "ReadVariableOp|VarHandleOp|Assign(Add|Sub)VariableOp|ResourceApply.*|ResourceGather.*|Assert|CheckNumerics.*|"
    "Random.*|Multinomial|Stateful(Standard|Uniform|Truncated|Random).*|RngReadAndSkip|RngSkip|"
    "Stateful(PartitionedCall|If|While)|If|While"
)


def may_keep_inputs(graph: Any) -> bool:
    """Returns whether a traced graph has a state that may hold on to the memory of the graph's inputs."""
    try:
        from tensorflow.python.framework import op_def_registry
    except ImportError:
        return True
    definition = graph.as_graph_def()
    functions = {function.signature.name for function in definition.library.function}
    nodes = chain(definition.node, *[function.node_def for function in definition.library.function])
    for name in {node.op for node in nodes} - functions:
        known = op_def_registry.get(name)
        if known is None or (known.is_stateful and not _KEEPS_NOTHING.fullmatch(name)):
            return True
    return False


_ALIGNMENT = 64
_STAGED = frozenset(map(np.dtype, ("float32", "int64", "int32", "uint8")))


class _StagingBuffer:
    """Memory through which one column goes to TensorFlow, batch by batch; new only where the number of rows is."""

    def __init__(self) -> None:
        self._memory: NDArray[Any] | None = None
        self._tensor: Any = None

    def take(self, leaf: Any) -> Any:
        """Returns a tensor with the values of an array; it holds until the next call."""
        if type(leaf) is not np.ndarray or leaf.dtype not in _STAGED or leaf.size == 0:
            return staged(leaf)
        if self._memory is None or self._memory.shape != leaf.shape:
            self._memory, self._tensor = _aligned(leaf)
        np.copyto(self._memory, leaf)
        return self._tensor


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
    memory, tensor = _aligned(leaf)
    np.copyto(memory, leaf)
    return tensor


def _aligned(like: NDArray[Any]) -> tuple[NDArray[Any], Any]:
    """Returns memory for an array where TensorFlow wants it, and a tensor of that memory."""
    size = like.nbytes
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    memory = raw[start : start + size].view(like.dtype).reshape(like.shape)
    return memory, tf.experimental.dlpack.from_dlpack(memory.__dlpack__())


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
        numbers, tensors = iter(packed[0].numpy().tolist()), iter(packed[1])
        leaves = (
            value if kind == "plain" else next(numbers) if kind == "number" else np.asarray(next(tensors).numpy())
            for kind, value in self._kinds
        )
        return _filled(self._structure, leaves)


def _filled(structure: Any, leaves: Iterator[Any]) -> Any:
    """Returns a nested structure with new leaves, in the order of `tf.nest`; it takes a third of the time."""
    if type(structure) is dict:
        made = {key: _filled(structure[key], leaves) for key in sorted(structure)}
        return {key: made[key] for key in structure}
    if type(structure) in (list, tuple):
        return type(structure)(_filled(item, leaves) for item in structure)
    if tf.nest.is_nested(structure):
        parts = [_filled(item, leaves) for item in tf.nest.flatten(structure)]
        return tf.nest.pack_sequence_as(structure, parts)
    return next(leaves)
