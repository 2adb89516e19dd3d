"""LinUCB and LinTS: linear contextual bandits; config, plan, trainers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.config.common import CommonConfig
from rlframe.config.model import ModelConfig
from rlframe.config.options import option, section
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class BanditModelConfig(ModelConfig):
    """Options of linear models of rewards, beside those of networks, which bandits do not have."""

    alpha: float = option(
        1.0, "α: factor on the posterior covariance: of weights that are drawn, and of squared bounds.", low=0, log=True
    )
    prior_precision: float | None = option(
        None, "λ: prior precision of each weight, the ridge; None is 1, and 0.1 for observations with `item`.", above=0,
        key="lambda_",
    )  # fmt: skip


class BanditConfig(CommonConfig):
    """Keys of LinUCB and LinTS alike."""

    new_defaults: ClassVar[Any] = {
        "num_workers": 0,
        "rollout_fragment_length": 1,
        "train_batch_size": 1,
        "timesteps_per_iteration": 100,
    }

    model: BanditModelConfig = section(BanditModelConfig, "Options of the linear model of rewards.")

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        model = self.model
        if model.use_lstm or model.use_attention or model.custom_model:
            yield (
                "model: rewards are linear in observations here; leave use_lstm, use_attention and custom_model out, "
                "and put features of your own into the observations"
            )

    def remarks(self) -> Iterator[str]:
        """Yields remarks on keys that are not read."""
        yield from super().remarks()
        defaults = self.defaults()
        for key in ("gamma", "lr"):
            if self[key] != defaults[key]:
                yield f"{key}={self[key]} has no effect here: weights follow exactly from the rewards of single steps"


class LinUCBConfig(BanditConfig):
    """Keys of LinUCB (Li et al. 2010)."""

    new_defaults: ClassVar[Any] = {"exploration_config": {"type": "UpperConfidenceBound"}}


class LinTSConfig(BanditConfig):
    """Keys of LinTS (Agrawal and Goyal 2013)."""

    new_defaults: ClassVar[Any] = {"exploration_config": {"type": "ThompsonSampling"}}


def execution_plan(workers: WorkerSet, config: BanditConfig) -> LocalIterator[Any]:
    """Collects a train batch, and takes its rewards into the posterior."""
    config = BanditConfig.view(config)
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .combine(ConcatBatches(config.train_batch_size, config.multiagent.count_steps_by))
        .for_each(TrainOneStep(workers))
    )
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = BanditConfig.defaults()
UCB_CONFIG: dict[str, Any] = LinUCBConfig.defaults()
TS_CONFIG: dict[str, Any] = LinTSConfig.defaults()

_POLICIES = dict.fromkeys(("torch", "tf"), "rlframe.agents.bandit.bandit_policy:BanditPolicy")

BanditLinUCBTrainer = build_trainer(
    name="LinUCB", config_class=LinUCBConfig, policies=_POLICIES, execution_plan=execution_plan
)
BanditLinTSTrainer = build_trainer(
    name="LinTS", config_class=LinTSConfig, policies=_POLICIES, execution_plan=execution_plan
)
