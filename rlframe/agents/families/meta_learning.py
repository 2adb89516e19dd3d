"""Meta-learning: keys, returns and the update that algorithms share whose policies adapt to tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlframe.agents.families.actor_critic import ActorCriticConfig, ClippedSurrogateConfig
from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.options import option
from rlframe.data.columns import EPS_ID, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.plan.context import (
    LEARN_ON_BATCH_TIMER,
    LEARNER_INFO,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    _get_shared_metrics,
)

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet

#: Batches of one round, a task's each.
Round = Sequence[SampleBatch]


class MetaLearningConfig(ActorCriticConfig, ClippedSurrogateConfig, GradientClippingConfig):
    """Keys of weights from which gradient steps adapt to a task."""

    new_defaults: ClassVar[Any] = {
        "rollout_fragment_length": 200,
        "batch_mode": "complete_episodes",
        "create_env_on_driver": True,
        "min_iter_time_s": 0,
        "lr": 1e-3,
        "kl_coeff": 5e-4,
        "entropy_coeff": 0.0,
    }

    vf_clip_param: float = option(
        10.0, "How far a value may move from what it was when its row was sampled.", above=0, infinite=True,
        unit="env reward units",
    )  # fmt: skip
    inner_adaptation_steps: int = option(1, "Gradient steps by which weights adapt to a task.", low=1)
    inner_lr: float = option(0.1, "α: rate of these steps.", above=0, log=True, source="Finn et al. 2017, eq. 1")
    maml_optimizer_steps: int = option(5, "Steps of Adam on what one iteration samples.", low=1)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.batch_mode != "complete_episodes":
            yield f"batch_mode={self.batch_mode!r}: an episode belongs to one task; set 'complete_episodes'"
        if self.multiagent.policies:
            yield "multiagent.policies: one policy adapts to the tasks; leave it out"
        if self.model.use_lstm or self.model.use_attention:
            yield "model: the steps are those of a policy without memory; leave use_lstm and use_attention out"


class MetaUpdate:
    """Takes the rounds of one update, has the policy learn from them, and gives its info by policy id."""

    def __init__(self, workers: WorkerSet) -> None:
        self._policies: Any = workers.local_worker().policy_map

    def __call__(self, rounds: Sequence[Round]) -> dict[str, Any]:
        """Learns, and counts the rows."""
        metrics, started = _get_shared_metrics(), perf_counter()
        ((policy_id, policy),) = self._policies.items()
        info = metrics.info[LEARNER_INFO] = {policy_id: policy.learn_on_rounds(rounds)}
        metrics.timers[LEARN_ON_BATCH_TIMER].push(perf_counter() - started)
        rows = sum(batch.count for batches in rounds for batch in batches)
        metrics.counters[STEPS_TRAINED_COUNTER] += rows
        metrics.counters[STEPS_TRAINED_THIS_ITER_COUNTER] += rows
        return info


def begin_episodes(worker: Any) -> None:
    """Drops what a worker has sampled beyond its last batch: it was another task's, or by other weights."""
    ended = worker.runner.get_metrics()
    worker.runner.restart()
    worker.runner._metrics += ended


def returns_of(batches: Round) -> dict[str, float]:
    """Returns the largest, the mean and the smallest return of the episodes in batches of whole ones."""
    found = [np.bincount(np.unique(batch[EPS_ID], return_inverse=True)[1], weights=batch[REWARDS]) for batch in batches]
    every = np.concatenate(found)
    return {"max": float(every.max()), "mean": float(every.mean()), "min": float(every.min())}
