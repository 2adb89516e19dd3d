"""Learners without a thread: the batches out of a queue, a learner step on one, and who does it in the caller's."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.evaluation.rollout_worker import held
from rlframe.execution.plan.context import SharedMetrics, _NextValueNotReady, agent_steps, policy_parts
from rlframe.execution.plan.item_state import operator_state, pack_item, restore_operator, unpack_item
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.train_ops import merge_learner_infos
from rlframe.utils.timer import TimerStat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rlframe.execution.plan.context import Batch


@dataclass(frozen=True)
class LearnerResult:
    """What a learner tells of one learner step; as in RLlib it is the first two: `count, infos = result`, `result[1]`.

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

    def __iter__(self) -> Iterator[Any]:
        yield from (self.env_steps, self.infos)

    def __getitem__(self, place: int) -> Any:
        return (self.env_steps, self.infos)[place]


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
        if len(steps) == 1:
            return steps[0]
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
