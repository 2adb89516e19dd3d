"""Arguments and attributes of Keras 2's layers and optimisers that Keras 3 lacks; see `keras_two`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rlframe.utils.quiet_tf import tf

#: Arguments of layers without effect: on what is computed, and where they are not asked for.
_WITHOUT_EFFECT, _WITHOUT_IF_FALSE = ("fused", "experimental_autocast"), ("dynamic", "time_major")
_OPTIMIZERS = ("Adam", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl")


def accept(keras: Any) -> None:
    """Has Keras 3's layers and optimisers take what Keras 2's did."""
    layers = keras.layers
    _convert(layers.Layer, _older_arguments)
    _convert(keras.Operation, _plain_name)
    _convert(keras.KerasTensor, _plain_name)
    for kind in _OPTIMIZERS:
        _convert(getattr(keras.optimizers, kind), functools.partial(_older_rates, keras), first="learning_rate")
    _take_name_first(layers.Layer)
    layers.Layer.input_shape = property(lambda self: _shapes(self.input))
    layers.Layer.output_shape = property(lambda self: _shapes(self.output))
    optimizer = keras.optimizers.Optimizer
    optimizer.lr = property(lambda self: self.learning_rate, lambda self, rate: setattr(self, "learning_rate", rate))
    optimizer.minimize = _minimize


def _convert(kind: Any, convert: Callable[[dict[str, Any]], dict[str, Any]], first: str | None = None) -> None:
    """Has a constructor's named arguments pass through a function; Keras reads the signature, which stays.

    Args:
        kind: The class.
        convert: Gets the arguments, and returns them.
        first: Name of the first argument, which passes through as well where it stands without.
    """
    init: Any = kind.__init__

    @functools.wraps(init)
    def converted(self: Any, *args: Any, **kwargs: Any) -> None:
        if first is not None and args:
            kwargs, args = {first: args[0], **kwargs}, args[1:]
        init(self, *args, **convert(kwargs))

    converted.__signature__ = inspect.signature(init)  # type: ignore[attr-defined]
    kind.__init__ = converted


def _older_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    said = {
        key: value
        for key, value in kwargs.items()
        if key not in _WITHOUT_EFFECT and not (key in _WITHOUT_IF_FALSE and value is False)
    }
    if "batch_input_shape" in said:
        said["input_shape"] = tuple(said.pop("batch_input_shape"))[1:]
    return said


def _plain_name(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Scopes in names, as in "policy/fc", were TensorFlow 1's."""
    name = kwargs.get("name")
    return {**kwargs, "name": name.replace("/", "_")} if isinstance(name, str) else dict(kwargs)


def _older_rates(keras: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    said = dict(kwargs)
    if "lr" in said:
        said["learning_rate"] = said.pop("lr")
    decay = said.pop("decay", 0.0)
    if decay:
        rate = said.get("learning_rate", 0.001)
        said["learning_rate"] = keras.optimizers.schedules.InverseTimeDecay(rate, 1, decay)
    return said


def _take_name_first(layer: Any) -> None:
    """Has `add_weight`, which was `add_variable` before, take a name as its first argument."""
    add_weight = layer.add_weight

    @functools.wraps(add_weight)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            named_args = dict(zip(("name", "shape", "dtype", "initializer"), args, strict=False))
            return add_weight(self, **named_args, **kwargs)
        return add_weight(self, *args, **kwargs)

    layer.add_weight = layer.add_variable = named


def _shapes(tensors: Any) -> Any:
    """Returns the shape of a symbolic tensor, or those of several."""
    return [tuple(each.shape) for each in tensors] if isinstance(tensors, (list, tuple)) else tuple(tensors.shape)


def _minimize(self: Any, loss: Callable[[], Any], var_list: Any, tape: Any = None) -> None:
    """Does one step down a loss: a function without arguments, or a scalar that `tape` recorded."""
    variables = list(var_list() if callable(var_list) else var_list)
    if callable(loss):
        with tf.GradientTape() as tape:
            loss = loss()
    self.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


__all__ = ["accept"]
