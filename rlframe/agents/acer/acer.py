"""ACER: an actor-critic that also learns from replayed sequences, near an average policy; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.actor_critic import LossWeightsConfig
from rlframe.agents.families.off_policy import OffPolicyConfig
from rlframe.agents.families.optimization import GradientClippingConfig
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.mixing_ops import PoissonReplay
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep, UpdateTargetNetwork
from rlframe.replay.episode import EpisodeReplayBuffer
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class ACERConfig(LossWeightsConfig, OffPolicyConfig, GradientClippingConfig):
    """Keys of ACER (Wang et al. 2017)."""

    replays_episodes: ClassVar[bool] = True
    new_defaults = {  # noqa: RUF012
        "num_workers": 0,
        "rollout_fragment_length": 20,
        "timesteps_per_iteration": 1000,
        "lr": 7e-4,
        "grad_clip": 10.0,
        "target_network_update_freq": 0,
        "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 2500},
        "model": {"max_seq_len": 999_999},
    }

    train_batch_size: int = option(
        160,
        "Steps of one update at least: fragments are collected until there are as many, and sequences replayed.",
        unit="env steps",
        low=1,
    )
    replay_ratio: float = option(
        4.0, "Updates on replayed sequences for each on new ones, on average: the mean of a Poisson number.", low=0,
        source="Wang et al. 2017, algorithm 1",
    )  # fmt: skip

    importance_c: float = option(
        10.0, "c: largest importance weight; what is cut off is made good under the policy itself.", above=0,
        infinite=True, source="Wang et al. 2017, eq. 7",
    )  # fmt: skip
    lambda_: float = option(
        1.0, "λ: how far Retrace looks ahead; 0 is one step.", low=0, high=1, key="lambda",
        source="Munos et al. 2016, eq. 4",
    )  # fmt: skip
    epsilon: float = option(1e-6, "What is added to probabilities that something is divided by.", above=0)

    trust_region: bool = option(
        True, "Hold each policy gradient near the average policy.", source="Wang et al. 2017, section 3.3"
    )
    delta: float = option(
        1.0, "δ: how much a policy gradient may raise the divergence from the average policy.", above=0, infinite=True,
        source="Wang et al. 2017, eq. 11",
    )  # fmt: skip
    ema_alpha: float = option(
        0.99, "α: share of the average policy's weights that an update keeps.", low=0, high=1,
        source="Wang et al. 2017, section 3.3",
    )  # fmt: skip
    num_dueling_samples: int = option(
        5, "Continuous actions drawn for the mean advantage that a stochastic dueling network takes off.", low=1,
        source="Wang et al. 2017, eq. 13",
    )  # fmt: skip

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        lengths = {"rollout_fragment_length": self.rollout_fragment_length, "model.max_seq_len": self.model.max_seq_len}
        for key, length in lengths.items():
            if length < 2:
                yield f"{key}={length}: Retrace looks along sequences of steps; set 2 or more, such as 20"


def execution_plan(
    workers: WorkerSet, config: ACERConfig, *, local_replay_buffer: EpisodeReplayBuffer
) -> LocalIterator[Any]:
    """Learns from each new batch, then from a Poisson number of replayed ones; the average policy follows."""
    config = ACERConfig.view(config)
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .combine(ConcatBatches(config.train_batch_size, config.multiagent.count_steps_by))
        .combine(PoissonReplay(local_replay_buffer, config.replay_ratio, config.seed))
        .for_each(TrainOneStep(workers))
        .for_each(UpdateTargetNetwork(workers, config.target_network_update_freq))
    )
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = ACERConfig.defaults()

ACERTrainer = build_trainer(
    name="ACER",
    config_class=ACERConfig,
    policies={
        "torch": "rlframe.agents.acer.acer_policy:ACERTorchPolicy",
        "tf": "rlframe.agents.acer.acer_policy:ACERTFPolicy",
    },
    execution_plan=execution_plan,
)
