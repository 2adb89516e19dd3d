"""PPO: the loss and the policy, for both frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.agents.families.kl_coeff import KLCoeffMixin
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    DONES,
    ENV_ID,
    NEXT_OBS,
    OBS,
    REWARDS,
    VALUE_TARGETS,
    VF_PREDS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import clipped_surrogate, clipped_value_loss, explained_variance
from rlframe.models.fcnet_spec import POPART_LAYER
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.backends import lazy_policies
from rlframe.policy.components import AdaptiveKL, schedules_of
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, FusedGradients
from rlframe.policy.popart import PopArt
from rlframe.policy.schedules import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.policy.users_code import method
from rlframe.policy.value_network import ValueNetworkMixin, value_of_step
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

#: How far values move at least, if they are normalised and their mean is moved by 1.
_MOVED = 1e-3


def ppo_surrogate_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar.

        mean[ −min(ρA, clip(ρ, 1 ± ε) A) + β KL(π_old‖π) + c_v max((V − R)², (V_clip − R)²) / σ² − c_e H(π) + c_b B(π) ]

    B is how far means of Gaussians lie beyond the action bounds, see `action_bound_penalty`: `action_bound_coeff`. σ is
    the deviation that values are normalised by, see `PopArt`; 1 without `normalize_values`.

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", eqs. 7 to 9.
    """
    config = policy.config
    dist_inputs, _ = model(train_batch)
    dist = dist_class(dist_inputs, model)
    old_dist = dist_class(train_batch[ACTION_DIST_INPUTS], model)
    surrogate = clipped_surrogate(
        dist.logp(train_batch[ACTIONS]), train_batch[ACTION_LOGP], train_batch[ADVANTAGES], config["clip_param"]
    )
    mean, valid = valid_mean(train_batch), valid_rows(train_batch)
    kl, entropy = mean(old_dist.kl(dist)), mean(dist.entropy())
    targets = train_batch[VALUE_TARGETS]
    if config["use_critic"]:
        values = model.value_function()
        errors = clipped_value_loss(values, train_batch[VF_PREDS], targets, config["vf_clip_param"])
        vf_loss = mean(errors) / value_std(policy) ** 2
    else:
        values, vf_loss = ops.zeros_like(targets), ops.zeros_like(kl)
    policy_loss = -mean(surrogate)
    total = policy_loss + config["vf_loss_coeff"] * vf_loss - policy.entropy_coeff * entropy
    if _weighs_kl(policy):
        total = total + policy.kl_coeff * kl
    held: dict[str, Any] = {}
    if config.get("action_bound_coeff"):  # a config of the user's own may be RLlib's, without it
        bound_loss = policy.action_bound_loss(dist, mean)
        total, held = total + config["action_bound_coeff"] * bound_loss, policy.action_bound_stats(bound_loss)
    explained = explained_variance(valid(targets), valid(ops.stop_gradient(values)))
    policy.keep(
        total_loss=total,
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        vf_explained_var=explained,
        kl=kl,
        entropy=entropy,
        **held,
    )
    return total


def _weighs_kl(policy: Any) -> bool:
    """Returns whether the divergence is in the loss; where its weight is 0, it may be infinite."""
    weight = policy.kl_coeff  # a tensor while TensorFlow traces the loss
    return bool(policy.config["kl_coeff"]) or (isinstance(weight, (int, float)) and weight != 0)


def kl_and_loss_stats(policy: Any, train_batch: SampleBatch) -> dict[str, Any]:
    """Returns the statistics of the batch that the loss saw last."""
    del train_batch
    return {
        "cur_kl_coeff": policy.kl_coeff,
        "cur_lr": policy.cur_lr,
        **policy._loss_outputs,
        "entropy_coeff": policy.entropy_coeff,
    }


