"""PPO: the loss and the policy, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.agents.families.users_losses import called_as_in_rllib, kept_by_users_loss
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
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import clipped_surrogate, clipped_value_loss, explained_variance
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.backends import lazy_policies
from rlframe.policy.coefficients import AdaptiveKL, schedules_of, update_kl
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, Component, FusedGradients, LossOutput
from rlframe.policy.popart import LayerPopArt, value_std
from rlframe.policy.value_network import value_of_step
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.ppo.ppo import PPOConfig


def ppo_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch, a scalar, and its statistics.

        mean[ −min(ρA, clip(ρ, 1 ± ε) A) + β KL(π_old‖π) + c_v max((V − R)², (V_clip − R)²) / σ² − c_e H(π) + c_b B(π) ]

    B is how far means of Gaussians lie beyond the action bounds, see `action_bound_penalty`: `action_bound_coeff`. σ is
    the deviation that values are normalised by, see `LayerPopArt`; 1 without `normalize_values`.

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", eqs. 7 to 9.
    """
    config = policy.config
    dist_inputs, _ = model(train_batch)
    dist = dist_class(dist_inputs, model)
    old_dist = dist_class(train_batch[ACTION_DIST_INPUTS], model)
    surrogate = clipped_surrogate(
        dist.logp(train_batch[ACTIONS]), train_batch[ACTION_LOGP], train_batch[ADVANTAGES], config.clip_param
    )
    mean, valid = valid_mean(train_batch), valid_rows(train_batch)
    kl, entropy = mean(old_dist.kl(dist)), mean(dist.entropy())
    targets = train_batch[VALUE_TARGETS]
    if config.use_critic:
        values = model.value_function()
        errors = clipped_value_loss(values, train_batch[VF_PREDS], targets, config.vf_clip_param)
        vf_loss = mean(errors) / value_std(policy) ** 2
    else:
        values, vf_loss = ops.zeros_like(targets), ops.zeros_like(kl)
    policy_loss = -mean(surrogate)
    total = policy_loss + config.vf_loss_coeff * vf_loss - policy.entropy_coeff * entropy
    if _weighs_kl(policy):
        total = total + policy.kl_coeff * kl
    held: dict[str, Any] = {}
    if config.get("action_bound_coeff"):  # a config of the user's own may be RLlib's, without it
        bound_loss = policy.action_bounds.loss(dist, mean)
        total, held = total + config.action_bound_coeff * bound_loss, policy.action_bounds.stats(bound_loss)
    explained = explained_variance(valid(targets), valid(ops.stop_gradient(values)))
    stats = {
        "total_loss": total,
        "policy_loss": policy_loss,
        "vf_loss": vf_loss,
        "vf_explained_var": explained,
        "kl": kl,
        "entropy": entropy,
    }
    return LossOutput(total, {**stats, **held})


def ppo_surrogate_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar; the policy keeps the rest. See `ppo_loss`."""
    return called_as_in_rllib(ppo_loss, (policy, model, dist_class, train_batch), _KEPT)


def _weighs_kl(policy: Any) -> bool:
    """Returns whether the divergence is in the loss; where its weight is 0, it may be infinite."""
    weight = policy.kl_coeff  # a tensor while TensorFlow traces the loss
    return bool(policy.config.kl_coeff) or (isinstance(weight, (int, float)) and weight != 0)


def kl_and_loss_stats(policy: Any, train_batch: SampleBatch) -> dict[str, Any]:
    """Returns the statistics of the batch that the loss saw last, also where a loss of the user's own kept them."""
    del train_batch
    told = policy._loss_outputs
    kept = {} if told.keys() >= _KEPT.keys() else _kept_by_users_loss(policy)
    return {
        "cur_kl_coeff": policy.kl_coeff,
        "cur_lr": policy.cur_lr,
        **kept,
        **told,
        "entropy_coeff": policy.entropy_coeff,
    }


