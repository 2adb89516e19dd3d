"""What PPO's policies of both frameworks share: columns, advantages, and the KL penalty's weight."""

from __future__ import annotations

from typing import Any

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    DONES,
    ENV_ID,
    NEXT_OBS,
    OBS,
    VALUE_TARGETS,
    VF_PREDS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.policy.bounded_means import BoundedMeans
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.policy import State
from rlframe.policy.schedules import EntropyCoeffSchedule, LearningRateSchedule


class KLCoeffMixin:
    """A weight of the KL penalty that grows while the divergence is too large, and shrinks while it is small.

    Source: Schulman et al. 2017, section 4.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.kl_coeff = float(config["kl_coeff"])
        self.kl_target = float(config["kl_target"])

    def update_kl(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the new weight."""
        if sampled_kl > 2.0 * self.kl_target:
            self.kl_coeff *= 1.5
        elif sampled_kl < 0.5 * self.kl_target:
            self.kl_coeff *= 0.5
        return self.kl_coeff


class PPOPolicy(BoundedMeans, KLCoeffMixin, LearningRateSchedule, EntropyCoeffSchedule, LearningPolicy):
    """An actor with a critic; what a framework adds is the loss and the learner step."""

    defaults_from = "rlframe.agents.ppo.ppo:DEFAULT_CONFIG"

    wants_values = True
    train_columns = (ACTION_DIST_INPUTS, ACTION_LOGP, NEXT_OBS, DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ACTION_DIST_INPUTS, ACTION_LOGP, VF_PREDS, ADVANTAGES, VALUE_TARGETS)

    def setup_mixins(self, config: dict[str, Any]) -> None:
        """Starts the KL penalty and the schedules."""
        KLCoeffMixin.__init__(self, config)
        EntropyCoeffSchedule.__init__(self, config["entropy_coeff"], config["entropy_coeff_schedule"])
        LearningRateSchedule.__init__(self, config["lr"], config["lr_schedule"])

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds `advantages` and `value_targets`."""
        return compute_gae_for_sample_batch(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = compute_gae_for_sample_batch  # type: ignore[attr-defined]  # a marker for NumPy workers

    def get_state(self) -> State:
        """Returns the policy's state with the KL penalty's weight."""
        return {**super().get_state(), "kl_coeff": self.kl_coeff}

    def set_state(self, state: State) -> None:
        """Takes what `get_state` returned."""
        super().set_state(state)
        self.kl_coeff = float(state.get("kl_coeff", self.kl_coeff))


def setup_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the KL penalty and the schedules of a policy with PPO's mixins; RLlib's `before_loss_init` of PPO."""
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    PPOPolicy.setup_mixins(policy, config)


class ValueNetworkMixin:
    """RLlib's name for what gives postprocessing functions a policy's values; every policy here has `values(obs)`."""

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None:
        """Takes RLlib's arguments; there is nothing to set up."""
