"""What learns from train batches in a thread of its own, as they come out of a queue."""

from __future__ import annotations

import queue
import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.execution.concurrency_ops import Dequeue
from rlframe.execution.learner.inline import BatchLearner, LearnerResult, MinibatchBuffer
from rlframe.execution.plan.context import ACTIVE_CONTEXT, MetricsContext
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.utils.metrics.learner_info import LEARNER_INFO, LEARNER_STATS_KEY
from rlframe.utils.timer import TimerStat
from rlframe.utils.window_stat import WindowStat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# How often a thread that waits for a queue looks whether it is to end, in seconds.
_POLL_S = 0.05
_QUEUE_WINDOW = 50


class PauseEvent:
    """Lets a thread work only while it is open; closing it waits until the work at hand is done."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._open = False
        self._inside = False

    @property
    def is_open(self) -> bool:
        """Whether the thread may work."""
        return self._open

    def open(self) -> None:
        """Lets the thread in."""
        with self._condition:
            self._open = True
            self._condition.notify_all()

    def close(self) -> None:
        """Waits until the thread is outside, and keeps it there."""
        with self._condition:
            self._open = False
            self._condition.wait_for(lambda: not self._inside)

    def enter(self, timeout_s: float) -> bool:
        """Called by the thread: waits until the pause is over; False where it is not within `timeout_s` seconds."""
        with self._condition:
            self._inside = self._condition.wait_for(lambda: self._open, timeout_s)
            return self._inside

    def leave(self) -> None:
        """Called by the thread when its work is done."""
        with self._condition:
            self._inside = False
            self._condition.notify_all()


class LearnerThread(threading.Thread):
    """Learns in a thread, from batches that are put into `inqueue`; tells of each learner step in `outqueue`.

    Both queues are bounded: who samples faster than is learned from waits, and so does a learner that nobody listens
    to. As a context manager it learns only within the context, so that outside of it nobody meets weights that are
    half changed, be it to save, to evaluate or to set them. What is raised in the thread is raised by `check()`.

    Args:
        local_worker: The worker whose policies learn.
        minibatch_buffer_size: Batches that are learned from in turn.
        num_sgd_iter: Learner steps on each batch.
        learner_queue_size: Batches, and results, that may wait.
        learner_queue_timeout: Seconds after which a thread that gets no batch gives up.
        snapshot_every: See `BatchLearner`.
        after_step: See `BatchLearner`; called in the thread.

    Attributes:
        weights_updated: Whether it has learned since a plan of a program's own set this to False.
        learner_info: What the last learner step told, `{policy id: learner info}`.
        num_steps: Learner steps.
    """

    plan_name = "LearnerThread"

    def __init__(  # noqa: PLR0913 - the first five are RLlib's
        self,
        local_worker: Any,
        minibatch_buffer_size: int = 1,
        num_sgd_iter: int = 1,
        learner_queue_size: int = 16,
        learner_queue_timeout: float = 300,
        *,
        snapshot_every: int = 0,
        after_step: Callable[[tuple[int, Any]], Any] | None = None,
    ) -> None:
        super().__init__(name="rlframe-learner", daemon=True)
        self.local_worker = local_worker
        self.learner = BatchLearner(local_worker, snapshot_every, after_step)
        self.inqueue: queue.Queue[Any] = queue.Queue(maxsize=learner_queue_size)
        self.outqueue: queue.Queue[Any] = queue.Queue(maxsize=learner_queue_size)
        self.learner_queue_timeout = learner_queue_timeout
        self.minibatch_buffer = MinibatchBuffer(self._source(), minibatch_buffer_size, _POLL_S, num_sgd_iter)
        self.learner_queue_size = WindowStat("size", _QUEUE_WINDOW)
        self.queue_timer, self.grad_timer = TimerStat(), TimerStat()
        self.load_timer, self.load_wait_timer = TimerStat(), TimerStat()
        self.metrics = MetricsContext()
        self.stopped = self.weights_updated = False
        self.learner_info: dict[str, Any] = {}
        self.num_steps = 0
        self.error: BaseException | None = None
        self._pause = PauseEvent()
        self._global_vars: Mapping[str, Any] | None = None

    @property
    def stats(self) -> dict[str, Any]:
        """What RLlib up to 1.6 kept here: the `learner_stats` of the last learner step, by policy id."""
        return {pid: info.get(LEARNER_STATS_KEY, {}) for pid, info in self.learner_info.items()}

    def plan_args(self) -> str:
        """Returns the capacity, for reports."""
        return f"queue of {self.inqueue.maxsize}"

    def _source(self) -> queue.Queue[Any]:
        """Returns the queue that the learner takes its batches from."""
        return self.inqueue

    # --- for the plan -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread; it learns until it is stopped, or a plan that runs `within` it stands still."""
        super().start()
        self._pause.open()

    def __enter__(self) -> LearnerThread:
        if self.ident is None and not self.stopped:
            self.start()
        self._pause.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self._pause.close()
        self._take_global_vars()

    @property
    def has_learned(self) -> bool:
        """Whether a learner step is done in this process."""
        return self.learner.has_learned

    def results(self) -> LocalIterator[LearnerResult]:
        """Returns the stream of what was learned; it raises what the thread raised."""
        return Dequeue(self.outqueue, check=self.check)

    def check(self) -> bool:
        """Returns whether the thread works.

        Raises:
            Exception: What was raised in the thread, with the traceback it has there.
        """
        if self.error is not None:
            raise self.error
        return self.is_alive()

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tells the policies the count of env steps before the next learner step."""
        self._global_vars = global_vars

    def add_learner_metrics(self, result: dict[str, Any]) -> dict[str, Any]:
        """Adds queue, timers and counters of this thread to a result's `info`, and what it learned where none says."""
        result["info"][LEARNER_INFO] = result["info"].get(LEARNER_INFO) or self.learner_info
        result["info"].update(self.metrics.counters)
        result["info"]["learner_queue"] = self.learner_queue_size.stats()
        result["info"]["timing_breakdown"] = {
            "learner_grad_time_ms": self.grad_timer.mean * 1000,
            "learner_load_time_ms": self.load_timer.mean * 1000,
            "learner_load_wait_time_ms": self.load_wait_timer.mean * 1000,
            "learner_dequeue_time_ms": self.queue_timer.mean * 1000,
        }
        return result

    def stop(self) -> None:
        """Ends the thread after the learner step at hand."""
        self.stopped = True
        if self.ident is not None:
            self.join()

    def close(self) -> None:
        """Called when the plan ends."""
        self.stop()

    def end_with(self, owner: Any) -> None:
        """Ends the thread once an object is gone, which it does not hold itself: programs drop trainers unstopped."""
        weakref.finalize(owner, setattr, self, "stopped", True)

    def get_state(self) -> dict[str, Any]:
        """Returns the thread's counters. Batches that wait are not in it: asynchronous runs do not resume exactly."""
        return {"metrics": self.metrics.get_state(), "learner": self.learner.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.metrics.set_state(state["metrics"])
        self.learner.set_state(state["learner"])

    # --- in the thread ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Learns until it is stopped, or something is raised."""
        ACTIVE_CONTEXT.metrics = self.metrics
        try:
            while not self.stopped:
                self.step()
        except BaseException as error:
            self.error = error

    def step(self) -> None:
        """Waits for a batch, learns from it, and tells of it."""
        started = monotonic()
        taken = self._take()
        if taken is None:
            return
        self.queue_timer.push(monotonic() - started)
        while not self._pause.enter(_POLL_S):
            if self.stopped:
                return
        try:
            self._take_global_vars()
            started = monotonic()
            learned = self._learn(*taken)
            self.grad_timer.push(monotonic() - started)
            self.weights_updated = True
            self.num_steps += 1
        finally:
            self._pause.leave()
        self.learner_queue_size.push(self.inqueue.qsize())
        self._give(learned)

    def _learn(self, taken: Any, last_pass: bool) -> Any:
        """Learns from what the queue gave, and returns what is told of it."""
        learned = self.learner.learn(taken, last_pass=last_pass)
        self.learner_info = learned.infos
        return learned

    def _take(self) -> tuple[Any, bool] | None:
        """Returns the next batch, and whether it comes for the last time; None when the thread is to end."""
        waited = 0.0
        while not self.stopped:
            started = monotonic()
            try:
                return self.minibatch_buffer.get()
            except queue.Empty:
                waited = waited + monotonic() - started if self._pause.is_open else 0.0
            if waited > self.learner_queue_timeout:
                raise TimeoutError(
                    f"the learner got no batch for {waited:.0f} s: are the workers stuck, or is train_batch_size too "
                    "large? Raise learner_queue_timeout if sampling takes that long"
                )
        return None

    def _give(self, learned: Any) -> None:
        while not self.stopped:
            try:
                self.outqueue.put(learned, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    def _take_global_vars(self) -> None:
        """Passes on what `tell` was told."""
        told, self._global_vars = self._global_vars, None
        if told is not None:
            self.local_worker.set_global_vars(told)
