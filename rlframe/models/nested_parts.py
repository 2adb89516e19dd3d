"""The parts of nested observations, by their paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlframe.models.preprocessors import get_preprocessor


def nested_leaves(struct: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields (path of keys, leaf space) of the nested dicts and tuples that `space_struct` gives."""
    if isinstance(struct, dict | tuple):
        for key, child in struct.items() if isinstance(struct, dict) else enumerate(struct):
            yield from nested_leaves(child, (*path, key))
    else:
        yield path, struct


def columns_of_part(space: Any, key: str) -> slice:
    """Returns which columns of a Dict's flat observations are one of its parts."""
    preprocessor: Any = get_preprocessor(space)(space)
    sizes = dict(zip(preprocessor.keys, [child.size for child in preprocessor.preprocessors], strict=True))
    start = sum(sizes[before] for before in preprocessor.keys[: preprocessor.keys.index(key)])
    return slice(start, start + sizes[key])


def part_name(path: tuple[Any, ...]) -> str:
    """Returns the name of a leaf's layers; names of torch modules must not contain dots."""
    return "_".join(str(key).replace(".", "_") for key in path)
