"""Operations on plain nested dicts: copying, overlaying, reading by dotted key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TYPED_SECTIONS = ("exploration_config", "replay_buffer_config")
"""Sections whose other keys belong to their `type`: another type drops the keys of the old one."""
_PLAIN = frozenset({type(None), bool, int, float, str})  # most of a config: asked first


def copy_containers(value: Any) -> Any:
    """Returns `value` with its dicts, lists and sets copied at every depth; anything else is shared.

    Leaves are not copied because a config may hold environments, spaces or handles that cannot be.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, dict):
        return {key: copy_containers(item) for key, item in value.items()}
    if kind in (list, set):
        return kind(copy_containers(item) for item in value)
    if kind is tuple:
        return tuple(copy_containers(item) for item in value)
    return value


def overlay(base: Mapping[Any, Any], over: Mapping[Any, Any], typed: Iterable[str] = TYPED_SECTIONS) -> dict[Any, Any]:
    """Returns a new dict: `base` with `over` laid on it, dict by dict.

    Args:
        base: The values below. Not changed.
        over: The values on top. Not changed. A dict is merged into a dict, anything else replaces.
        typed: Top-level keys whose whole dict is replaced when `over` names another `type`.
    """
    merged = {key: copy_containers(item) for key, item in base.items()}
    for key, item in over.items():
        below = merged.get(key)
        if not isinstance(item, dict) or not isinstance(below, dict) or (key in typed and _type_changes(below, item)):
            merged[key] = copy_containers(item)
        else:
            merged[key] = overlay(below, item, typed=())
    return merged


def lookup(values: Mapping[Any, Any], dotted: str, default: Any = None) -> Any:
    """Returns the value at a dotted key, or `default` where a part of it is missing."""
    if "." not in dotted:
        return values.get(dotted, default) if isinstance(values, Mapping) else default
    found: Any = values
    for part in dotted.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return default
        found = found[part]
    return found


def assign(values: dict[Any, Any], dotted: str, value: Any) -> None:
    """Writes `value` at a dotted key and makes the dicts in between."""
    *parents, last = dotted.split(".")
    for part in parents:
        if not isinstance(values.get(part), dict):
            values[part] = {}
        values = values[part]
    values[last] = value


def restrict(values: Mapping[Any, Any], like: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns the part of `values` that has the keys of `like`, at every depth."""
    return {
        key: restrict(values[key], item) if isinstance(item, dict) and isinstance(values[key], dict) else values[key]
        for key, item in like.items()
    }


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, also where `==` gives an array or raises."""
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # arrays, tensors and users' classes compare as they like
        return False


def type_name(kind: Any) -> Any:
    """Returns the short name of what `type` holds: of rlframe's own classes and paths the bare class name."""
    if isinstance(kind, type):
        return kind.__name__ if kind.__module__.split(".")[0] == "rlframe" else kind
    if isinstance(kind, str) and kind.startswith(("rlframe.", "ray.rllib.")):
        return kind.rsplit(".", 1)[1]
    return kind


def _type_changes(below: Mapping[Any, Any], over: Mapping[Any, Any]) -> bool:
    """Whether `over` names a `type`, and another one than `below`."""
    return "type" in over and not same(type_name(over["type"]), type_name(below.get("type")))
