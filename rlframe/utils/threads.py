"""The CPUs that this process may use, and threads that do not burn the time of those they wait for.

Threads of one operation meet at its end. Those that come first spin: GNU OpenMP, which PyTorch is built with, for about
a millisecond, and OpenBLAS, which NumPy is, for longer. Where a thread has to share its CPU, the others spin while it
is off it, again at each small operation: a learner with two threads beside one busy CPU was 10 to 100 times slower than
with one. So spinning is kept short (`rlframe.utils.spinning`), workers sample in one thread (`blas_in_one_thread`), and
learners have as many threads as their work is worth (`rlframe.policy.torch.devices`).
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LOGGER = logging.getLogger("rlframe")

#: Variables by which a user says how many threads PyTorch has. Ray sets the first for its workers.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: Multiplications of one forward pass from which on a learner step gains by more threads, and acting does.
WORTH_SHARING = 40_000_000
_BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def usable_cpus() -> int:
    """Returns how many CPUs this process may keep busy: those of its affinity, at most its cgroups' quota."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cpus, *(int(quota) for quota in _quotas())]))


def capped(asked: int) -> int:
    """Returns `learner_threads` as this process can have them; a warning says where it has fewer CPUs."""
    usable = usable_cpus()
    if asked > usable:
        _LOGGER.warning("learner_threads: got %d, but this process may use %d CPU(s): takes %d", asked, usable, usable)
    return min(asked, usable)


@functools.cache
def default_threads() -> tuple[int, int]:
    """Returns what a library that nobody told takes: a thread for each CPU of the affinity, or for each core of it."""
    if not hasattr(os, "sched_getaffinity"):
        return (os.cpu_count() or 1,) * 2
    cpus = os.sched_getaffinity(0)
    topology = Path("/sys/devices/system/cpu")
    try:
        cores = {(topology / f"cpu{cpu}/topology/thread_siblings_list").read_text() for cpu in cpus}
    except OSError:
        return len(cpus), len(cpus)
    return len(cpus), len(cores)


def _quotas(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[float]:
    """Yields the limits, in CPUs, of the cgroups that this process is in, from its own to the root's."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "cpu", "cpu,cpuacct", "cpuacct,cpu"):
            continue
        folder = root / controllers / path.lstrip("/")
        # A container sees its own group as the root of the tree, or by a path that is not there.
        for place in (folder, *folder.parents):
            if place == root.parent:
                break
            yield from _quota(place)


def _quota(group: Path) -> Iterator[float]:
    try:
        if (group / "cpu.max").exists():  # version 2: "quota period" in microseconds, or "max period"
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    except OSError:
        return
    if quota.strip() not in ("max", "-1"):
        yield float(quota) / float(period)


class _OneThread:
    """Keeps NumPy's matrix products in one thread while anybody is inside; what was set before is back behind that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1 and not any(name in os.environ for name in _BLAS_VARIABLES):
                libraries = _blas_libraries()
                self._before = [library.get_num_threads() for library in libraries]
                for library in libraries:
                    library.set_num_threads(1)

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._before:
                for library, threads in zip(_blas_libraries(), self._before, strict=True):
                    library.set_num_threads(threads)
                self._before = []


_one_thread = _OneThread()


def blas_in_one_thread() -> _OneThread:
    """Returns a context that keeps NumPy's products in one thread, unless the environment says how many they have.

    The products that policies act with gain a third by a second thread at most, and lose a hundredfold where it has to
    share its CPU; learner steps multiply in NumPy where one thread is enough for them. Remote workers have one thread
    anyway: Ray says so. The context may be entered in several threads, and within itself.
    """
    return _one_thread


@functools.cache
def _blas_libraries() -> list[Any]:
    """Returns the controllers of NumPy's BLAS; looked for once."""
    import numpy as np  # noqa: F401 - the library that is looked for
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
