"""A space of lists of varying length."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.utils.spaces.old_gym import class_known_to_both, convert_spaces


class Repeated(spaces.Space[Any]):
    """Lists of 0 to `max_len` members of `child_space`.

    A preprocessor lays such a list out as `[length, item 0, item 1, …, zeros]`.

    Attributes:
        child_space: The space of every item.
        max_len: The longest list.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG004 - those of __init__
        """Makes it a space of the old gym as well, where the program has imported that: its Dict takes no other."""
        return super().__new__(class_known_to_both(cls))

    def __init__(self, child_space: Any, max_len: int) -> None:
        """Makes the space of lists of at most `max_len` (>= 0) items."""
        super().__init__()
        self.child_space = convert_spaces(child_space)
        self.max_len = max_len

    @property
    def is_np_flattenable(self) -> bool:
        """False: Gymnasium has no flat form for it (rlframe's preprocessor has)."""
        return False

    def seed(self, seed: Any = None) -> Any:
        """Seeds the choice of lengths and the child space."""
        self.child_space.seed(seed)
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> list[Any]:  # noqa: ARG002 (Gymnasium's signature)
        """Returns a list of random length with random items; masks are not supported and ignored."""
        length = int(self.np_random.integers(0, self.max_len + 1))
        return [self.child_space.sample() for _ in range(length)]

    def contains(self, x: Any) -> bool:
        """Tells whether `x` is a list (or tuple, or array) of at most `max_len` members of the child space."""
        if not isinstance(x, (list, tuple, np.ndarray)) or len(x) > self.max_len:
            return False
        return all(self.child_space.contains(item) for item in x)

    def __eq__(self, other: object) -> bool:
        """Compares child space and length."""
        return isinstance(other, Repeated) and self.max_len == other.max_len and self.child_space == other.child_space

    __hash__ = None  # type: ignore[assignment]  # mutable through its child, like every Gymnasium space

    def __repr__(self) -> str:
        """Shows child space and length."""
        return f"Repeated({self.child_space}, {self.max_len})"
