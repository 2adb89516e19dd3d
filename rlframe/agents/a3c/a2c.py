"""A2C: the synchronous actor-critic, in one step per train batch or in microbatches; config, plan, trainer."""

from __future__ import annotations

import math
from typing import Any

from rlframe.agents.a3c.a3c import ActorCriticConfig
from rlframe.agents.trainer_template import build_trainer
from rlframe.config.options import option
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import SYNCHRONOUS_ITER_STEPS, StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import ApplyGradients, AverageGradients, ComputeGradients, TrainOneStep


class A2CConfig(ActorCriticConfig):
    """Keys of A2C."""

    # RLlib's iterations lasted 10 s: as many steps as the machine made.
    new_defaults = {"rollout_fragment_length": 20, "timesteps_per_iteration": SYNCHRONOUS_ITER_STEPS}  # noqa: RUF012

    microbatch_size: int | None = option(
        None, "Rows whose gradients are computed at once, and averaged over a train batch; None takes it whole.", low=1
    )


def execution_plan(workers: WorkerSet, config: dict[str, Any]) -> LocalIterator[Any]:
    """Collects a train batch and does one step on it; with microbatches, on the mean of their gradients."""
    rows, micro = config["train_batch_size"], config["microbatch_size"]
    concat = ConcatBatches(micro or rows, config["multiagent"]["count_steps_by"])
    batches = ParallelRollouts(workers, mode="bulk_sync").combine(concat)
    if not micro:
        return StandardMetricsReporting(batches.for_each(TrainOneStep(workers)), workers, config)
    train = (
        batches.for_each(ComputeGradients(workers))
        .batch(math.ceil(rows / micro))
        .for_each(AverageGradients())
        .for_each(ApplyGradients(workers))
    )
    return StandardMetricsReporting(train, workers, config)


A2C_DEFAULT_CONFIG: dict[str, Any] = A2CConfig.defaults()
#: The same, by the name that every algorithm's module has.
DEFAULT_CONFIG = A2C_DEFAULT_CONFIG

A2CTrainer = build_trainer(
    name="A2C",
    config_class=A2CConfig,
    policies={
        "torch": "rlframe.agents.a3c.a3c_torch_policy:A3CTorchPolicy",
        "tf": "rlframe.agents.a3c.a3c_tf_policy:A3CTFPolicy",
    },
    execution_plan=execution_plan,
)
