"""Batches that are learned from more than once, a few of them in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.execution.plan.item_state import pack_item, unpack_item

if TYPE_CHECKING:
    import queue
    from collections.abc import Mapping

    from rlframe.execution.plan.context import Batch


class MinibatchBuffer:
    """Gives batches of a queue `num_passes` times each, `size` different ones in turn.

    With several slots the first batches are given fewer times, so that the slots do not all run out at once: a learner
    then waits for one batch at a time.

    Args:
        inqueue: Where new batches come from.
        size: Slots.
        timeout: Seconds that `get` waits for a new batch.
        num_passes: How often each batch is given.
        init_num_passes: How often the first one is given, where there are several slots; each later one once more.
    """

    def __init__(
        self, inqueue: queue.Queue[Any], size: int, timeout: float, num_passes: int, init_num_passes: int = 1
    ) -> None:
        if size < 1 or num_passes < 1:
            raise ValueError(f"Got size={size}, num_passes={num_passes}; wanted 1 slot and 1 pass or more")
        self.inqueue = inqueue
        self.size = size
        self.timeout = timeout
        self.max_ttl = num_passes
        self.cur_max_ttl = min(init_num_passes, num_passes) if size > 1 else num_passes
        self.buffers: list[Batch | None] = [None] * size
        self.ttl = [0] * size
        self.idx = 0

    def needs_new(self) -> bool:
        """Returns whether the next `get` takes a batch out of the queue."""
        return self.ttl[self.idx] <= 0

    def get(self) -> tuple[Batch, bool]:
        """Returns a batch, and whether it was given for the last time.

        Raises:
            queue.Empty: If a new one is needed, and none came within `timeout` seconds.
        """
        slot = self.idx
        if self.needs_new():
            self.buffers[slot] = self.inqueue.get(timeout=self.timeout)
            self.ttl[slot] = self.cur_max_ttl
            self.cur_max_ttl = min(self.cur_max_ttl + 1, self.max_ttl)
        batch = self.buffers[slot]
        assert batch is not None
        self.ttl[slot] -= 1
        released = self.ttl[slot] <= 0
        if released:
            self.buffers[slot] = None
        self.idx = (slot + 1) % self.size
        return batch, released

    def get_state(self) -> dict[str, Any]:
        """Returns the batches in the slots and how often each is still to be given."""
        return {
            "buffers": pack_item(self.buffers),
            "ttl": list(self.ttl),
            "idx": self.idx,
            "cur_max_ttl": self.cur_max_ttl,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.buffers = unpack_item(state["buffers"])
        self.ttl = [int(times) for times in state["ttl"]]
        self.idx, self.cur_max_ttl = int(state["idx"]), int(state["cur_max_ttl"])
