"""What the local worker samples, and the counters of all that is sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.plan.context import AGENT_STEPS_SAMPLED_COUNTER, STEPS_SAMPLED_COUNTER, _get_shared_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    Batch = SampleBatch | MultiAgentBatch


def agent_steps(batch: Batch) -> int:
    """Returns the number of agent steps in a batch: rows of all policies together."""
    return int(batch.agent_steps()) if isinstance(batch, MultiAgentBatch) else int(batch.count)


def count_sampled(batch: Batch) -> Batch:
    """Counts the steps of a batch that was sampled, and returns it."""
    counters = _get_shared_metrics().counters
    counters[STEPS_SAMPLED_COUNTER] += batch.count
    counters[AGENT_STEPS_SAMPLED_COUNTER] += agent_steps(batch)
    return batch


class LocalRollouts:
    """Batches of the local worker."""

    plan_name = "ParallelRollouts"

    def __init__(self, workers: Any) -> None:
        self._workers, self._local = workers, workers.local_worker()

    def plan_args(self) -> str:
        """Returns who samples, for reports."""
        return "local worker"

    def __iter__(self) -> LocalRollouts:
        return self

    def __next__(self) -> Any:
        _get_shared_metrics().check_steps_limit()
        return count_sampled(self._local.sample())


def concat(batches: Sequence[Batch]) -> Batch:
    """Returns one batch of several; of one, itself."""
    if len(batches) == 1:
        return batches[0]
    joined: Batch = SampleBatch.concat_samples(batches)
    return joined
