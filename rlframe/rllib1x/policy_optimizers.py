"""RLlib 0.8's policy optimizers, of which `make_policy_optimizer` gave trainers one, as the plans that do their work.

A function `make_policy_optimizer(workers, config)` of a program returns one of them; what it gets here is an execution
plan. Batches are what remote workers, or the local one, sample until there are `train_batch_size` rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.gradient_ops import ApplyGradients, AsyncGradients
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.multi_gpu_train_ops import MultiGPUTrainOneStep
from rlframe.execution.rollout_ops import (
    ConcatBatches,
    ParallelRollouts,
    SelectExperiences,
    StandardizeFields,
    UpdateValueNormalizer,
)
from rlframe.execution.train_ops import TrainOneStep


class _MadeAsPlan:
    """What looks like a class of optimizers, and makes a plan; a program cannot derive from it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__module__.startswith(__name__):
            raise TypeError(
                f"Got {cls.__name__}, which derives from a policy optimizer of RLlib 0.8, wanted an execution plan, "
                "since these optimizers are plans here; give build_trainer(execution_plan=...) a function that puts "
                "operators of rlframe.execution together"
            )


class SyncSamplesOptimizer(_MadeAsPlan):
    """Plan that samples a batch from all workers and learns from it, again and again.

    Args:
        workers: The trainer's.
        num_sgd_iter: Passes over each batch.
        train_batch_size: Env steps of a batch, at least.
        sgd_minibatch_size: Rows per learner step; 0 is the whole batch.
        standardize_fields: Columns that are made zero-mean and unit-variance over the batch.
    """

    def __new__(  # type: ignore[misc]  # it is a plan that programs ask for here
        cls,
        workers: WorkerSet,
        num_sgd_iter: int = 1,
        train_batch_size: int = 1,
        sgd_minibatch_size: int = 0,
        standardize_fields: Iterable[str] = frozenset(),
    ) -> LocalIterator[Any]:
        """Returns the plan."""
        learn = TrainOneStep(workers, num_sgd_iter=num_sgd_iter, sgd_minibatch_size=sgd_minibatch_size)
        return _sampling_plan(workers, train_batch_size, standardize_fields, learn)


class LocalMultiGPUOptimizer(_MadeAsPlan):
    """Plan that samples a batch from all workers and learns from shuffled minibatches of it, again and again.

    Args:
        workers: The trainer's.
        sgd_batch_size: Rows per learner step.
        num_sgd_iter: Passes over each batch.
        train_batch_size: Env steps of a batch, at least.
        standardize_fields: Columns that are made zero-mean and unit-variance over the batch.
        shuffle_sequences: Whether each pass has a new random order.
        **of_config: `rollout_fragment_length` (once `sample_batch_size`), `num_envs_per_worker` and `num_gpus`, which
            workers and policies take from the config.

    Raises:
        TypeError: If other arguments are given.
    """

    def __new__(  # type: ignore[misc]
        cls,
        workers: WorkerSet,
        *,
        sgd_batch_size: int = 128,
        num_sgd_iter: int = 10,
        train_batch_size: int = 1024,
        standardize_fields: Iterable[str] = (),
        shuffle_sequences: bool = True,
        **of_config: Any,
    ) -> LocalIterator[Any]:
        """Returns the plan."""
        known = {"rollout_fragment_length", "sample_batch_size", "num_envs_per_worker", "num_gpus"}
        for name in sorted(of_config.keys() - known):
            raise TypeError(f"LocalMultiGPUOptimizer() got {name!r}, wanted one of {', '.join(sorted(known))}")
        learn = MultiGPUTrainOneStep(
            workers=workers,
            sgd_minibatch_size=sgd_batch_size,
            num_sgd_iter=num_sgd_iter,
            shuffle_sequences=shuffle_sequences,
        )
        return _sampling_plan(workers, train_batch_size, standardize_fields, learn)


class AsyncGradientsOptimizer(_MadeAsPlan):
    """Plan that applies each worker's gradients as they come, and gives that worker the new weights.

    Args:
        workers: The trainer's.
        grads_per_step: Accepted as RLlib's; how much an iteration is follows from the config (`min_iter_time_s`,
            `timesteps_per_iteration`).
    """

    def __new__(cls, workers: WorkerSet, grads_per_step: int = 100) -> LocalIterator[Any]:  # type: ignore[misc]  # as above
        """Returns the plan."""
        del grads_per_step
        train = AsyncGradients(workers).for_each(ApplyGradients(workers, update_all=False))
        return StandardMetricsReporting(train, workers, workers._config, asynchronous_iter_time_s=5)


def _sampling_plan(
    workers: WorkerSet, train_batch_size: int, standardize_fields: Iterable[str], learn: TrainOneStep
) -> LocalIterator[Any]:
    config = workers._config
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(SelectExperiences(workers.trainable_policies))
        .combine(ConcatBatches(train_batch_size, config["multiagent"]["count_steps_by"]))
        .for_each(StandardizeFields(list(standardize_fields)))
        .for_each(UpdateValueNormalizer(workers))
        .for_each(learn)
    )
    return StandardMetricsReporting(train, workers, config)


def choose_policy_optimizer(workers: WorkerSet, config: Mapping[str, Any]) -> LocalIterator[Any]:
    """Returns PPO's plan without the adaptation of the KL penalty, for trainers that call `update_kl` themselves.

    Programs of RLlib 0.8 give it to `build_trainer(make_policy_optimizer=...)`, which takes plans here.
    """
    return LocalMultiGPUOptimizer(
        workers,
        sgd_batch_size=config["sgd_minibatch_size"],
        num_sgd_iter=config["num_sgd_iter"],
        train_batch_size=config["train_batch_size"],
        standardize_fields=["advantages"],
        shuffle_sequences=config.get("shuffle_sequences", True),
    )
