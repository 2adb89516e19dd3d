"""What was begun and is not to be: ended where making it fails, since nobody gets it to end it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LOGGER = logging.getLogger("rlframe")


@contextmanager
def ending(end: Callable[[], Any]) -> Iterator[None]:
    """Calls `end` where the block raises, also by Ctrl-C; a failure of `end` itself is logged, and hides nothing.

    An exception that is kept, as a notebook keeps the last one, would keep processes and environments otherwise.
    """
    try:
        yield
    except BaseException:
        try:
            end()
        except Exception as error:
            _LOGGER.warning("what was begun could not be ended: %s: %s", type(error).__name__, error)
        raise
