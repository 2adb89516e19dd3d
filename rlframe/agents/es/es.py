"""ES and ARS: search by perturbed weights, without gradients; configs, plan, trainers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.agents.families.whole_episodes import ConcatEpisodes
from rlframe.config.common import CommonConfig
from rlframe.config.options import option
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts, SelectExperiences
from rlframe.execution.train_ops import TrainOneStep
from rlframe.trainer.template import build_trainer
from rlframe.utils.metrics.learner_info import DEFAULT_POLICY_ID

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class PerturbedWeightsConfig(CommonConfig):
    """Keys of ES and ARS alike. An episode is played with weights that noise was added to, the next one without it."""

    new_defaults: ClassVar[Any] = {
        "batch_mode": "complete_episodes",
        "observation_filter": "MeanStdFilter",
        "evaluation_config": {"explore": False},
    }

    noise_stdev: float = option(
        0.02, "σ: standard deviation of the noise on weights.", above=0, source="Salimans et al. 2017, algorithm 1"
    )
    action_noise_std: float = option(0.0, "Standard deviation of noise on continuous actions of such episodes.", low=0)
    eval_prob: float = option(
        0.0, "Share of pairs of episodes that are played without noise, of which nothing is learned.", low=0, high=1
    )
    report_length: int = option(
        10, "Episodes without noise that `eval_reward_mean` is the mean of, the last ones.", low=1
    )
    noise_size: int = option(-1, "Size of RLlib's table of noise; noise is drawn from its seed here.", deprecated=True)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        model = self.model
        if self.batch_mode != "complete_episodes":
            yield f"batch_mode={self.batch_mode!r}: returns are those of whole episodes; set 'complete_episodes'"
        if model.use_lstm or model.use_attention:
            yield "model: networks whose weights are searched have no memory; leave use_lstm and use_attention out"
        if self.eval_prob == 1:
            yield "eval_prob=1 plays all episodes without noise, and nothing is learned; take less"


class ESConfig(PerturbedWeightsConfig):
    """Keys of ES (Salimans et al. 2017)."""

    new_defaults: ClassVar[Any] = {
        "num_workers": 10,
        "train_batch_size": 10_000,
        "action_noise_std": 0.01,
        "eval_prob": 0.003,
    }

    episodes_per_batch: int = option(
        1000, "Episodes of one update, at least (two for 1, one for each sign); see also train_batch_size.", low=1
    )
    stepsize: float = option(0.01, "Learning rate of the Adam that follows the estimated gradient.", above=0, log=True)
    l2_coeff: float = option(0.005, "Weight of ½‖θ‖² in what is minimised.", low=0)
    return_proc_mode: str = option(
        "centered_rank", "What is made of returns: ranks between −½ and ½.", choices=("centered_rank",)
    )


class ARSConfig(PerturbedWeightsConfig):
    """Keys of ARS (Mania et al. 2018)."""

    new_defaults: ClassVar[Any] = {"num_workers": 2, "train_batch_size": 1, "eval_prob": 0.03}

    num_rollouts: int = option(
        32, "Directions of one update, each of which two episodes try.", low=1, source="Mania et al. 2018, algorithm 2"
    )
    rollouts_used: int = option(32, "The best of them, of which the step is made; more are all of them.", low=1)
    sgd_stepsize: float = option(0.01, "Size of the step.", above=0, log=True)
    offset: float = option(0.0, "Taken off every reward, against bonuses for merely being alive.", unit="env reward")


def search_plan(workers: WorkerSet, config: Any, episodes: int) -> LocalIterator[Any]:
    """Collects so many whole episodes, and moves each policy to where noise on its weights made them better."""
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(SelectExperiences(workers.trainable_policies))
        .combine(ConcatEpisodes(episodes, config.train_batch_size))
        .for_each(TrainOneStep(workers))
    )
    return StandardMetricsReporting(train, workers, config)


def execution_plan(workers: WorkerSet, config: ESConfig) -> LocalIterator[Any]:
    """Updates by `episodes_per_batch` episodes."""
    config = ESConfig.view(config)
    return search_plan(workers, config, max(2, config.episodes_per_batch))  # noise is tried with both signs


def ars_execution_plan(workers: WorkerSet, config: ARSConfig) -> LocalIterator[Any]:
    """Updates by two episodes for each of `num_rollouts` directions."""
    config = ARSConfig.view(config)
    return search_plan(workers, config, 2 * config.num_rollouts)


DEFAULT_CONFIG: dict[str, Any] = ESConfig.defaults()
ARS_DEFAULT_CONFIG: dict[str, Any] = ARSConfig.defaults()


class WithFilteringPolicy:
    """What RLlib's ES and ARS have: their policy by name, and the filter of its observations there."""

    workers: WorkerSet

    @property
    def policy(self) -> Any:
        """The default policy."""
        return self.get_policy()

    def get_policy(self, policy_id: str = DEFAULT_POLICY_ID) -> Any:
        """Returns the policy, or None; observations given by hand have gone through its `observation_filter`."""
        policy = super().get_policy(policy_id)  # type: ignore[misc]  # of the trainer
        if policy is not None:
            policy.observation_filter = self.workers.local_worker().filters[policy_id]
        return policy


ESTrainer = build_trainer(
    name="ES",
    mixins=[WithFilteringPolicy],
    config_class=ESConfig,
    policies=dict.fromkeys(("torch", "tf"), "rlframe.agents.es.es_policy:ESPolicy"),
    execution_plan=execution_plan,
)
ARSTrainer = build_trainer(
    name="ARS",
    mixins=[WithFilteringPolicy],
    config_class=ARSConfig,
    policies=dict.fromkeys(("torch", "tf"), "rlframe.agents.es.es_policy:ARSPolicy"),
    execution_plan=ars_execution_plan,
)
