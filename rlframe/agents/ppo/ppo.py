"""PPO: clipped surrogate, clipped value loss, adaptive KL penalty; config, plan, trainer."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.agents.families.actor_critic import (
    ActionBoundConfig,
    ActorCriticConfig,
    ClippedSurrogateConfig,
    ReturnsOfWholeEpisodesConfig,
)
from rlframe.agents.families.optimization import GradientClippingConfig, MinibatchConfig
from rlframe.config.options import option
from rlframe.data.columns import OBS, VF_PREDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
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
from rlframe.trainer.template import build_trainer
from rlframe.utils.errors import ConfigError
from rlframe.utils.metrics.learner_info import LEARNER_STATS_KEY

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet

_LOGGER = logging.getLogger("rlframe")
#: How many times `vf_clip_param` returns may be before a warning says that the critic cannot follow.
_SCALE_LIMIT = 200


class PPOConfig(
    ReturnsOfWholeEpisodesConfig,
    ActorCriticConfig,
    ClippedSurrogateConfig,
    ActionBoundConfig,
    GradientClippingConfig,
    MinibatchConfig,
):
    """Keys of PPO (Schulman et al. 2017)."""

    new_defaults = {  # noqa: RUF012
        "lr": 5e-5,
        "train_batch_size": 4000,
        "vf_loss_coeff": 1.0,
        "entropy_coeff": 0.0,
        "model": {"vf_share_layers": False},
    }

    vf_clip_param: float = option(
        10.0,
        "How far a value may move from its old one in a train batch.",
        unit="discounted return",
        above=0,
        infinite=True,
    )
    normalize_values: bool | None = option(
        None,
        "PopArt: values are learned normalised by the running mean and standard deviation of their targets; vf_loss is "
        "in units of that deviation then. None does so where the default network for vectors has layers for values "
        "alone, and the loss is PPO's own.",
        source="Yu et al. 2022, section 5.1; van Hasselt et al. 2016",
    )
    recompute_advantages: bool = option(
        False,
        "Each pass over a train batch but the first has advantages and value targets of the values as they are then.",
        source="Andrychowicz et al. 2021, section 3.5",
    )
    vf_share_layers: int = option(-1, "Old place of model.vf_share_layers.", deprecated=True)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.normalize_values and not self.use_critic:
            yield "normalize_values=True needs use_critic=True: there are no values to normalise"
        if self.recompute_advantages and not self.use_critic:
            yield "recompute_advantages=True needs use_critic=True: without values advantages stay what they are"
        if self.recompute_advantages and (self.model.use_lstm or self.model.use_attention):
            yield (
                "recompute_advantages=True needs a model without memory: values of single observations are computed "
                "anew; set use_lstm and use_attention to False, or leave advantages as they were sampled"
            )


def recompute_advantages(policy: Any, rows: SampleBatch) -> SampleBatch:
    """Returns the rows with the values, advantages and value targets of the policy as it is, standardised.

    Raises:
        ConfigError: If the policy has a memory, or a postprocessing of its own.

    Source: Andrychowicz et al. 2021, "What Matters for On-Policy Deep Actor-Critic Methods?", section 3.5.
    """
    if policy.is_recurrent() or type(policy).postprocess_trajectory is not compute_gae_for_sample_batch:
        raise ConfigError(
            f"recompute_advantages: got {type(policy).__name__}, which has a memory or a postprocess_trajectory of its "
            "own; wanted PPO's advantages of single observations, or recompute_advantages=False"
        )
    again = rows.copy(shallow=True)
    again[VF_PREDS] = np.asarray(policy.values(rows[OBS]), np.float32)
    StandardizeFields(["advantages"])(compute_gae_for_sample_batch(policy, again))  # in place
    return again


class UpdateKL:
    """Adapts the KL penalty of every policy that was trained.

    Item in and out: `(batch, learner infos)`, or learner infos alone, as RLlib's plans have it.
    """

    def __init__(self, workers: WorkerSet) -> None:
        self.workers, self._local = workers, workers.local_worker()

    def __call__(self, item: Any) -> Any:
        """Hands each policy the mean divergence of its learner steps."""
        infos: Mapping[str, Any] = item[1] if isinstance(item, tuple) else item
        for policy_id, info in infos.items():
            try:
                kl = info[LEARNER_STATS_KEY].get("kl")
            except KeyError:  # of a learner of the user's own
                continue
            if kl is not None:
                self._local.policy_map[policy_id].update_kl(kl)
        return item


def warn_about_bad_reward_scales(config: Any, result: dict[str, Any]) -> dict[str, Any]:
    """Warns where returns are so large that clipped values cannot reach them; returns the result.

    Args:
        config: A config with `vf_clip_param`; or a trainer, as `after_train_result` hands it over.
        result: Result of an iteration.
    """
    config = config if isinstance(config, Mapping) else config.config
    mean = result.get("episode_reward_mean", math.nan)
    if math.isfinite(mean) and abs(mean) / config["vf_clip_param"] > _SCALE_LIMIT:
        _LOGGER.warning(
            "the mean return is %g, which takes %.0f train batches of values that may move by vf_clip_param=%g each: "
            "raise vf_clip_param, or scale the rewards",
            mean,
            abs(mean) / config["vf_clip_param"],
            config["vf_clip_param"],
        )
    return result


def execution_plan(workers: WorkerSet, config: PPOConfig) -> LocalIterator[Any]:
    """Collects a train batch, standardises its advantages, learns from it in minibatches, adapts the KL penalty."""
    config = PPOConfig.view(config)
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(SelectExperiences(workers.trainable_policies))
        .combine(ConcatBatches(config.train_batch_size, config.multiagent.count_steps_by))
        .for_each(StandardizeFields(["advantages"]))
        .for_each(UpdateValueNormalizer(workers))
        .for_each(
            MultiGPUTrainOneStep(
                workers=workers,
                sgd_minibatch_size=config.sgd_minibatch_size,
                num_sgd_iter=config.num_sgd_iter,
                shuffle_sequences=config.shuffle_sequences,
                between_passes=recompute_advantages if config.recompute_advantages else None,
            )
        )
        .for_each(UpdateKL(workers))
    )
    metrics = StandardMetricsReporting(train, workers, config)
    return metrics.for_each(lambda result: warn_about_bad_reward_scales(config, result))


DEFAULT_CONFIG: dict[str, Any] = PPOConfig.defaults()

PPOTrainer = build_trainer(
    name="PPO",
    config_class=PPOConfig,
    policies={
        "torch": "rlframe.agents.ppo.ppo_policy:PPOTorchPolicy",
        "tf": "rlframe.agents.ppo.ppo_policy:PPOTFPolicy",
    },
    execution_plan=execution_plan,
)
