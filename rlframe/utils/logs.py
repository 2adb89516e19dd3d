"""What goes to the screen beside results: rlframe's own log, and not that of libraries about themselves."""

from __future__ import annotations

import logging
import sys

_LOGGER = logging.getLogger("rlframe")
#: Beginnings of what Ray Tune tells its own users: which GPU monitor to install, and how to make trials faster.
_NOISE = ("Install gputil", "Trainable.setup took")
_NOISY = ("ray.tune.utils.util", "ray.tune.trainable.trainable")


class _Screen(logging.StreamHandler):  # type: ignore[type-arg]  # Python 3.10's takes none
    """Writes to what standard error is when a line is written: notebooks and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line."""
        self.stream = sys.stderr
        super().emit(record)


_screen = _Screen()
_screen.setFormatter(logging.Formatter("%(asctime)s rlframe %(levelname)s  %(message)s", "%H:%M:%S"))


def set_log_level(level: str | int) -> None:
    """Sets the level of rlframe's log, and shows it from INFO on where the program itself shows no logs.

    Args:
        level: "DEBUG", "INFO", "WARN" or "ERROR", or the number of one.
    """
    _LOGGER.setLevel(level)
    if _LOGGER.level <= logging.INFO and not _LOGGER.hasHandlers():
        _LOGGER.addHandler(_screen)
    elif _LOGGER.level > logging.INFO:
        _LOGGER.removeHandler(_screen)


def silence_tune() -> None:
    """Keeps Ray Tune's advice to its own users off the screen."""
    for name in _NOISY:
        logging.getLogger(name).addFilter(_is_no_noise)  # added once, however often


def _is_no_noise(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_NOISE)
