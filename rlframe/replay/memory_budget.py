"""Whether a replay buffer will fit into memory, asked before it is filled and not when it has filled it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

_WARN_SHARE = 0.6
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

logger = logging.getLogger(__name__)


def memory_bytes() -> int | None:
    """Returns the memory this process may have: the machine's, or its container's if less; None where unknown."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return None
    for path in _CGROUP_LIMITS:
        try:
            limits.append(int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(limits)


def check_fits(capacity: int, bytes_per_transition: int, available_bytes: int | None) -> None:
    """Raises ValueError if a full buffer cannot fit; logs a warning where it will take most of the memory.

    Args:
        capacity: Transitions that the buffer will hold.
        bytes_per_transition: What each takes.
        available_bytes: Memory there is for it, or None if unknown.
    """
    if available_bytes is None:
        return
    full = capacity * bytes_per_transition
    if full > available_bytes:
        raise ValueError(
            f"A replay buffer of capacity {capacity:,} needs {full:,} bytes when it is full "
            f"({bytes_per_transition:,} bytes per transition), but this machine has {available_bytes:,} bytes of "
            f"memory for it; the largest capacity that fits is {available_bytes // max(1, bytes_per_transition):,}"
        )
    if full > _WARN_SHARE * available_bytes:
        logger.warning(
            "A replay buffer of capacity %s will take %.0f %% of the %.1f GiB of memory when it is full "
            "(%s bytes per transition)",
            f"{capacity:,}",
            100 * full / available_bytes,
            available_bytes / 2**30,
            f"{bytes_per_transition:,}",
        )
