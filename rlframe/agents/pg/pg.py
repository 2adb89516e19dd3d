"""PG: the plain policy gradient (REINFORCE); config, plan, trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.config.common import CommonConfig
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class PGConfig(CommonConfig):
    """Keys of PG (Williams 1992)."""

    new_defaults = {"num_workers": 0, "lr": 4e-4}  # noqa: RUF012


def execution_plan(workers: WorkerSet, config: PGConfig) -> LocalIterator[Any]:
    """Collects a train batch and does one learner step on it."""
    config = PGConfig.view(config)
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .combine(ConcatBatches(config.train_batch_size, config.multiagent.count_steps_by))
        .for_each(TrainOneStep(workers))
    )
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = PGConfig.defaults()

PGTrainer = build_trainer(
    name="PG",
    config_class=PGConfig,
    policies={
        "torch": "rlframe.agents.pg.pg_policy:PGTorchPolicy",
        "tf": "rlframe.agents.pg.pg_policy:PGTFPolicy",
    },
    execution_plan=execution_plan,
)
