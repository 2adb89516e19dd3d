"""Marks on classes and functions: what is overridden, and what is meant for whom."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F")


def override(cls: type) -> Callable[[F], F]:
    """Marks a method as overriding one of `cls`, and checks that there is one.

    Args:
        cls: The base class.

    Returns:
        A decorator that gives the method back unchanged.

    Raises:
        NameError: When decorating a method whose name `cls` does not have.
    """

    def check(method: F) -> F:
        function: Any = method.fget if isinstance(method, property) else method
        name = getattr(function, "__name__", None)
        # Old gym's environments had `seed`, Gymnasium's have not.
        gone = name == "seed" and cls.__module__.partition(".")[0] in ("gym", "gymnasium")
        if name is not None and not hasattr(cls, name) and not gone:
            raise NameError(f"{name} is marked as overriding a method of {cls.__name__}, which has no {name}.")
        return method

    return check


def _mark(obj: F, kind: str) -> F:
    with contextlib.suppress(AttributeError):  # of a built-in, where the mark is for readers only
        obj._annotated = kind  # type: ignore[attr-defined]  # any class or function takes attributes
    return obj


def PublicAPI(obj: F) -> F:  # noqa: N802 (the name programs import)
    """Marks what users may rely on between releases."""
    return _mark(obj, "PublicAPI")


def DeveloperAPI(obj: F) -> F:  # noqa: N802
    """Marks what authors of algorithms may rely on; it changes more often than the public interface."""
    return _mark(obj, "DeveloperAPI")


def ExperimentalAPI(obj: F) -> F:  # noqa: N802
    """Marks what may change or go at any time."""
    return _mark(obj, "ExperimentalAPI")


def OverrideToImplementCustomLogic(obj: F) -> F:  # noqa: N802
    """Marks a method that subclasses override without calling it."""
    return _mark(obj, "OverrideToImplementCustomLogic")


def OverrideToImplementCustomLogic_CallToSuperRecommended(obj: F) -> F:  # noqa: N802
    """Marks a method that subclasses override and call."""
    return _mark(obj, "OverrideToImplementCustomLogic_CallToSuperRecommended")
