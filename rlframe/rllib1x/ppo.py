"""What RLlib's PPO was made of, for policies that are made of functions."""

from __future__ import annotations

from typing import Any

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ADVANTAGES,
    NEXT_OBS,
    OBS,
    STATE_OUT_PREFIX,
    VALUE_TARGETS,
    VF_PREDS,
)
from rlframe.data.view_requirements import ViewRequirement
from rlframe.losses.policy_gradients import clipped_surrogate, clipped_value_loss
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.coefficients import adapted_kl_coeff
from rlframe.policy.value_network import ValueNetworkMixin
from rlframe.rllib1x.schedules import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def views_of_gae(policy: Any) -> dict[str, ViewRequirement]:
    """Returns what postprocessing and losses of actor-critics read beyond what acting does, by column.

    Args:
        policy: Its states, too, as they come out of acting.
    """
    learned = (ADVANTAGES, VALUE_TARGETS, ACTION_DIST_INPUTS, ACTION_LOGP, VF_PREDS)
    kept = [f"{STATE_OUT_PREFIX}{index}" for index in range(policy.num_state_tensors())]
    return {
        NEXT_OBS: ViewRequirement(OBS, shift=1, used_for_training=False),
        **{name: ViewRequirement() for name in learned},
        **{name: ViewRequirement(used_for_training=False) for name in kept},
    }


class PPOLoss:
    """PPO's loss as an object, which losses for RLlib 0.8 and 1.0 add to and keep as `policy.loss_obj`.

    Source: Schulman et al. 2017, equations 7 to 9.

    Attributes:
        loss: The whole loss, a scalar.
        mean_policy_loss, mean_vf_loss, mean_kl, mean_entropy: Its parts, means over the rows that count.

    Args:
        dist_class: Class of the distributions.
        model: The model.
        value_targets: R, float `[B]`.
        advantages: A, float `[B]`.
        actions: Actions `[B, ...]`.
        prev_logits: Inputs `[B, K]` of the distribution that acted.
        prev_actions_logp: log π of the actions when they were taken, float `[B]`.
        vf_preds: V then, float `[B]`.
        curr_action_dist: The distribution now.
        value_fn: V now, float `[B]`.
        cur_kl_coeff: Weight of the divergence.
        valid_mask: Rows that count, bool `[B]`; None for all.
        entropy_coeff: Weight of the entropy.
        clip_param: How far π / π_old counts from 1.
        vf_clip_param: How far V counts from what it was.
        vf_loss_coeff: Weight of the value loss.
        use_gae: Whether there is a value loss.
    """

    def __init__(
        self,
        dist_class: Any,
        model: Any,
        value_targets: Tensor,
        advantages: Tensor,
        actions: Tensor,
        prev_logits: Tensor,
        prev_actions_logp: Tensor,
        vf_preds: Tensor,
        curr_action_dist: Any,
        value_fn: Tensor,
        cur_kl_coeff: Any,
        valid_mask: Any,
        entropy_coeff: Any = 0,
        clip_param: float = 0.1,
        vf_clip_param: float = 0.1,
        vf_loss_coeff: float = 1.0,
        use_gae: bool = True,
    ) -> None:
        counts = ops.ones_like(advantages) if valid_mask is None else ops.to_float(valid_mask)

        def mean(rows: Tensor) -> Tensor:
            return ops.sum(rows * counts) / ops.sum(counts)

        logp = curr_action_dist.logp(actions)
        self.mean_policy_loss = -mean(clipped_surrogate(logp, prev_actions_logp, advantages, clip_param))
        self.mean_kl = mean(dist_class(prev_logits, model).kl(curr_action_dist))
        self.mean_entropy = mean(curr_action_dist.entropy())
        self.mean_vf_loss = ops.zeros_like(self.mean_kl)
        if use_gae:
            self.mean_vf_loss = mean(clipped_value_loss(value_fn, vf_preds, value_targets, vf_clip_param))
        weighted = cur_kl_coeff * self.mean_kl + vf_loss_coeff * self.mean_vf_loss - entropy_coeff * self.mean_entropy
        self.loss = self.mean_policy_loss + weighted


class KLCoeffMixin:
    """Gives a policy a weight of the KL penalty that adapts; the built-in ones have `AdaptiveKL`.

    Source: Schulman et al. 2017, section 4.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.kl_coeff = float(config["kl_coeff"])
        self.kl_target = float(config["kl_target"])

    def update_kl(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the new weight."""
        self.kl_coeff = adapted_kl_coeff(self.kl_coeff, self.kl_target, sampled_kl)
        return self.kl_coeff


def setup_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the KL penalty and the schedules of a policy with PPO's mixins; RLlib's `before_loss_init` of PPO."""
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


POLICY_SCOPE = "func"
TARGET_POLICY_SCOPE = "target_func"


def make_appo_model(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> Any:
    """Returns the model that the config describes; a second one becomes `policy.target_model`.

    Both are of the config's framework: RLlib's APPO in PyTorch has it from the module of TensorFlow's.
    """
    framework = "torch" if config["framework"] == "torch" else "tf"
    _, num_outputs = ModelCatalog.get_action_dist(action_space, config["model"], framework=framework)
    made = [
        ModelCatalog.get_model_v2(obs_space, action_space, num_outputs, config["model"], framework, name)
        for name in (POLICY_SCOPE, TARGET_POLICY_SCOPE)
    ]
    policy.target_model = made[1]
    policy.model_variables, policy.target_model_variables = (model.variables() for model in made)  # up to RLlib 1.6
    return made[0]
