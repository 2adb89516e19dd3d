"""Merging of nested dicts, and two shorthands for "one or several"."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlframe.utils.errors import ConfigError


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a deep copy of `d1` with `d2` merged over it at every depth; new keys are allowed."""
    merged = copy.deepcopy(dict(d1))
    return deep_update(merged, d2, new_keys_allowed=True)


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Sequence[str] | None = None,
    override_all_if_type_changes: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Merges `new_dict` into `original`, in place, at every depth.

    Args:
        original: The dict that is changed.
        new_dict: What is merged over it.
        new_keys_allowed: Whether keys may appear that `original` lacks, at any depth.
        allow_new_subkey_list: Top-level keys below which new keys are allowed anyway.
        override_all_if_type_changes: Top-level keys whose dict is replaced whole when its `type` entry changes.

    Returns:
        `original`.

    Raises:
        ConfigError: If a key is new and may not be; nothing is changed then.
    """
    free, replaced = set(allow_new_subkey_list or ()), set(override_all_if_type_changes or ())
    if not new_keys_allowed:
        _refuse_new_keys(original, new_dict, free, replaced)
    for key, value in new_dict.items():
        old = original.get(key)
        if not (isinstance(old, dict) and isinstance(value, Mapping)):
            original[key] = value
        elif key in replaced and _changes_type(old, value):
            original[key] = dict(value)
        else:
            deep_update(old, value, new_keys_allowed=True)
    return original


def _changes_type(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "type" in new and new["type"] != old.get("type")


def _refuse_new_keys(
    original: Mapping[str, Any], new: Mapping[str, Any], free: set[str], replaced: set[str], path: str = ""
) -> None:
    for key, value in new.items():
        if key not in original:
            near = difflib.get_close_matches(str(key), [str(known) for known in original], n=1)
            hint = f"did you mean {path}{near[0]!s}?" if near else f"known are {sorted(map(str, original))}"
            raise ConfigError(f"Unknown key {path}{key!s} (value {value!r}): {hint}")
        old = original[key]
        if not (isinstance(old, Mapping) and isinstance(value, Mapping)) or key in free:
            continue
        if not (key in replaced and _changes_type(old, value)):
            _refuse_new_keys(old, value, set(), set(), f"{path}{key}.")


def force_list(elements: Any = None, to_tuple: bool = False) -> Any:
    """Returns a list: of the items of a list or tuple, of nothing for None, of the one element otherwise.

    Args:
        elements: What there is.
        to_tuple: Whether to return a tuple instead.
    """
    items = [] if elements is None else list(elements) if isinstance(elements, (list, tuple)) else [elements]
    return tuple(items) if to_tuple else items


def force_tuple(elements: Any = None) -> tuple[Any, ...]:
    """Returns `force_list` of the elements, as a tuple."""
    items: tuple[Any, ...] = force_list(elements, to_tuple=True)
    return items


def add_mixins(base: type, mixins: Iterable[type] | None, reversed: bool = False) -> type:
    """Returns a class with the mixins before `base`, the last one first; `base` itself if it derives from all.

    Args:
        base: The class.
        mixins: What is added to it.
        reversed: Whether `base` and what was added before come first instead.
    """
    for mixin in new_mixins(base, mixins):
        bases = (base, mixin) if reversed else (mixin, base)
        base = type(base.__name__, bases, {"__module__": base.__module__})
    return base


def new_mixins(base: type, mixins: Iterable[type] | None) -> tuple[type, ...]:
    """Returns the mixins that neither `base` nor another of them derives from yet.

    Who replaces some of a class's mixins names all of them, and Python puts no class before one that derives from it.
    """
    named = tuple(mixins or ())
    return tuple(
        mixin
        for mixin in named
        if not issubclass(base, mixin) and not any(issubclass(other, mixin) for other in named if other is not mixin)
    )
