"""What Keras 2 took and Keras 3 refuses, for models of programs that were written for Keras 2.

Most TensorFlow models of RLlib's users are functional models of Keras 2: they call TensorFlow's functions on Keras'
symbolic tensors (`tf.sequence_mask(seq_in)`, `tf.concat`, `tf.expand_dims`), ask those for `shape.as_list()`, hand
recurrent layers their input as `inputs=`, count units with NumPy's numbers, write `(8)` for the shape `(8,)`, put
convolutions into `TimeDistributed`, begin `Sequential` models by joining several inputs, and make `training` an input;
of arguments see `keras_two_arguments`. Older ones make variables and layers by name, see `named_variables`. `accept`
makes Keras 3 take that. What Keras 3 takes by itself stays as it is: a function of TensorFlow's is asked first, and
only where it refuses comes the operation here.
"""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

import numpy as np

from rlframe.models.tf import keras_files, keras_two_arguments, named_variables, tf1_optimizers
from rlframe.utils.quiet_tf import tf


class Shape(tuple[int | None, ...]):
    """A symbolic tensor's shape, which is a tuple in Keras 3, with what programs ask TensorFlow's shapes for."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """The number of axes, `ndims` as well."""
        return len(self)

    ndims = rank

    def as_list(self) -> list[int | None]:
        """Returns the sizes; None where one is open."""
        return list(self)

    def num_elements(self) -> int | None:
        """Returns the product of the sizes, None where one is open."""
        return None if None in self else math.prod(self)  # type: ignore[arg-type]

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return Shape(found) if isinstance(place, slice) else found


@functools.cache
def accept() -> None:
    """Has Keras 3 take what Keras 2 did; once in a process. Imports Keras."""
    import keras  # type: ignore[import-untyped]  # Keras has no types

    function_layer = _function_layer(keras)

    class OnSymbols(tf.__internal__.dispatch.GlobalOpDispatcher):  # type: ignore[misc]  # TensorFlow has no types
        """Makes a layer of a function of TensorFlow's that is called on symbolic tensors."""

        def handle(self, op: Any, args: Any, kwargs: Any) -> Any:
            if any(isinstance(leaf, keras.KerasTensor) for leaf in tf.nest.flatten([args, kwargs])):
                return function_layer(op)(*args, **kwargs)
            return self.NOT_SUPPORTED

    OnSymbols().register()
    own = keras.KerasTensor.shape
    keras.KerasTensor.shape = property(lambda self: Shape(own.fget(self)), own.fset)
    keras.KerasTensor.get_shape = lambda self: self.shape
    keras.KerasTensor.__array_priority__ = 100  # so that NumPy leaves `array * symbol` to it
    for name in ("mean", "std", "var", "any", "all"):
        _call_on_symbols(tf.keras.backend, name, keras.KerasTensor, function_layer)
    _name_first_input(keras.layers.RNN)
    _name_first_input(keras.layers.Bidirectional)
    for layer in (keras.layers.Dense, keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN):
        _take_any_number(layer)
    _take_number_as_shape(keras.layers.InputLayer)
    _join_time_and_batch(keras.layers.TimeDistributed)
    for layer in (keras.layers.BatchNormalization, keras.layers.Dropout):
        _take_tensor_for_training(layer)
    _name_training(keras.src.models.Functional)
    _take_several_inputs(keras)
    named_variables.accept(keras)
    keras_two_arguments.accept(keras)
    keras_files.accept(keras)
    tf1_optimizers.accept(tf, keras)


