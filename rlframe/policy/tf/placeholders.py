"""TensorFlow 1's placeholders outside of graphs: what is made of them runs when a session is asked to, with its feed.

Mixins of policies update their variables so: `update = variable.assign(placeholder)` in the constructor, later
`get_session().run(update, feed_dict={placeholder: number})`. Operations on a placeholder, and on their results, wait
until then, and run anew each time.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from rlframe.utils.quiet_tf import tf


class Deferred:
    """The result of a function that runs when a session is asked for it.

    Args:
        function: What runs.
        args: Its arguments, in which deferred results may be nested.
        kwargs: Its keyword arguments, likewise.
    """

    __array_priority__ = 100  # so that NumPy leaves `array * placeholder` to it
    __iter__: Any = None  # by items it would never end

    def __init__(self, function: Callable[..., Any], args: Any = (), kwargs: Mapping[str, Any] | None = None) -> None:
        self._function, self._args, self._kwargs = function, args, dict(kwargs or {})

    def __bool__(self) -> bool:
        return _refuse(self)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{_no_value_yet(self)}; asked for its {name}")

    def run(self, made: dict[Deferred, Any]) -> Any:
        """Returns the result.

        Args:
            made: What is fed, and what has run already; the result is added.

        Raises:
            ValueError: If a placeholder that is needed is not fed.
        """
        if self not in made:
            args, kwargs = tf.nest.map_structure(
                lambda leaf: leaf.run(made) if isinstance(leaf, Deferred) else leaf, (self._args, self._kwargs)
            )
            made[self] = self._function(*args, **kwargs)
        return made[self]


def _operator(function: Callable[..., Any], *, swapped: bool = False) -> Callable[..., Deferred]:
    def operation(self: Deferred, *others: Any) -> Deferred:
        if tf.inside_function():
            _refuse(self)
        return Deferred(function, (*others, self) if swapped else (self, *others))

    return operation


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Deferred, f"__{_name}__", _operator(getattr(operator, _name)))
    setattr(Deferred, f"__r{_name}__", _operator(getattr(operator, _name), swapped=True))
for _name in ("neg", "abs", "getitem", "lt", "le", "gt", "ge"):
    setattr(Deferred, f"__{_name}__", _operator(getattr(operator, _name)))


class Placeholder(Deferred):
    """What a session is fed.

    Attributes:
        dtype: Type of its elements.
        shape: Its shape, of which sizes may be open.
        name: Its name, for messages.
    """

    def __init__(self, dtype: Any, shape: Any = None, name: str | None = None) -> None:
        super().__init__(self._not_fed)
        self.dtype, self.shape, self.name = tf.as_dtype(dtype), tf.TensorShape(shape), name or "placeholder"

    def _not_fed(self) -> Any:
        raise ValueError(f"placeholder {self.name!r} got no value; wanted it in the feed_dict of session.run()")

    def fed(self, value: Any) -> Any:
        """Returns what is fed as a tensor.

        Raises:
            ValueError: If its shape is another one.
        """
        array = np.asarray(value, self.dtype.as_numpy_dtype)
        if not self.shape.is_compatible_with(array.shape):
            raise ValueError(f"placeholder {self.name!r}: got a value of shape {array.shape}, wanted {self.shape}")
        return tf.constant(array)


class PlaceholderWithDefault(Placeholder):
    """What a session may be fed, and else has a value of its own: a tensor, or what is made of other placeholders."""

    def __init__(self, value: Any, shape: Any, name: str | None = None) -> None:
        value = value if isinstance(value, Deferred) else tf.convert_to_tensor(value)
        super().__init__(getattr(value, "dtype", tf.float32), shape, name)
        self._function, self._args = tf.identity, (value,)


def accept() -> None:
    """Has `tf1.placeholder` make a `Placeholder` outside of functions and graphs, and operations take it."""
    variables: Any = importlib.import_module("tensorflow.python.ops.resource_variable_ops")
    # `tf.compat.v1` may have been asked for before, and is another module than the one that is imported.
    apis = {id(module): module for module in (importlib.import_module("tensorflow.compat.v1"), tf.compat.v1)}.values()

    class OnDeferred(tf.__internal__.dispatch.GlobalOpDispatcher):  # type: ignore[misc]  # TensorFlow has no types
        """Defers a function of TensorFlow's that is called with what has no value yet."""

        def handle(self, op: Any, args: Any, kwargs: Any) -> Any:
            return Deferred(op, args, kwargs) if _waits(args, kwargs) else self.NOT_SUPPORTED

    OnDeferred().register()
    tf.register_tensor_conversion_function(Deferred, _refuse)
    for api in apis:
        _replace_outside_of_graphs(api, "placeholder", Placeholder)
        _replace_outside_of_graphs(api, "placeholder_with_default", PlaceholderWithDefault)
    for name in ("assign", "assign_add", "assign_sub"):  # of the class: a variable that is made starts TensorFlow
        _defer(variables.ResourceVariable, name)
    for module in (tf, *apis):
        _group_deferred(module)


def _waits(args: Any, kwargs: Any) -> bool:
    """Returns whether there are deferred results in the arguments, outside of functions, where there is no session."""
    try:
        leaves = tf.nest.flatten([args, kwargs])
    except TypeError:  # keys that have no order
        return False
    return any(isinstance(leaf, Deferred) for leaf in leaves) and not tf.inside_function()


def _refuse(value: Deferred, **options: Any) -> NoReturn:
    del options
    raise TypeError(_no_value_yet(value))


def _no_value_yet(value: Deferred) -> str:
    shown = vars(value).get("name", "what was made of a placeholder")
    return (
        f"placeholder: got {shown!r} where a tensor is wanted; it has a value only in "
        "session.run(..., feed_dict={placeholder: value}): read a variable that you assign it to"
    )


def _group_deferred(module: Any) -> None:
    plain = module.group  # None outside of graphs

    @functools.wraps(plain)
    def group(*inputs: Any, **kwargs: Any) -> Any:
        return inputs if _waits(inputs, kwargs) else plain(*inputs, **kwargs)

    module.group = group


def _replace_outside_of_graphs(module: Any, name: str, kind: type[Placeholder]) -> None:
    plain = getattr(module, name)

    @functools.wraps(plain)
    def placeholder(*args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs) if tf.executing_eagerly() else plain(*args, **kwargs)

    setattr(module, name, placeholder)


def _defer(variable: type, name: str) -> None:
    plain = getattr(variable, name)

    @functools.wraps(plain)
    def assign(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, Deferred) for value in (*args, *kwargs.values())) and not tf.inside_function():
            return Deferred(plain, (self, *args), kwargs)
        return plain(self, *args, **kwargs)

    setattr(variable, name, assign)
