"""Trainer classes by their algorithm's name: a checkpoint has the name, and what stands above has the classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_find: Callable[[str], Any] | None = None


def connect(find: Callable[[str], Any]) -> None:
    """Takes what finds built-in algorithms.

    Args:
        find: `fn(name)` that returns a trainer class, None for a name that is no built-in algorithm's.
    """
    global _find
    _find = find


def find(name: str) -> Any:
    """Returns the trainer class of a built-in algorithm, None if there is none of this name."""
    return None if _find is None else _find(name)


__all__ = ["connect", "find"]
