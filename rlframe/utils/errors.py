"""The exceptions a user of rlframe can meet; each says what was got, what was wanted and what to do.

`ending` ends what was begun, where one is raised.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_LOGGER = logging.getLogger("rlframe")
#: What NumPy's older random streams had, which gym's environments drew from -> what its generators have.
_OF_GENERATORS = {
    "randint": "integers(low, high)", "random_integers": "integers(low, high, endpoint=True)", "rand": "random(size)",
    "random_sample": "random(size)", "randn": "standard_normal(size)",
}  # fmt: skip


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


def describe_error(error: BaseException) -> str:
    """Returns what code of a program raised: the class and the text, or where it was if there is no text."""
    name, text = type(error).__name__, str(error)
    if not text:
        places = traceback.extract_tb(error.__traceback__)
        where = f", at {places[-1].filename}:{places[-1].lineno}: {places[-1].line}" if places else ""
        return f"{name} without a text{where}"
    newer = _OF_GENERATORS.get(getattr(error, "name", None) or "")
    if isinstance(error, AttributeError) and newer and ".Generator'" in text:
        return f"{name}: {text}; np_random is a generator of NumPy's, as in Gymnasium: call np_random.{newer}"
    return f"{name}: {text}"
