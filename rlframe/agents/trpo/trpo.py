"""TRPO: natural gradient steps within a trust region, values by minibatches; config, plan, trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.agents.families.actor_critic import EntropyBonusConfig, ReturnsOfWholeEpisodesConfig
from rlframe.agents.families.optimization import GradientClippingConfig, LearningRateScheduleConfig, WholeRoundConfig
from rlframe.agents.families.value_normalization import ValueNormalizationConfig
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts, SelectExperiences, StandardizeFields
from rlframe.execution.train_ops import TrainOneStep
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet

_PAPER = "Schulman et al. 2015, appendix C"


class TRPOConfig(
    ReturnsOfWholeEpisodesConfig,
    ValueNormalizationConfig,
    EntropyBonusConfig,
    LearningRateScheduleConfig,
    GradientClippingConfig,
    WholeRoundConfig,
):
    """Keys of TRPO (Schulman et al. 2015). `lr`, `lr_schedule` and `grad_clip` are those of the values' steps."""

    new_defaults = {  # noqa: RUF012
        "lr": 1e-3,
        "lambda": 0.95,
        "entropy_coeff": 0.0,
        "train_batch_size": 2048,
        "model": {"vf_share_layers": False},
    }

    max_kl: float = option(
        0.01, "δ: largest mean KL divergence of a step.", unit="nats", above=0, source="Schulman et al. 2015, eq. 12"
    )
    cg_iters: int = option(10, "Fisher-vector products by which the step's direction is found.", low=1, source=_PAPER)
    cg_damping: float = option(0.1, "Added to the Fisher matrix's diagonal.", low=0, source=_PAPER)
    cg_residual_tolerance: float = option(
        1e-10, "Squared length of the residual at which the direction is near enough.", low=0
    )
    fvp_sub_sampling: int = option(
        1, "Fisher-vector products are made of every n-th row, or sequence.", unit="rows", low=1, source=_PAPER
    )
    line_search_steps: int = option(10, "Lengths of a step that are tried before it is given up.", low=1)
    line_search_shrink: float = option(
        0.8,
        "Each length that is tried, by the one before.",
        above=0,
        rule=lambda value: None if value < 1 else "a number above 0 and below 1",
    )
    vf_num_sgd_iter: int = option(10, "Passes of the values' steps over a train batch.", low=1)
    vf_sgd_minibatch_size: int = option(
        128, "Rows of one step of the values; 0 takes the whole train batch.", unit="rows", low=0
    )


def execution_plan(workers: WorkerSet, config: TRPOConfig) -> LocalIterator[Any]:
    """Collects a train batch, standardises its advantages, and has each policy do its step and fit its values."""
    config = TRPOConfig.view(config)
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(SelectExperiences(workers.trainable_policies))
        .combine(ConcatBatches(config.train_batch_size, config.multiagent.count_steps_by))
        .for_each(StandardizeFields(["advantages"]))
        .for_each(TrainOneStep(workers))
    )
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = TRPOConfig.defaults()

TRPOTrainer = build_trainer(
    name="TRPO",
    config_class=TRPOConfig,
    policies={
        "torch": "rlframe.agents.trpo.trpo_policy:TRPOTorchPolicy",
        "tf": "rlframe.agents.trpo.trpo_policy:TRPOTFPolicy",
    },
    execution_plan=execution_plan,
)
