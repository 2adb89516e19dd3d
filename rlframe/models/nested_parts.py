"""The parts of nested observations, by their paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def nested_leaves(struct: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields (path of keys, leaf space) of the nested dicts and tuples that `space_struct` gives."""
    if isinstance(struct, dict | tuple):
        for key, child in struct.items() if isinstance(struct, dict) else enumerate(struct):
            yield from nested_leaves(child, (*path, key))
    else:
        yield path, struct


def part_name(path: tuple[Any, ...]) -> str:
    """Returns the name of a leaf's layers; names of torch modules must not contain dots."""
    return "_".join(str(key).replace(".", "_") for key in path)
