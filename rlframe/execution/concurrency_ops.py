"""Operators that let parts of a plan run side by side."""

from __future__ import annotations

import queue as queues
import threading
from typing import TYPE_CHECKING, Any

from rlframe.execution.plan.context import SharedMetrics, _NextValueNotReady
from rlframe.execution.plan.item_state import close_operator
from rlframe.execution.plan.local_iterator import LocalIterator, as_local_iterator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# How long a queue is waited for before another branch of the plan gets its turn.
QUEUE_WAIT_S = 0.001


def Concurrently(
    ops: Sequence[Any],
    *,
    mode: str = "round_robin",
    output_indexes: Sequence[int] | None = None,
    round_robin_weights: Sequence[float | str] | None = None,
) -> LocalIterator[Any]:
    """Runs several iterators as branches of one plan, which share counters and timers from then on.

    Gives the items of the branches in `output_indexes`; the items of the others are dropped. Touches no counters.

    Args:
        ops: Two iterators or more; plain ones, generators and those of `ray.util.iter` too.
        mode: "round_robin" takes items from each in its turn, and waits for them; "async" passes over those that have
            nothing ready.
        output_indexes: Branches whose items are given on; all when None.
        round_robin_weights: Items per turn of each branch, 1 when None. 0.25 is one item every fourth turn; "*" is all
            that are ready. A turn also ends with a not-ready marker.

    Raises:
        ValueError: If there are fewer than two branches, the mode is unknown, or there are weights in mode "async".
    """
    if len(ops) < 2:
        raise ValueError(f"Got {len(ops)} iterators to run concurrently, wanted 2 or more")
    if mode not in ("round_robin", "async"):
        raise ValueError(f"Got mode={mode!r}, wanted 'round_robin' or 'async'")
    if mode == "async" and round_robin_weights is not None:
        raise ValueError("Got round_robin_weights with mode='async', wanted them with mode='round_robin' only")
    return as_local_iterator(ops[0]).union(
        *ops[1:],
        deterministic=mode == "round_robin",
        round_robin_weights=round_robin_weights,
        output_indexes=output_indexes,
    )


def _check_queue(queue: Any) -> None:
    if not isinstance(queue, queues.Queue):
        raise ValueError(f"Got a queue of type {type(queue).__name__}, wanted a queue.Queue")


class Enqueue:
    """Puts items into a queue, for a thread to take.

    Takes any item; gives it on once it is in the queue. While the queue is full it gives a not-ready marker, so that
    other branches go on, and `for_each()` tries the same item again. Touches no counters.

    Args:
        output_queue: The queue.

    Raises:
        ValueError: If it is not a `queue.Queue`.
    """

    def __init__(self, output_queue: queues.Queue[Any]) -> None:
        _check_queue(output_queue)
        self.queue = output_queue

    def plan_args(self) -> str:
        """Returns the capacity, for reports."""
        return f"queue of {self.queue.maxsize or 'any size'}"

    def __call__(self, item: Any) -> Any:
        """Returns the item, or a not-ready marker while the queue is full."""
        try:
            self.queue.put(item, timeout=QUEUE_WAIT_S)
        except queues.Full:
            return _NextValueNotReady()
        return item


class _Dequeued:
    """Items out of a queue."""

    plan_name = "Dequeue"

    def __init__(self, queue: queues.Queue[Any], check: Callable[[], bool]) -> None:
        self._queue = queue
        self._check = check
        owner = getattr(check, "__self__", None)
        # What fills the queue, where that can be told: a program may start its learner thread itself.
        self._thread = owner if isinstance(owner, threading.Thread) else None

    def plan_args(self) -> str:
        return f"queue of {self._queue.maxsize or 'any size'}"

    def __iter__(self) -> _Dequeued:
        return self

    def __next__(self) -> Any:
        try:
            return self._queue.get(timeout=QUEUE_WAIT_S)
        except queues.Empty:
            if not self._check() and self._queue.empty():  # its last item may have come since
                error = getattr(self._thread, "error", None)
                if isinstance(error, BaseException):
                    raise error from None
                raise RuntimeError(
                    "Got no item from a queue whose check() failed, wanted its filling thread alive; what ended it is "
                    "on stderr, where it raised"
                ) from None
            return _NextValueNotReady()

    def close(self) -> None:
        """Ends the learner thread, which would learn on beside that of the next plan."""
        close_operator(self._thread)


def Dequeue(input_queue: queues.Queue[Any], check: Callable[[], bool] = lambda: True) -> LocalIterator[Any]:
    """Gives the items that a thread puts into a queue, and not-ready markers while it is empty.

    Touches no counters.

    Args:
        input_queue: The queue.
        check: Whether the thread is still alive. When it is not and the queue is empty, a RuntimeError is raised; of a
            learner thread (`check=learner.is_alive`) what it failed with. That ends with the plan, too.

    Raises:
        ValueError: If it is not a `queue.Queue`.
    """
    _check_queue(input_queue)
    return LocalIterator(lambda: _Dequeued(input_queue, check), SharedMetrics(), name="Dequeue")
