"""Columns whose value is a dict or tuple of arrays (Dict and Tuple observation spaces): walking and mapping them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Column = Any
"""An array (NumPy, or anything that slices and has `shape`), or a dict, tuple or list of such."""


def map_nested(fn: Callable[..., Any], *values: Column) -> Column:
    """Applies `fn` leaf by leaf to one value or to several of the same structure.

    Args:
        fn: Takes as many leaves as there are values.
        *values: Structures of dicts and tuples; the first decides the structure. Lists are leaves.

    Returns:
        A structure like the first value's, holding what `fn` returned.
    """
    first = values[0]
    if isinstance(first, np.ndarray):
        return fn(*values)
    if isinstance(first, dict):
        return {key: map_nested(fn, *(value[key] for value in values)) for key in first}
    if isinstance(first, tuple):
        parts = [map_nested(fn, *part) for part in zip(*values, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return fn(*values)


def leaves(value: Column) -> Iterator[Any]:
    """Yields the arrays of a possibly nested column, in order."""
    if isinstance(value, dict):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def first_leaf(value: Column) -> Any:
    """Returns the first array of a possibly nested column.

    Raises:
        ValueError: If the structure is empty.
    """
    for leaf in leaves(value):
        return leaf
    raise ValueError("An empty dict or tuple has no rows: give every column at least one array.")


def concat_leaves(*values: Any, axis: int = 0) -> np.ndarray[Any, Any]:
    """Returns the leaves joined along `axis`, as one new array."""
    return np.concatenate(values, axis=axis)
