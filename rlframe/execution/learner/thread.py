"""Learners: what takes train batches out of a queue and learns from them, in a thread or in the caller's."""

from __future__ import annotations

import queue
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from rlframe.execution.concurrency_ops import Dequeue
from rlframe.execution.learner.minibatch_buffer import MinibatchBuffer
from rlframe.execution.learner_infos import merge_learner_infos
from rlframe.execution.plan.context import ACTIVE_CONTEXT, MetricsContext, SharedMetrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.plan.nodes import operator_state, restore_operator
from rlframe.execution.rollout_ops import agent_steps
from rlframe.execution.train_ops import policy_parts
from rlframe.policy.policy_map import held
from rlframe.utils.timer import TimerStat
from rlframe.utils.window_stat import WindowStat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rlframe.execution.rollout_ops import Batch

# How often a thread that waits for a queue looks whether it is to end, in seconds.
_POLL_S = 0.05
_QUEUE_WINDOW = 50


class LearnerResult(NamedTuple):
    """What a learner tells of one learner step.

    Attributes:
        env_steps: Env steps that are now learned from; 0 for a pass after which the same batch comes again.
        infos: `{policy id: learner info}`.
        agent_steps: The same as `env_steps`, counted in rows of all policies.
        weights: A copy of the weights after this step, `{policy id: weights}`, where workers shall get them.
    """

    env_steps: int
    infos: dict[str, Any]
    agent_steps: int
    weights: dict[str, Any] | None = None


class BatchLearner:
    """Does learner steps on the local worker's policies.

    Args:
        local_worker: The worker whose policies learn.
        snapshot_every: After how many batches a copy of the weights is made for the workers; 0 is never.
        after_step: `fn((env steps, infos))`, called behind each learner step, by whoever learns.
    """

    def __init__(
        self, local_worker: Any, snapshot_every: int = 0, after_step: Callable[[tuple[int, Any]], Any] | None = None
    ) -> None:
        self.local_worker = local_worker
        self.snapshot_every = snapshot_every
        self.after_step = after_step
        self.batches = 0
        self.has_learned = False

    def learn(self, batch: Batch, *, last_pass: bool = True) -> LearnerResult:
        """Learns from a batch once, each policy from its own rows."""
        local = self.local_worker
        with held(local.policy_map):  # to the end: what follows the learner step touches policies, too
            infos = {pid: self._learn(local.policy_map[pid], rows) for pid, rows in policy_parts(local, batch)}
            self.has_learned = True
            rows = (batch.count, agent_steps(batch)) if last_pass else (0, 0)
            if self.after_step is not None:
                self.after_step((rows[0], infos))
            weights = None
            if last_pass:
                self.batches += 1
                if self.snapshot_every and self.batches % self.snapshot_every == 0:
                    weights = local.get_weights(list(local.policies_to_train))
        return LearnerResult(rows[0], infos, rows[1], weights)

    def _learn(self, policy: Any, rows: Any) -> dict[str, Any]:
        info: dict[str, Any] = policy.learn_on_batch(rows)
        return info

    def get_state(self) -> dict[str, Any]:
        """Returns the number of batches, and what `after_step` holds."""
        return {"batches": self.batches, "after_step": operator_state(self.after_step)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.batches = int(state["batches"])
        restore_operator(self.after_step, state["after_step"])


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
        self.stopped = False
        self.error: BaseException | None = None
        self._pause = PauseEvent()
        self._global_vars: Mapping[str, Any] | None = None

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
        """Adds the state of the queue, the timers and the counters of this thread to a result's `info`."""
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
        finally:
            self._pause.leave()
        self.learner_queue_size.push(self.inqueue.qsize())
        self._give(learned)

    def _learn(self, taken: Any, last_pass: bool) -> Any:
        """Learns from what the queue gave, and returns what is told of it."""
        return self.learner.learn(taken, last_pass=last_pass)

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


class InlineLearner:
    """Learns where its results are asked for, without a thread: what there is when one process does everything.

    It has the methods of `LearnerThread` that plans use. A run is deterministic, and resumes exactly.

    Args:
        local_worker: The worker whose policies learn.
        minibatch_buffer_size: Batches that are learned from in turn.
        num_sgd_iter: Learner steps on each batch.
        after_step: See `BatchLearner`.
    """

    plan_name = "InlineLearner"

    def __init__(
        self,
        local_worker: Any,
        minibatch_buffer_size: int = 1,
        num_sgd_iter: int = 1,
        after_step: Callable[[tuple[int, Any]], Any] | None = None,
    ) -> None:
        self.local_worker = local_worker
        self.learner = BatchLearner(local_worker, 0, after_step)
        self.inqueue: queue.Queue[Any] = queue.Queue(maxsize=1)
        self.minibatch_buffer = MinibatchBuffer(self.inqueue, minibatch_buffer_size, 0.0, num_sgd_iter)
        self.grad_timer = TimerStat()

    def __enter__(self) -> InlineLearner:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leaves nothing running."""

    @property
    def has_learned(self) -> bool:
        """Whether a learner step is done in this process."""
        return self.learner.has_learned

    def results(self) -> LocalIterator[LearnerResult]:
        """Returns the stream of what was learned; pulling an item learns from the batch that waits."""
        return LocalIterator(lambda: iter(self.step, None), SharedMetrics(), name="InlineLearner")

    def step(self) -> Any:
        """Does the learner steps that the batch in the queue allows, and tells of them as one `LearnerResult`."""
        if self.inqueue.empty():
            return _NextValueNotReady()
        steps: list[LearnerResult] = []
        while not (self.minibatch_buffer.needs_new() and self.inqueue.empty()):
            started = monotonic()
            batch, last_pass = self.minibatch_buffer.get()
            steps.append(self.learner.learn(batch, last_pass=last_pass))
            self.grad_timer.push(monotonic() - started)
        policies = dict.fromkeys(pid for step in steps for pid in step.infos)
        infos = {pid: merge_learner_infos([step.infos[pid] for step in steps if pid in step.infos]) for pid in policies}
        return LearnerResult(sum(step.env_steps for step in steps), infos, sum(step.agent_steps for step in steps))

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tells the policies the count of env steps."""
        self.local_worker.set_global_vars(global_vars)

    def add_learner_metrics(self, result: dict[str, Any]) -> dict[str, Any]:
        """Adds the timers that there are to a result's `info`."""
        result["info"]["timing_breakdown"] = {"learner_grad_time_ms": self.grad_timer.mean * 1000}
        return result

    def get_state(self) -> dict[str, Any]:
        """Returns the batches that are learned from again, and counters."""
        return {"minibatches": self.minibatch_buffer.get_state(), "learner": self.learner.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.minibatch_buffer.set_state(state["minibatches"])
        self.learner.set_state(state["learner"])
