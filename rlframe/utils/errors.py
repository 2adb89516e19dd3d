"""The exceptions a user of rlframe can meet; each says what was got, what was wanted and what to do.

`ending` ends what was begun, where one is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LOGGER = logging.getLogger("rlframe")


class ConfigError(ValueError):
    """A config is wrong. The message lists every fault that was found, one line each."""


class EnvError(ValueError):
    """An environment, its spaces or what it returned is wrong."""


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, of another algorithm or of other spaces."""


class UnsupportedSpaceException(ValueError):  # noqa: N818 - RLlib's name
    """An observation or action space cannot be handled by the chosen algorithm or model."""


class NonFiniteError(ValueError):
    """NaN or infinity appeared in observations, rewards, losses, gradients or weights."""


class WorkerError(RuntimeError):
    """A rollout worker failed, or could not be started."""


class DataError(ValueError):
    """Experience in a file that cannot be read, or written; names the file and the line."""


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
