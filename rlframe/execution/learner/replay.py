"""A learner thread for batches of replay shards: it says which shard each came from, and its rows' priorities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.execution.learner.thread import LearnerThread
from rlframe.execution.train_ops import td_errors_by_policy
from rlframe.utils.timer import TimerStat

if TYPE_CHECKING:
    from collections.abc import Callable

#: Batches, and results, that may wait, as in RLlib.
LEARNER_QUEUE_MAX_SIZE = 16


@dataclass(frozen=True)
class ReplayResult:
    """What was learned from a replayed batch; it unpacks to the first three, as in RLlib's plans.

    Attributes:
        source: The shard that the batch came from.
        priorities: `{policy id: (batch_indexes, TD errors)}`, what `update_priorities` takes.
        env_steps: Rows of the batch.
        agent_steps: The same, counted in rows of all policies.
        infos: `{policy id: learner info}`.
    """

    source: Any
    priorities: Mapping[str, Any]
    env_steps: int
    agent_steps: int
    infos: Mapping[str, Any]

    def __iter__(self) -> Iterator[Any]:
        yield from (self.source, self.priorities, self.env_steps)


class ReplayLearnerThread(LearnerThread):
    """A `LearnerThread` whose `inqueue` takes `(shard, batch)`, and whose `outqueue` gives `ReplayResult`s.

    Args:
        local_worker: The worker whose policies learn.
        learner_queue_size: Batches, and results, that may wait.
        learner_queue_timeout: Seconds after which a thread that gets no batch gives up; infinite, as the first batch
            comes when enough is stored.
        after_step: See `BatchLearner`; called in the thread.
    """

    def __init__(
        self,
        local_worker: Any,
        *,
        learner_queue_size: int = LEARNER_QUEUE_MAX_SIZE,
        learner_queue_timeout: float = float("inf"),
        after_step: Callable[[tuple[int, Any]], Any] | None = None,
    ) -> None:
        super().__init__(
            local_worker,
            learner_queue_size=learner_queue_size,
            learner_queue_timeout=learner_queue_timeout,
            after_step=after_step,
        )
        self.overall_timer = TimerStat()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """A context in which no learner step is under way, for who reads weights beside the thread."""
        was_open = self._pause.is_open
        self._pause.close()
        try:
            yield
        finally:
            if was_open:
                self._pause.open()

    def step(self) -> None:
        """Waits for a batch, learns from it, and tells of it."""
        started, before = monotonic(), self.grad_timer.count
        super().step()
        if self.grad_timer.count > before:
            self.overall_timer.push(monotonic() - started)

    def _learn(self, taken: Any, last_pass: bool) -> Any:
        source, batch = taken
        learned = super()._learn(batch, last_pass)
        priorities = td_errors_by_policy(batch, learned.infos)
        return ReplayResult(source, priorities, learned.env_steps, learned.agent_steps, learned.infos)
