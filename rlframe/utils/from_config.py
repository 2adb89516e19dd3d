"""Objects from configs: a name, a class, or a dict of `type` and constructor arguments."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from rlframe.utils.errors import ConfigError
from rlframe.utils.names import Kind, NameNotFoundError, find, spells_path, subclasses_of

T = TypeVar("T")


@overload
def from_config(cls: type[T], config: Any = None, **kwargs: Any) -> T: ...


@overload
def from_config(cls: str | Mapping[str, Any] | None, config: Any = None, **kwargs: Any) -> Any: ...


def from_config(cls: Any, config: Any = None, **kwargs: Any) -> Any:
    """Returns an object of `cls` or of one of its subclasses.

    Args:
        cls: The base class. Short names are looked up in its `__type_registry__`, then in the package that defines it.
            Or, as in RLlib, the dotted path of any class or function, `config` holding its arguments; or a dict with
            such a path under `type` and the arguments beside it, without a `config`; or a function that makes the
            object, or None, where `config` says which.
        config: An object of `cls` (returned as it is), a class or function that makes one, a short name, a dotted path
            (`package.module.Class` or `package.module:Class`) of a subclass, or a dict with one of these under `type`
            and the constructor's arguments beside it (those by place as a list under `_args`). None, or a dict without
            `type`, means `cls` itself.
        **kwargs: Further constructor arguments; they win over those in the dict.

    Returns:
        The object; None for `cls` itself where it is abstract: `from_config(Schedule, None) or ConstantSchedule(1.0)`.

    Raises:
        ConfigError: If the name is unknown, an argument is unknown to the constructor, or something else than a `cls`
            comes out.
    """
    if not isinstance(cls, type):
        return _of_any_class(cls if isinstance(cls, Mapping) else {"type": cls}, config, kwargs)
    if isinstance(config, cls):
        return config
    arguments = dict(config) if isinstance(config, Mapping) else {}
    kind = arguments.pop("type", None) if isinstance(config, Mapping) else config
    if kind is None and inspect.isabstract(cls):
        return None
    maker = cls if kind is None else resolve_type(cls, kind)
    arguments.update(kwargs)
    positional = _positional(arguments)
    refuse_unknown_arguments(maker, arguments)
    made = maker(*positional, **arguments)
    if not isinstance(made, cls):
        raise ConfigError(f"type {kind!r} made a {type(made).__name__}; wanted a {cls.__name__}.")
    return made


def _of_any_class(named: Mapping[str, Any], config: Any, kwargs: Mapping[str, Any]) -> Any:
    """Returns an object of whatever class a dict names under `type`."""
    arguments = {**named, **(config or {}), **kwargs}
    kind = arguments.pop("type", None)
    maker = kind if callable(kind) else find(str(kind), Kind("type", "a class or a function", callable))
    return maker(*_positional(arguments), **arguments)


def _positional(arguments: dict[str, Any]) -> list[Any]:
    """Takes the arguments by place out of a constructor's; RLlib's configs have them under `_args`: a list, or one."""
    by_place = arguments.pop("_args", [])
    return list(by_place) if isinstance(by_place, (list, tuple)) else [by_place]


def resolve_type(cls: type, kind: Any) -> Any:
    """Returns the class or function that `kind` names; see `from_config`.

    Raises:
        ConfigError: If nothing has that name.
    """
    if not isinstance(kind, str):
        if callable(kind):
            return kind
        raise ConfigError(f"type is {kind!r}; wanted a name, a dotted path or a class of {cls.__name__}.")
    found = _by_short_name(cls, kind)
    says = ""
    if found is None and spells_path(kind):
        try:
            return find(kind, subclasses_of(cls))
        except NameNotFoundError as error:
            says = f" ({error})"
    if found is None:
        known = known_types(cls)
        near = difflib.get_close_matches(kind, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)};"
        raise ConfigError(
            f"Unknown {cls.__name__} type {kind!r}{says}: {hint} A class of your own is given itself or by its dotted "
            "path."
        )
    return found


def known_types(cls: type) -> list[str]:
    """Returns the short names that stand for `cls` or a subclass, sorted."""
    package = _package_of(cls)
    names = set(getattr(cls, "__type_registry__", {}))
    for name in getattr(package, "__all__", ()):
        member = getattr(package, name)
        if inspect.isclass(member) and issubclass(member, cls) and member is not cls:
            names.add(name)
    return sorted(names)


def refuse_unknown_arguments(maker: Any, arguments: Mapping[str, Any]) -> None:
    """Compares arguments with what a constructor takes.

    A program's own that does more with its `**kwargs` than to hand them on is left to itself: it may leave out what
    other classes take, `kwargs.pop("epsilon_timesteps", None)`.

    Raises:
        ConfigError: If one is unknown; the nearest known names are in the message.
    """
    accepted = accepted_arguments(maker)
    if accepted is None or (not arguments.keys() <= accepted and _sorts_arguments(maker)):
        return
    for name, value in arguments.items():
        if name not in accepted:
            near = difflib.get_close_matches(name, sorted(accepted), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {sorted(accepted)}."
            raise ConfigError(f"{maker.__name__} has no option {name!r} (value {value!r}): {hint}")


def accepted_arguments(maker: Any) -> set[str] | None:
    """Returns the argument names of a constructor, those that it hands on to its bases included; None if any are."""
    bases = maker.__mro__ if inspect.isclass(maker) else ()
    functions = [base.__dict__["__init__"] for base in bases if "__init__" in base.__dict__] or [maker]
    names: set[str] = set()
    for function in functions:
        if function is object.__init__:
            return names - {"self"}
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # written in C, without a signature
            return None
        names.update(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return names - {"self"}
    return None


def _sorts_arguments(maker: Any) -> bool:
    """Returns whether a constructor of a program's own reads its `**kwargs`, beside calling others with them."""
    own = [base for base in getattr(maker, "__mro__", ()) if not base.__module__.startswith("rlframe.")]
    constructors = [base.__dict__["__init__"] for base in own if inspect.isfunction(base.__dict__.get("__init__"))]
    return any(map(_reads_keywords, constructors))


def _reads_keywords(function: Any) -> bool:
    parameters = inspect.signature(function).parameters.values()
    name = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    except (OSError, SyntaxError):  # there is no source
        return False
    handed_on = {id(node.value) for node in nodes if isinstance(node, ast.keyword) and node.arg is None}
    return any(isinstance(node, ast.Name) and node.id == name and id(node) not in handed_on for node in nodes)


def _package_of(cls: type) -> Any:
    module = importlib.import_module(cls.__module__)
    package = cls.__module__.rpartition(".")[0]
    return module if hasattr(module, "__path__") or not package else importlib.import_module(package)


def _by_short_name(cls: type, name: str) -> Any:
    registry = getattr(cls, "__type_registry__", {})
    if name in registry:
        return registry[name]
    package = _package_of(cls)
    if name not in getattr(package, "__all__", ()) and name != cls.__name__:
        return None
    found = getattr(package, name, None)  # this one alone is imported where the package's names are lazy
    return found if inspect.isclass(found) and issubclass(found, cls) else None
