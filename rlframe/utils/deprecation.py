"""Old names: still understood, and answered once with the new one."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar

DEPRECATED_VALUE = -1
"""Default of a config key that is deprecated: a different value shows that the user set it."""

_logger = logging.getLogger("rlframe")
_said: set[str] = set()
T = TypeVar("T")


def deprecation_warning(
    old: str,
    new: str | None = None,
    error: bool | type[Exception] | Exception | None = None,
    *,
    help: str | None = None,
) -> None:
    """Says that `old` is deprecated: once per process in the log, or as an exception.

    Args:
        old: The deprecated name.
        new: What to use instead.
        error: True raises `ValueError`; an exception class or instance raises that; otherwise a warning is logged.
        help: What to do, where there is no one new name.

    Raises:
        ValueError: If `error` is True.
    """
    text = f"`{old}` is deprecated" + (f"; use `{new}` instead." if new else f". {help}" if help else ".")
    if error is True:
        raise ValueError(text)
    if isinstance(error, type):
        raise error(text)
    if isinstance(error, Exception):
        raise error
    if text not in _said:
        _said.add(text)
        _logger.warning(text)


def Deprecated(  # noqa: N802 (the name programs import)
    old: str | None = None,
    *,
    new: str | None = None,
    help: str | None = None,
    error: bool | type[Exception] = False,
) -> Callable[[T], T]:
    """Returns a decorator that says `deprecation_warning` when the class is made, or the function called.

    Args:
        old: The deprecated name; None takes that of what is decorated.
        new: What to use instead.
        help: As in `deprecation_warning`.
        error: As in `deprecation_warning`.
    """

    def decorate(obj: T) -> T:
        subject: Any = obj
        name = old or subject.__qualname__
        target = subject.__init__ if inspect.isclass(subject) else subject

        @functools.wraps(target)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            deprecation_warning(name, new, error, help=help)
            return target(*args, **kwargs)

        if not inspect.isclass(subject):
            return wrapped  # type: ignore[return-value]  # the same signature, by functools.wraps
        subject.__init__ = wrapped  # type: ignore[method-assign]  # that is what the decorator is for
        return obj

    return decorate
