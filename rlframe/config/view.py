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
_MISSING = object()


class ConfigDict(dict[str, Any]):
    """The config of a policy: hooks of a user's may write into it, and what they wrote is what losses read.

    A key that it lacks has, as an attribute, its declared default: programs also make policies by hand, from the few
    keys that matter to them.

    Args:
        values: What the dict holds; not copied below its first level.
        defaults: Of keys that are missing: "module:NAME" of a dict, or a function that returns one.
    """

    __slots__ = ("_defaults",)

    def __init__(self, values: Mapping[str, Any], defaults: Defaults | None = None) -> None:
        super().__init__(values)
        self._defaults = defaults

    def __getattr__(self, name: str) -> Any:
        """Returns the value of a key: of "lambda" as `lambda_`, of "_fake_gpus" as `fake_gpus`.

        Raises:
            AttributeError: If there is no such key, nor a default of it.
        """
        if name.startswith("__"):  # what copy, pickle and others look for
            raise AttributeError(name)
        for key in (name, f"_{name}", name[:-1]):
            value = self.get(key, _MISSING)
            if value is not _MISSING:
                return self._with_attributes(key, value) if type(value) is dict else value
        return self._default(name)

    def _with_attributes(self, key: str, value: dict[str, Any]) -> Any:
        """Puts a dict with attributes in place of a plain one that somebody wrote."""
        defaults = self._defaults
        below = None if defaults is None else lambda: _found(defaults).get(key) or {}
        self[key] = made = ConfigDict(value, below)
        return made

    def _default(self, name: str) -> Any:
        defaults = {} if self._defaults is None else _found(self._defaults)
        for key in (name, f"_{name}", name[:-1]):
            if key in defaults:
                return copy.deepcopy(defaults[key])
        raise AttributeError(f"the config has no key {name!r}")

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


def _found(defaults: Defaults) -> Mapping[str, Any]:
    if not isinstance(defaults, str):
        return defaults()
    module, _, name = defaults.partition(":")
    found: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return found
