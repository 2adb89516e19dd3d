"""One process at a time trains in a run's directory."""

from __future__ import annotations

import os
from pathlib import Path

from rlframe.utils.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows: directories are not locked there
    fcntl = None  # type: ignore[assignment]

#: Is there while a process trains, and locked by it.
LOCK_FILE = "run.lock"


class RunLock:
    """Keeps other processes from training in a run directory; the system gives it up when this process ends.

    On Windows it keeps nobody out.

    Args:
        directory: The run directory.

    Raises:
        ConfigError: If another process trains there.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_FILE
        self._descriptor = -1
        safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        while fcntl is not None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | safely, 0o644)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
                os.close(self._descriptor)
                raise ConfigError(
                    f"the run directory {str(directory)!r} is in use: process {owner or 'unknown'} trains there; wait "
                    "until it ends, or train in another directory"
                ) from error
            except OSError:  # a file system without locks: it is as it was before there were any
                break
            if self._is_current():
                break
            os.close(self._descriptor)  # its owner has removed it since: there is a new one, or none
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, str(os.getpid()).encode())

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Gives the directory free. Doing it again does nothing."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1
