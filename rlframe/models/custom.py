"""Finding and constructing models of the user's, with options passed as their constructors declare it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any, cast

from rlframe.utils.errors import ConfigError
from rlframe.utils.names import NameNotFoundError, find, subclasses_of

_STANDARD = ("obs_space", "action_space", "num_outputs", "model_config", "name")


def accepted_options(maker: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of `options` that a model class (or function) takes as keyword arguments.

    A constructor that only hands everything on, `(*args, **kwargs)`, takes what the next class in line takes. The
    others are not lost: the whole dict is in `model_config["custom_model_config"]`.

    Args:
        maker: Model class, or function that makes a model.
        options: The user's `custom_model_config`.

    Raises:
        ConfigError: If an option bears the name of one of the five standard arguments.
    """
    clash = [name for name in _STANDARD if name in options]
    if clash:
        raise ConfigError(
            f"model.custom_model_config has the reserved key(s) {clash}; give these options another name."
        )
    names: set[str] = set()
    for function in _constructors(maker):
        parameters = inspect.signature(function).parameters.values()
        kinds = {parameter.kind for parameter in parameters}
        names.update(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            return dict(options)  # names its arguments and wants all others
    return {key: value for key, value in options.items() if key in names}


def _constructors(maker: Callable[..., Any]) -> list[Any]:
    """Returns the `__init__` functions along the inheritance line; of a function, itself."""
    if not isinstance(maker, type):
        return [maker]
    return [vars(base)["__init__"] for base in maker.__mro__ if base is not object and "__init__" in vars(base)]


def refuse_unknown_options(model_class: type, options: dict[str, Any], model_config: dict[str, Any]) -> None:
    """Raises TypeError for keywords that are no entries of `custom_model_config`."""
    unknown = options.keys() - (model_config.get("custom_model_config") or {}).keys()
    if unknown:
        raise TypeError(
            f"{model_class.__name__} got the unknown keyword argument(s) {sorted(unknown)}; options of a custom model "
            f"belong into model['custom_model_config']."
        )


def resolve_class(kind: str, given: Any, registry: Mapping[str, Any], base: type) -> Any:
    """Returns the class that a config means.

    Args:
        kind: What it is, for messages: "model", "action_dist" or "preprocessor".
        given: A class (or other callable), a registered name, or a dotted path "package.module.Class".
        registry: Registered classes by name.
        base: What the class at a dotted path must derive from.

    Raises:
        ConfigError: If a name is neither registered nor the path of such a class.
    """
    if not isinstance(given, str):
        return given
    if given in registry:
        return registry[given]
    if "." in given or ":" in given:
        try:
            return find(given, subclasses_of(base, f"custom {kind}"))
        except NameNotFoundError as error:
            raise ConfigError(
                f"model.custom_{kind}={given!r} is not registered, and importing it failed: {error}"
            ) from error
    raise ConfigError(
        f"model.custom_{kind}={given!r} is not registered; known are {sorted(registry)}. Call "
        f"ModelCatalog.register_custom_{kind}({given!r}, YourClass) before the trainer is made."
    )


def with_interface(model_class: type, interface: type | None, options: Mapping[str, Any]) -> type:
    """Returns a class that is `interface` on top of `model_class`, with the user's options bound to the model.

    The interface's constructor calls its parent's with the five standard arguments only; the options reach the model
    all the same.

    Args:
        model_class: The model.
        interface: What an algorithm adds to it; None, or a base that the model has already, changes nothing.
        options: Keyword arguments for the model's constructor.
    """
    if interface is None or issubclass(model_class, interface):
        return model_class

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        super(cast(Any, configured), self).__init__(*args, **{**options, **kwargs})

    configured = type(model_class.__name__, (model_class,), {"__init__": construct, "__module__": __name__})
    base = configured if options else model_class
    name = f"{model_class.__name__}_as_{interface.__name__}"
    gives_way = getattr(getattr(interface, "forward", None), "gives_way", False)
    behind = {"forward": model_class.forward} if gives_way else {}  # type: ignore[attr-defined]  # models have it
    return type(name, (*_in_front(interface, base), base), {"__module__": __name__, **behind})


def _in_front(interface: type, base: type) -> tuple[type, ...]:
    """Returns what a class derives from before `base`: the interface.

    Where both inherit the same classes in another order, as with `class MyModel(nn.Module, TorchModelV2)`, it is what
    the interface adds to these, as Python allows no such class of the two.
    """
    shared = [cls for cls in interface.__mro__ if cls in base.__mro__]
    if shared == [cls for cls in base.__mro__ if cls in shared]:
        return (interface,)
    added = tuple(cls for cls in interface.__bases__ if cls not in shared)
    own = {key: value for key, value in vars(interface).items() if key not in ("__dict__", "__weakref__")}
    made = type(interface.__name__, added, own)
    for key, value in own.items():
        if isinstance(value, FunctionType) and "__class__" in value.__code__.co_freevars:
            setattr(made, key, _of_class(value, made))
    return (made,)


def _of_class(function: FunctionType, cls: type) -> FunctionType:
    """Returns a method for which `super()` stands for what is behind another class than it was written in."""
    named = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    cells = tuple(CellType(cls) if name == "__class__" else cell for name, cell in named)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    return made
