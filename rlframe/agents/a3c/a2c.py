"""A2C: the synchronous actor-critic, in one step per train batch or in microbatches; config, plan, trainer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlframe.agents.a3c.a3c import AdvantageActorCriticConfig
from rlframe.agents.families.value_normalization import ValueNormalizationConfig
from rlframe.config.common import Number
from rlframe.config.options import option
from rlframe.execution.gradient_ops import ApplyGradients, AverageGradients, ComputeGradients
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts, UpdateValueNormalizer
from rlframe.execution.train_ops import TrainOneStep
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class A2CConfig(AdvantageActorCriticConfig, ValueNormalizationConfig):
    """Keys of A2C."""

    new_defaults = {"rollout_fragment_length": 20}  # noqa: RUF012

    # RLlib's iterations lasted 10 s: as many steps as the machine made.
    min_iter_time_s: Number | None = option(
        None,
        "Shortest iteration. None: iterations are the same work on every machine, timesteps_per_iteration or 4000 env "
        "steps. 0 gives a result for each train batch.",
        unit="s",
        low=0,
        tunable=False,
    )
    microbatch_size: int | None = option(
        None, "Rows whose gradients are computed at once, and averaged over a train batch; None or 0: all of it.", low=0
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.normalize_values and self.microbatch_size:
            yield (
                f"normalize_values=True with microbatch_size={self.microbatch_size}: the moments move once for a whole "
                "train batch; set microbatch_size to None, or normalize_values to False"
            )


def execution_plan(workers: WorkerSet, config: A2CConfig) -> LocalIterator[Any]:
    """Collects a train batch and does one step on it; with microbatches, on the mean of their gradients."""
    config = A2CConfig.view(config)
    rows, micro = config.train_batch_size, config.microbatch_size
    concat = ConcatBatches(micro or rows, config.multiagent.count_steps_by)
    batches = ParallelRollouts(workers, mode="bulk_sync").combine(concat)
    if not micro:
        whole = batches.for_each(UpdateValueNormalizer(workers)).for_each(TrainOneStep(workers))
        return StandardMetricsReporting(whole, workers, config, asynchronous_iter_time_s=None)
    train = (
        batches.for_each(ComputeGradients(workers))
        .batch(math.ceil(rows / micro))
        .for_each(AverageGradients())
        .for_each(ApplyGradients(workers))
    )
    return StandardMetricsReporting(train, workers, config, asynchronous_iter_time_s=None)


A2C_DEFAULT_CONFIG: dict[str, Any] = A2CConfig.defaults()
#: The same, by the name that every algorithm's module has.
DEFAULT_CONFIG = A2C_DEFAULT_CONFIG

A2CTrainer = build_trainer(
    name="A2C",
    config_class=A2CConfig,
    policies={
        "torch": "rlframe.agents.a3c.a3c_policy:A3CTorchPolicy",
        "tf": "rlframe.agents.a3c.a3c_policy:A3CTFPolicy",
    },
    execution_plan=execution_plan,
)
