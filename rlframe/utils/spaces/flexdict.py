"""A Dict space whose keys can be added after it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces


class FlexDict(spaces.Dict):
    """A `gymnasium.spaces.Dict` to which `space["key"] = subspace` adds."""

    def __init__(self, spaces: Mapping[str, Any] | None = None, **spaces_kwargs: Any) -> None:
        """Makes a Dict space, empty unless spaces are given by mapping or keyword."""
        super().__init__({**(spaces or {}), **spaces_kwargs})

    def __setitem__(self, key: str, space: spaces.Space[Any]) -> None:
        """Adds or replaces the space of one key."""
        self.spaces[key] = space
