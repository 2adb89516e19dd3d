"""Nested inputs beside each other, whatever holds the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gymnasium import spaces

from rlframe.utils.spaces.old_gym import converted


def flat_leaves(value: Any, space: Any, flatten: Callable[[Any, Any], Any]) -> Iterator[Any]:
    """Yields what `flatten(leaf, space)` makes of each leaf; `space` is None where it is not one to be one-hot coded.

    Args:
        value: A leaf, or a dict or tuple of them; dicts count in the order of their sorted keys.
        space: The leaves' spaces in the same structure; None where nothing is coded.
        flatten: Makes a leaf flat.
    """
    space = converted(space)
    inner = getattr(space, "spaces", space)
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from flat_leaves(value[key], None if inner is None else inner[key], flatten)
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            yield from flat_leaves(part, None if inner is None else inner[index], flatten)
    else:
        yield flatten(value, space if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) else None)
