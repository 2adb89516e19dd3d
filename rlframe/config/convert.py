"""Values as users write them, made plain: NumPy scalars, 1e4 for a count, a tuple for a list, numbers in text."""

from __future__ import annotations

import collections.abc
import math
import types
import typing
from typing import Any, Union, get_args, get_origin

from rlframe.utils.errors import ConfigError

#: The largest integer that arrays and counters hold.
LARGEST_COUNT = 2**63 - 1

_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def kinds_of(annotation: Any) -> tuple[Any, ...]:
    """Returns the members of a union at every depth, or the annotation alone. None stands as NoneType."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(kind for member in get_args(annotation) for kind in kinds_of(member))
    if get_origin(annotation) is typing.Annotated:
        return kinds_of(get_args(annotation)[0])
    return (annotation,)


def convert(value: Any, annotation: Any) -> Any:
    """Returns `value` in the form its declared type has, where nothing is lost by it; else unchanged.

    Scalars of NumPy become Python's, an integral float a declared int, an int a declared float; a tuple, an array or
    another sequence a declared list, another mapping a declared dict, as config libraries have them; 0, 1, "true",
    "false" and None become declared bools. Text is never read as a number and a bool never as a count.
    """
    if value is None and kinds_of(annotation) == (bool,):
        return False  # RLlib asked whether the value is true
    if value is None or value is True or value is False:
        return value
    value = plain_scalar(value)
    kinds = kinds_of(annotation)
    if bool in kinds and not {int, float, str} & set(kinds) and type(value) in (int, str):
        return _BOOLS.get(str(value).lower(), value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _convert_number(value, kinds)
    if isinstance(value, collections.abc.Mapping) and dict in {get_origin(kind) or kind for kind in kinds}:
        return _convert_dict(value if isinstance(value, dict) else dict(value), kinds)
    sequence = isinstance(value, collections.abc.Sequence) and not isinstance(value, str | bytes)
    if sequence or _is_array(value):
        return _convert_sequence(value, kinds)
    return value


def plain_scalar(value: Any) -> Any:
    """Returns the Python scalar of a zero-dimensional array or NumPy scalar, and anything else unchanged."""
    if getattr(value, "dtype", None) is not None and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def parse_number(text: str) -> int | float:
    """Returns the number that `text` spells: for command lines and YAML, which reads 1e-4 as text.

    Raises:
        ConfigError: If the text is no finite number.
    """
    for kind in (int, float):
        try:
            number = kind(text.strip())
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    raise ConfigError(f"got {text!r}, wanted a finite number such as 4000, 0.5 or 1e-4")


def spells_number(value: Any) -> bool:
    """Whether `value` is text that `parse_number` reads."""
    try:
        return isinstance(value, str) and parse_number(value) is not None
    except ConfigError:
        return False


def _convert_number(value: float, kinds: tuple[Any, ...]) -> int | float | None:
    """Returns a count for an integral float and a float for an int, where only that kind is declared.

    Infinity is None where a count or None is declared: no limit, as RLlib took an infinite `horizon`.
    """
    if value == math.inf and {int, type(None)} <= set(kinds) and float not in kinds:
        return None
    if isinstance(value, float) and int in kinds and float not in kinds and value.is_integer():
        return int(value) if abs(value) <= LARGEST_COUNT else value
    if isinstance(value, int) and float in kinds and int not in kinds and abs(value) < 2**1023:
        return float(value)
    return value


def _convert_dict(value: dict[Any, Any], kinds: tuple[Any, ...]) -> dict[Any, Any]:
    """Returns the dict with its values converted, where a dict of one kind of value is declared."""
    for kind in kinds:
        if get_origin(kind) is dict and get_args(kind)[1] is not Any:
            return {key: convert(item, get_args(kind)[1]) for key, item in value.items()}
    return value


def _convert_sequence(value: Any, kinds: tuple[Any, ...]) -> Any:
    """Returns a list with its items converted, where a list or sequence is declared."""
    for kind in kinds:
        if get_origin(kind) in (list, collections.abc.Sequence):
            items = value.tolist() if _is_array(value) else value
            return [convert(item, get_args(kind)[0]) for item in items]
    return value


def _is_array(value: Any) -> bool:
    """Whether `value` is an array or tensor with at least one dimension."""
    return bool(getattr(value, "shape", ())) and hasattr(value, "dtype") and hasattr(value, "tolist")
