"""A Dict space whose keys can be added after it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from rlframe.utils.spaces.old_gym import class_known_to_both, convert_spaces


class FlexDict(spaces.Dict):
    """A `gymnasium.spaces.Dict` to which `space["key"] = subspace` adds."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG004 - those of __init__
        """Makes it a space of the old gym as well, where the program has imported that: its Dict takes no other."""
        return super().__new__(class_known_to_both(cls))

    def __init__(self, spaces: Mapping[str, Any] | None = None, **spaces_kwargs: Any) -> None:
        """Makes a Dict space, empty unless spaces are given by mapping or keyword."""
        super().__init__(convert_spaces({**(spaces or {}), **spaces_kwargs}))

    def assertSpace(self, space: Any) -> None:  # noqa: N802 (RLlib's name)
        """Raises AssertionError unless `space` is one."""
        if not isinstance(space, spaces.Space):
            raise AssertionError(f"Got a {type(space).__name__}; wanted a space of gymnasium.spaces.")

    def __setitem__(self, key: str, space: Any) -> None:
        """Adds or replaces the space of one key."""
        self.spaces[key] = convert_spaces(space)