_KEPT = {
    "total_loss": ("total_loss",),
    "policy_loss": ("mean_policy_loss",),
    "vf_loss": ("mean_vf_loss",),
    "vf_explained_var": ("vf_explained_var",),
    "kl": ("mean_kl_loss", "mean_kl"),
    "entropy": ("mean_entropy",),
}
"""By statistic, the names under which losses for RLlib 1.x kept it; see `kept_by_users_loss`."""
_KEPT_IN_OBJECT = {"total_loss": "loss", "policy_loss": "mean_policy_loss", "vf_loss": "mean_vf_loss", "kl": "mean_kl",
                   "entropy": "mean_entropy"}  # fmt: skip
"""By statistic, the attribute of `policy.loss_obj` in which losses for RLlib 0.8 left it."""


def _kept_by_users_loss(policy: Any) -> dict[str, Any]:
    """Returns the statistics that a loss left under RLlib's names; the penalty's weight adapts to `kl`."""
    made = getattr(policy, "loss_obj", None)
    kept = {name: getattr(made, attribute, None) for name, attribute in _KEPT_IN_OBJECT.items()}
    return {name: value for name, value in kept.items() if value is not None} | kept_by_users_loss(policy, _KEPT)


class PPOPolicy(LearningPolicy):
    """An actor with a critic, trained on a clipped surrogate; the equations are those of `ppo_loss`."""

    config: PPOConfig
    defaults_from = "rlframe.agents.ppo.ppo:DEFAULT_CONFIG"

    wants_values = True
    train_columns = (ACTION_DIST_INPUTS, ACTION_LOGP, NEXT_OBS, DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ACTION_DIST_INPUTS, ACTION_LOGP, VF_PREDS, ADVANTAGES, VALUE_TARGETS)
    fused_gradients = FusedGradients({"torch": "rlframe.agents.ppo.dense_ppo_torch:DensePPOGradients"})
    kept_names: Mapping[str, tuple[str, ...]] = _KEPT
    reported: Mapping[str, str] = {"cur_kl_coeff": "kl_coeff", "cur_lr": "cur_lr", "entropy_coeff": "entropy_coeff"}
    kl_coeff: float
    kl_target: float
    _value = value_of_step
    postprocess_trajectory = compute_gae_for_sample_batch
    update_kl = update_kl

    def prepare(self) -> None:
        """Makes the KL penalty, the schedules, PopArt and the penalty on means beyond the action bounds."""
        config = self.config
        self.popart = LayerPopArt(self, normalizes=self._normalizes_values())
        self.action_bounds = ActionBoundPenalty(self)
        kl_penalty = AdaptiveKL(self, config.kl_coeff, config.kl_target)
        self.components.update(kl=kl_penalty, popart=self.popart, **schedules_of(self, config))

    def _normalizes_values(self) -> bool:
        chosen, model = self.config.normalize_values, self.config.model
        if chosen is not None:
            return bool(chosen)
        # Weights of value losses were found for errors in reward units where they matter: where values share their
        # layers, and in a loss of the user's own.
        shares = model["vf_share_layers"] or model["use_lstm"] or model["use_attention"]
        own = type(self).loss is PPOPolicy.loss and not model["custom_model"]
        return bool(own and not shares and self.config.use_critic)

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`."""
        return {"loss": AdamSpec(WHOLE_MODEL, self.config.lr, grad_clip=self.config.grad_clip)}

    def model_options(self) -> dict[str, Any]:
        """Returns the `model` section of the config, with PopArt's layer where values are normalised."""
        return self.popart.model_options(super().model_options())

    def make_components(self) -> dict[str, Component]:
        """Checks that the model's values are normalised where the config says so."""
        self.popart.check_model()
        return super().make_components()

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `ppo_loss`."""
        return ppo_loss(self, model, dist_class, train_batch)

    def stats_left(self) -> dict[str, Any]:
        """Returns statistics that a loss of the user's own had the policy keep, or left as RLlib's did."""
        return {**_kept_by_users_loss(self), **self._loss_outputs}


__getattr__ = lazy_policies(__name__, PPOPolicy, PPOTorchPolicy="torch", PPOTFPolicy="tf")