def _join_time_and_batch(layer: Any) -> None:
    """Has `TimeDistributed` call its layer once with all steps as rows, as Keras 2 did where the time is open.

    Keras 3 maps the layer over the steps, which fails for some layers, `Flatten` among them, and is slower for others.
    """
    step_by_step = layer.call

    @functools.wraps(step_by_step)
    def joined(self: Any, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        inner = tuple(inputs.shape[2:])
        if mask is not None or not tf.is_tensor(inputs) or inputs.shape[1] is not None or None in inner:
            return step_by_step(self, inputs, training=training, mask=mask)
        told = {"training": training} if self.layer._call_has_training_arg else {}
        outputs = self.layer.call(tf.reshape(inputs, (-1, *inner)), **told)
        size = tf.shape(inputs)
        return tf.reshape(outputs, tf.concat([size[:2], tf.shape(outputs)[1:]], 0))

    layer.call = joined


def _call_on_symbols(module: Any, name: str, symbol: type, function_layer: Any) -> None:
    """Has a function of Keras' backend take symbolic tensors."""
    function = getattr(module, name)

    @functools.wraps(function)
    def on_either(x: Any, *args: Any, **kwargs: Any) -> Any:
        return (function_layer(function) if isinstance(x, symbol) else function)(x, *args, **kwargs)

    setattr(module, name, on_either)


def _take_tensor_for_training(layer: Any) -> None:
    """Has a layer take a tensor for `training`, one truth value of any shape, such as an input of a model."""
    call = layer.call

    @functools.wraps(call)
    def either(self: Any, inputs: Any, training: Any = None, **kwargs: Any) -> Any:
        if not tf.is_tensor(training):
            return call(self, inputs, training=training, **kwargs)
        ways = [functools.partial(call, self, inputs, training=known, **kwargs) for known in (True, False)]
        return tf.cond(tf.reshape(training, ()), *ways)

    layer.call = either


def _take_several_inputs(keras: Any) -> None:
    """Has `Sequential` models whose first layer joins several inputs take those as symbols, layer by layer.

    They are an error to Keras 3, which such models are not built by before numbers pass through them.
    """
    call = keras.Sequential.__call__

    @functools.wraps(call)
    def either(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        several = isinstance(inputs, list | tuple) and any(keras.utils.is_keras_tensor(part) for part in inputs)
        if not several or self._functional is not None or type(self).call is not keras.Sequential.call:
            return call(self, inputs, *args, **kwargs)
        return functools.reduce(lambda rows, layer: layer(rows), self.layers, inputs)

    keras.Sequential.__call__ = either


def _name_training(model: Any) -> None:
    """Has functional models take `training` and `mask` behind their inputs, without their names."""
    call = model.__call__

    @functools.wraps(call)
    def named(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return call(self, inputs, **dict(zip(("training", "mask"), args, strict=False)), **kwargs)

    model.__call__ = named


def _function_layer(keras: Any) -> Any:
    """Returns the class of operations that call a function; Keras' models can be copied with them."""

    @keras.saving.register_keras_serializable("rlframe")
    class TensorFlowFunction(keras.Operation):  # type: ignore[misc]  # Keras has no types
        def __init__(self, function: Any, name: str | None = None) -> None:
            super().__init__(name=name)
            self.function = function

        def call(self, *args: Any, **kwargs: Any) -> Any:
            return self.function(*args, **kwargs)

        def get_config(self) -> dict[str, Any]:
            return {"name": self.name, "function": self.function}

        def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = tf.nest.map_structure(dense, (args, kwargs))
            return keras.src.backend.compute_output_spec(self.call, *args, **kwargs)

    def dense(leaf: Any) -> Any:
        """Keras 3 calls a symbol sparse that was multiplied by a number; only inputs are truly so."""
        if not isinstance(leaf, keras.KerasTensor) or not leaf.sparse:
            return leaf
        history = getattr(leaf, "_keras_history", None)
        if history is not None and isinstance(history.operation, keras.layers.InputLayer):
            return leaf
        return keras.KerasTensor(leaf.shape, leaf.dtype, name=leaf.name)

    return TensorFlowFunction


def _name_first_input(layer: Any) -> None:
    """Has a layer take its first argument as `inputs=`, too; Keras 3 calls that of recurrent layers `sequences`."""
    call = layer.__call__

    @functools.wraps(call)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = [kwargs.pop("inputs")] if "inputs" in kwargs and not args else []
        return call(self, *first, *args, **kwargs)

    layer.__call__ = named


def _take_any_number(layer: Any) -> None:
    """Has a layer take `units` that are a whole number of any type, such as one of NumPy's."""
    init: Any = layer.__init__

    @functools.wraps(init)
    def converted(self: Any, units: Any, *args: Any, **kwargs: Any) -> None:
        whole = isinstance(units, float | np.number) and int(units) == units
        init(self, int(units) if whole else units, *args, **kwargs)

    converted.__signature__ = inspect.signature(init)  # type: ignore[attr-defined]  # Keras reads it
    layer.__init__ = converted


def _take_number_as_shape(layer: Any) -> None:
    """Has inputs take a number for a shape of one axis: `Input(shape=(8))`, where `(8,)` was meant."""
    init: Any = layer.__init__

    @functools.wraps(init)
    def in_tuple(self: Any, shape: Any = None, *args: Any, **kwargs: Any) -> None:
        init(self, (int(shape),) if isinstance(shape, int | np.integer) else shape, *args, **kwargs)

    in_tuple.__signature__ = inspect.signature(init)  # type: ignore[attr-defined]  # Keras reads it
    layer.__init__ = in_tuple


__all__ = ["accept"]
