"""Variables and layers that models and losses make by name, as in TensorFlow 1: they are the same each time.

`tf1.get_variable` and `tf1.layers`, in `tf1.variable_scope`s, found what they had made before in the graph. There is
none any more: here the model keeps what its forward pass makes, and the policy what its loss does.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

from rlframe.utils.quiet_tf import tf

#: Is told of a model and the variables that it computed with and does not know of.
Taker: TypeAlias = Callable[[Any, list[Any]], None]


class _Active(threading.local):
    """What goes on in this thread."""

    def __init__(self) -> None:
        #: What the models whose forward passes are under way have made by name; the innermost is last.
        self.models: list[NamedVariables] = []
        self.taker: Taker | None = None
        #: Losses under way, one within another.
        self.losses = 0


_active = _Active()


@contextlib.contextmanager
def telling(taker: Taker) -> Iterator[None]:
    """A context in which `taker` is told of trainable variables that models compute with and do not know of."""
    before, _active.taker = _active.taker, taker
    try:
        yield
    finally:
        _active.taker = before


@contextlib.contextmanager
def watched(model: Any) -> Iterator[None]:
    """A context in which a model computes; see `telling`."""
    if _active.taker is None:
        yield
        return
    with tf.GradientTape() as tape:
        yield
    known = {variable.ref() for variable in model.trainable_variables()}
    unknown = [variable for variable in tape.watched_variables() if variable.ref() not in known]
    if unknown:
        _active.taker(model, unknown)


class ForwardPass:
    """The context of a model's forward pass, during which names are looked up in what that model has made.

    Args:
        model: A `TFModelV2`.
    """

    def __init__(self, model: Any) -> None:
        self._made: NamedVariables = model.variables_by_name()
        self._watched = watched(model)

    def __enter__(self) -> None:
        self._watched.__enter__()
        self._made.count_anew()
        _active.models.append(self._made)

    def __exit__(self, *exc: Any) -> None:
        _active.models.pop()
        self._watched.__exit__(*exc)


@contextlib.contextmanager
def keeping(made: NamedVariables) -> Iterator[None]:
    """A context in which names are looked up in `made`: that of a policy's loss, which is traced more than once."""
    made.count_anew()
    _active.models.append(made)
    _active.losses += 1
    try:
        yield
    finally:
        _active.models.pop()
        _active.losses -= 1


def in_loss() -> bool:
    """Returns whether a policy's loss is computed, or traced, in this thread."""
    return _active.losses > 0


class NamedVariables:
    """What one model, or the loss of one policy, has made by name."""

    def __init__(self) -> None:
        self._variables: dict[str, Any] = {}
        self._layers: dict[str, Any] = {}
        self._unnamed: collections.Counter[str] = collections.Counter()

    def count_anew(self) -> None:
        """Called where a forward pass begins: what has no name is counted in each."""
        self._unnamed.clear()

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yields (name, variable), of layers "<layer's name>/<variable's name>"."""
        yield from self._variables.items()
        for name, layer in self._layers.items():
            yield from ((f"{name}/{weight.name}", weight) for weight in layer.weights)

    def variable(self, name: str, make: Callable[[], Any]) -> Any:
        """Returns the variable of this name in the scope that is open, made at the first time."""
        name = _in_scope(name)
        if name not in self._variables:
            with tf.init_scope():
                self._variables[name] = make()
        return self._variables[name]

    def layer(self, kind: str, name: str | None, make: Callable[[], Any]) -> Any:
        """Returns the layer of this name, or the next one of its kind, in the scope that is open; as `variable`."""
        if name is None:
            count = self._unnamed[_in_scope(kind)]
            self._unnamed[_in_scope(kind)] += 1
            name = f"{kind}_{count}" if count else kind
        name = _in_scope(name)
        if name not in self._layers:
            self._layers[name] = make()
        return self._layers[name]


_NOWHERE = (
    "tf.compat.v1.{} was called outside of a model's forward() and a policy's loss, where nothing keeps what it makes; "
    "make layers and variables there, or in the constructor"
)


def _in_scope(name: str) -> str:
    scope = tf.compat.v1.get_variable_scope().name
    return f"{scope}/{name}" if scope else name


def accept(keras: Any) -> None:
    """Has `tf1.get_variable` look into the model whose forward pass is under way, and gives `tf1.layers` functions."""
    # Importing it puts another module into the place of `tf.compat.v1`: so it is imported now.
    tf1: Any = importlib.import_module("tensorflow.compat.v1")
    plain = tf1.get_variable

    @functools.wraps(plain)
    def get_variable(name: str, *args: Any, **kwargs: Any) -> Any:
        if not _active.models:
            if tf.inside_function():
                raise RuntimeError(_NOWHERE.format("get_variable"))
            return plain(name, *args, **kwargs)
        return _active.models[-1].variable(name, lambda: plain(name, *args, **kwargs))

    tf1.get_variable = get_variable
    tf1.layers = _layers(keras)


#: Functions of `tf.compat.v1.layers`, and Keras' layers that they are; arguments have the same names and defaults.
_FUNCTIONS = {
    "dense": "Dense",
    "conv1d": "Conv1D",
    "conv2d": "Conv2D",
    "flatten": "Flatten",
    "dropout": "Dropout",
    "batch_normalization": "BatchNormalization",
    "max_pooling1d": "MaxPooling1D",
    "max_pooling2d": "MaxPooling2D",
    "average_pooling2d": "AveragePooling2D",
}

_TOLD_OF_TRAINING = ("dropout", "batch_normalization")


def _layers(keras: Any) -> Any:
    """Returns what stands for the module `tf.compat.v1.layers`: its functions, and Keras' layers under its classes."""
    found = {kind: getattr(keras.layers, kind) for kind in _FUNCTIONS.values()}
    made = {name: functools.partial(_call_layer, name, found[kind]) for name, kind in _FUNCTIONS.items()}
    return SimpleNamespace(**found, **made)


def _call_layer(
    kind: str, layer: Any, inputs: Any, *args: Any, name: str | None = None, reuse: Any = None, **kwargs: Any
) -> Any:
    """Returns what the layer of this name makes of `inputs`; `reuse` is always what TensorFlow calls AUTO_REUSE."""
    del reuse
    told = {"training": kwargs.pop("training", False)} if kind in _TOLD_OF_TRAINING else {}
    if not _active.models:
        raise RuntimeError(_NOWHERE.format(f"layers.{kind}"))
    return _active.models[-1].layer(kind, name, lambda: layer(*args, **kwargs))(inputs, **told)


__all__ = ["ForwardPass", "NamedVariables", "accept", "in_loss", "telling", "watched"]