class PPOPolicy(ActionBoundPenalty, PopArt, LearningPolicy):
    """An actor with a critic, trained on a clipped surrogate; the equations are those of `ppo_surrogate_loss`."""

    defaults_from = "rlframe.agents.ppo.ppo:DEFAULT_CONFIG"

    wants_values = True
    train_columns = (ACTION_DIST_INPUTS, ACTION_LOGP, NEXT_OBS, DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ACTION_DIST_INPUTS, ACTION_LOGP, VF_PREDS, ADVANTAGES, VALUE_TARGETS)
    fused_gradients = FusedGradients({"torch": "rlframe.agents.ppo.dense_ppo_torch:DensePPOGradients"})
    kl_coeff: float
    kl_target: float
    _value = value_of_step

    def prepare(self) -> None:
        """Starts the KL penalty and the schedules, and decides whether values are normalised."""
        self.kl_penalty = AdaptiveKL(self, self.config["kl_coeff"], self.config["kl_target"])
        self.components.update(kl=self.kl_penalty, **schedules_of(self, self.config))
        self.decide_popart(self.config)

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`."""
        return {"loss": AdamSpec(WHOLE_MODEL, self.config["lr"], grad_clip=self.config["grad_clip"])}

    def make_components(self) -> dict[str, Component]:
        """Checks that the model's values are normalised where the config says so."""
        self.check_popart()
        return super().make_components()

    def update_kl(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the KL penalty's new weight."""
        return self.kl_penalty.update(sampled_kl)

    def decide_popart(self: Any, config: dict[str, Any]) -> None:
        """Decides whether values are normalised."""
        chosen, model = config.get("normalize_values", False), config["model"]
        if chosen is None:
            # Weights of value losses were found for errors in reward units where they matter: where values share their
            # layers, and in a loss of the user's own.
            shares = model["vf_share_layers"] or model["use_lstm"] or model["use_attention"]
            own = type(self).loss is PPOPolicy.loss and not model["custom_model"]
            chosen = own and not shares and config["use_critic"]
        self.setup_popart(config, normalizes=bool(chosen))

    def model_options(self) -> dict[str, Any]:
        """Returns the `model` section of the config, with PopArt's layer where values are normalised."""
        options = super().model_options()
        return {**options, POPART_LAYER: True} if self.normalizes else options

    def check_popart(self) -> None:
        """Leaves values as they are where the model has no layer of PopArt.

        Raises:
            ConfigError: If `normalize_values` asks for them.
        """
        if not self.normalizes or (self.model.set_value_moments(0.0, 1.0) and self._values_are_popart()):
            return
        if self.config["normalize_values"]:
            raise ConfigError(
                f"normalize_values=True: got {type(self.model).__name__}, which has no layer of PopArt; "
                "wanted the default network for vectors, a memory, or a model of your own whose value_function() is "
                "that of a FullyConnectedNetwork built from the model's own model_config. Leave the key out"
            )
        self.normalizes = False

    def _values_are_popart(self) -> bool:
        """Returns whether values come from a network with PopArt's layer: they move with its mean."""
        if not self.config["model"]["custom_model"]:
            return True
        space = self.observation_space
        obs = np.zeros((1, *(space.shape or ())), space.dtype)
        weights = self.get_weights()
        moved = {
            name: array + 1.0 if name.endswith(f"{POPART_LAYER}.bias") else array for name, array in weights.items()
        }
        before = method(self, "values")(obs)
        self.set_weights(moved)
        after = method(self, "values")(obs)
        self.set_weights(weights)
        return bool(np.abs(after - before).max() > _MOVED)

    def update_value_normalizer(self, rows: SampleBatch) -> None:
        """Updates the moments from a train batch's value targets; values stay what they are.

        Targets that are not finite move nothing: the loss, which they make so too, says whose they are.
        """
        if not self.normalizes or VALUE_TARGETS not in rows:  # postprocessing of the user's own may make none
            return
        targets = np.asarray(rows[VALUE_TARGETS], np.float64)
        normalized = (targets - self.value_mean) / self.value_std
        mean, spread = float(targets.mean()), float(np.square(normalized).mean())
        if not (math.isfinite(mean) and math.isfinite(spread)):
            return
        self.update_value_moments(mean, spread, np.asarray(rows[REWARDS]))
        self.model.set_value_moments(self.value_mean, self.value_std)
        self._weights_changed()

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds `advantages` and `value_targets`."""
        return compute_gae_for_sample_batch(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = compute_gae_for_sample_batch  # type: ignore[attr-defined]  # a marker for NumPy workers

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `ppo_surrogate_loss`."""
        return ppo_surrogate_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns losses, divergence, entropy and explained variance; see `kl_and_loss_stats`."""
        return kl_and_loss_stats(self, train_batch)


def value_std(policy: Any) -> Any:
    """Returns σ, which a policy's values are normalised by; 1 for policies that are no `PPOPolicy`."""
    return getattr(policy, "value_std", 1.0)


def setup_mixins(policy: Any, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
    """Starts the KL penalty and the schedules of a policy with PPO's mixins; RLlib's `before_loss_init` of PPO."""
    ValueNetworkMixin.__init__(policy, obs_space, action_space, config)
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])


__getattr__ = lazy_policies(__name__, PPOPolicy, PPOTorchPolicy="torch", PPOTFPolicy="tf")
