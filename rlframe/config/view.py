"""Configs as plans, workers and policies read them: dicts whose keys are attributes, too.

Types come from the declaration: what has such a config says `config: PPOConfig`, reads `config.clip_param`, and a
type checker knows the key. For a program it is a dict, as in RLlib 1.x.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

Defaults = Callable[[], Mapping[str, Any]] | str


class ConfigDict(dict[str, Any]):
    """The config of a policy: hooks of a user's may write into it, and what they wrote is what losses read.

    Names that a declaration gives its keys are properties; other keys are found by their own names. A key that it lacks
    has, as an attribute, its declared default: programs also make policies by hand, from the few keys that matter.

    Args:
        values: What the dict holds; not copied below its first level.
        defaults: Of keys that are missing: "module:NAME" of a dict, or a function that returns one.
    """

    __slots__ = ("_defaults",)

    def __init__(self, values: Mapping[str, Any], defaults: Defaults | None = None) -> None:
        super().__init__(values)
        self._defaults = defaults

    def __getattr__(self, name: str) -> Any:
        """Returns the value of a key that is no property, or that is not there.

        Raises:
            AttributeError: If there is no such key, nor a default of it.
        """
        if name.startswith("__"):  # what copy, pickle and others look for
            raise AttributeError(name)
        key = _KEYS.get(name, name)
        if key in self:
            return _read(self, key)
        defaults = {} if self._defaults is None else _found(self._defaults)
        if key not in defaults:
            raise AttributeError(f"the config has no key {key!r}")
        return copy.deepcopy(defaults[key])

    def _with_attributes(self, key: str, value: dict[str, Any]) -> Any:
        """Puts a dict with attributes in place of a plain one that somebody wrote."""
        defaults = self._defaults
        below = None if defaults is None else lambda: _found(defaults).get(key) or {}
        self[key] = made = ConfigDict(value, below)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Returns a plain dict."""
        return {key: copy.deepcopy(value, memo) for key, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self._defaults if isinstance(self._defaults, str) else None)


class ConfigView(ConfigDict):
    """A config that nothing writes to: what plans and workers get, made by a declaration's `view`.

    It has every declared key. What is declared as free-form below it, such as `env_config`, is a plain dict of its own.
    """

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "this config is read-only: who reads it has begun. Change the trainer's in validate_config(config), a "
            "policy's in policy.config, or write into a copy: dict(config), copy.deepcopy(config)"
        )

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def _with_attributes(self, key: str, value: dict[str, Any]) -> Any:  # noqa: ARG002 - only sections have them here
        return value


_KEYS: dict[str, str] = {}


def declare_attribute(name: str, key: str) -> None:
    """Makes a key an attribute of configs, under the name that a declaration gives it.

    Raises:
        TypeError: If the name is a method of dicts, or stands for another key already.
    """
    if hasattr(dict, name) or _KEYS.setdefault(name, key) != key:
        taken = "a method of dicts" if hasattr(dict, name) else f"the key {_KEYS[name]!r}"
        raise TypeError(f"the config key {key!r} cannot be called {name!r}: that is {taken}")

    def read(self: ConfigDict) -> Any:
        try:
            return _read(self, key)
        except KeyError:
            raise AttributeError(name) from None  # so that __getattr__ looks for a default

    setattr(ConfigDict, name, property(read))


def _read(config: ConfigDict, key: str) -> Any:
    value = config[key]
    return config._with_attributes(key, value) if type(value) is dict else value


def _found(defaults: Defaults) -> Mapping[str, Any]:
    if not isinstance(defaults, str):
        return defaults()
    module, _, name = defaults.partition(":")
    found: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return found
