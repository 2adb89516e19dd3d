"""The CPUs that this process may use, and what is said of threads from outside."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path

_LOGGER = logging.getLogger("rlframe")

#: Variables by which a user says how many threads PyTorch has. Ray sets the first for its workers.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
#: Multiplications of one forward pass from which on a learner step gains by more threads, and acting does.
WORTH_SHARING = 40_000_000


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
