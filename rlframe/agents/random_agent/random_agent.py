"""RandomAgent: acts at random and learns nothing, the return that others are compared with; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.whole_episodes import ConcatEpisodes
from rlframe.config.common import CommonConfig
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class RandomAgentConfig(CommonConfig):
    """Keys of RandomAgent."""

    new_defaults: ClassVar[Any] = {"num_workers": 0, "rollout_fragment_length": 1, "batch_mode": "complete_episodes"}

    rollouts_per_iteration: int = option(10, "Episodes that an iteration plays, at least.", low=1)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.batch_mode != "complete_episodes":
            yield f"batch_mode={self.batch_mode!r}: whole episodes are counted here; set 'complete_episodes'"


def execution_plan(workers: WorkerSet, config: RandomAgentConfig) -> LocalIterator[Any]:
    """Plays `rollouts_per_iteration` episodes."""
    config = RandomAgentConfig.view(config)
    played = ParallelRollouts(workers, mode="bulk_sync").combine(ConcatEpisodes(config.rollouts_per_iteration, 1))
    return StandardMetricsReporting(played, workers, config)


DEFAULT_CONFIG: dict[str, Any] = RandomAgentConfig.defaults()

RandomAgentTrainer = build_trainer(
    name="RandomAgent",
    config_class=RandomAgentConfig,
    policies=dict.fromkeys(("torch", "tf"), "rlframe.agents.random_agent.random_policy:RandomAgentPolicy"),
    execution_plan=execution_plan,
)
