"""A `Program` as a SavedModel, whose signature has the program's own names for inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlframe.serving.export.program import Program
from rlframe.utils.quiet_tf import tf


def _slice(x: Any, starts: list[int], ends: list[int], axes: list[int]) -> Any:
    places = [slice(None)] * len(x.shape)
    for start, end, axis in zip(starts, ends, axes, strict=True):
        places[axis] = slice(start, end)
    return x[tuple(places)]


def _conv(x: Any, weight: Any, bias: Any, *, strides: list[int], pads: list[int]) -> Any:
    top, left, bottom, right = pads
    images = tf.pad(tf.transpose(x, [0, 2, 3, 1]), [[0, 0], [top, bottom], [left, right], [0, 0]])
    made = tf.nn.conv2d(images, tf.transpose(weight, [2, 3, 1, 0]), strides, "VALID") + bias
    return tf.transpose(made, [0, 3, 1, 2])


def _reshape(x: Any, shape: list[int]) -> Any:
    return tf.reshape(x, [tf.shape(x)[index] if size == 0 else size for index, size in enumerate(shape)])


#: See `exported_policy.OPERATIONS`; constants that are shapes, axes or bounds come as lists.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Identity": tf.identity,
    "Add": tf.add,
    "Sub": tf.subtract,
    "Mul": tf.multiply,
    "Div": tf.divide,
    "Max": tf.maximum,
    "Min": tf.minimum,
    "Greater": tf.greater,
    "Where": tf.where,
    "MatMul": tf.matmul,
    "Exp": tf.exp,
    "Sqrt": tf.sqrt,
    "Tanh": tf.tanh,
    "Erf": tf.math.erf,
    "Relu": tf.nn.relu,
    "LeakyRelu": lambda x, alpha: tf.nn.leaky_relu(x, alpha),
    "Elu": tf.nn.elu,
    "Selu": tf.nn.selu,
    "Sigmoid": tf.sigmoid,
    "Softplus": tf.nn.softplus,
    "Softsign": tf.nn.softsign,
    "Softmax": lambda x, axis: tf.nn.softmax(x, axis),
    "ReduceMean": lambda x, axes: tf.reduce_mean(x, axes, keepdims=True),
    "ReduceSum": lambda x, axes: tf.reduce_sum(x, axes, keepdims=True),
    "ArgMax": lambda x, axis, **_: tf.argmax(x, axis),
    "OneHot": lambda x, depth, *_, **__: tf.one_hot(x, depth),
    "Cast": lambda x, to: tf.cast(x, to),
    "Reshape": _reshape,
    "Transpose": lambda x, perm: tf.transpose(x, perm),
    "Slice": _slice,
    "Concat": lambda *parts, axis: tf.concat(parts, axis),
    "Conv": _conv,
    "Part": lambda parts, index: parts[index],
}
_BY_CONSTANTS = ("Reshape", "Slice", "ReduceMean", "ReduceSum", "OneHot")


def write(program: Program, contract: dict[str, Any], path: Path) -> Any:
    """Writes the folder, and returns how it runs."""
    del contract
    module = tf.Module()
    module.constants = {name: tf.Variable(array, trainable=False) for name, array in program.constants.items()}
    module.weights = [] if program.network is None else program.network.parts
    ports = program.inputs

    def act(*inputs: Any) -> dict[str, Any]:
        values: dict[str, Any] = dict(zip((port.name for port in ports), inputs, strict=True))
        for kind, names, output, attributes in program.nodes:
            fixed = names[1:] if kind in _BY_CONSTANTS else ()
            held = names[: len(names) - len(fixed)]
            given = [values[name] if name in values else module.constants[name] for name in held]
            known = [program.constants[name].tolist() for name in fixed]
            if kind == "Network" and program.network is not None:
                values[output] = program.network.call(*given)
                continue
            values[output] = _OPERATIONS[kind](*given, *known, **attributes)
        return {port.name: values[port.name] for port in program.outputs}

    signature = [tf.TensorSpec([None, *port.shape], port.dtype, name=port.name) for port in ports]
    module.act = tf.function(act, input_signature=signature)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.act})
    loaded = tf.saved_model.load(str(path)).signatures["serving_default"]

    def run(feeds: Any) -> dict[str, Any]:
        made = loaded(**{port.name: tf.constant(feeds[port.name]) for port in ports})
        return {name: part.numpy() for name, part in made.items()}

    return run
