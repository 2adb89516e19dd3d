"""PPO in TensorFlow: the loss and the policy."""

from __future__ import annotations

from typing import Any, TypeAlias

from rlframe.agents.ppo.ppo_policy import KLCoeffMixin, PPOPolicy, setup_mixins, value_std
from rlframe.data.columns import ACTION_DIST_INPUTS, ACTION_LOGP, ACTIONS, ADVANTAGES, VALUE_TARGETS, VF_PREDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import (
    beyond_bounds,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
)
from rlframe.policy.tf_policy import TFPolicy
from rlframe.policy.value_network import ValueNetworkMixin
from rlframe.utils.quiet_tf import tf

Stats = dict[str, Any]
Tensor: TypeAlias = Any


def ppo_surrogate_loss(policy: PPOTFPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
    """Returns the loss of one batch, a scalar.

        mean[ −min(ρA, clip(ρ, 1 ± ε) A) + β KL(π_old‖π) + c_v max((V − R)², (V_clip − R)²) / σ² − c_e H(π) + c_b B(π) ]

    B is how far means of Gaussians lie beyond the action bounds, see `beyond_bounds`: `action_bound_coeff`. σ is the
    unit that values are learned in, see `ValueUnits`; 1 without `normalize_values`.

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
        values, vf_loss = tf.zeros_like(targets), tf.zeros_like(kl)
    policy_loss = -mean(surrogate)
    total = policy_loss + config["vf_loss_coeff"] * vf_loss - policy.entropy_coeff * entropy
    if config["kl_coeff"]:
        total = total + policy.kl_coeff * kl
    held: Stats = {}
    if config.get("action_bound_coeff"):  # a config of the user's own may be RLlib's, without it
        bound_loss = policy.bound_loss(dist, mean)
        total, held = total + config["action_bound_coeff"] * bound_loss, policy.bound_stats(bound_loss)
    explained = explained_variance(valid(targets), valid(tf.stop_gradient(values)))
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


def kl_and_loss_stats(policy: PPOTFPolicy, train_batch: SampleBatch) -> Stats:
    """Returns the statistics of the batch that the loss saw last."""
    del train_batch
    return {
        "cur_kl_coeff": policy.kl_coeff,
        "cur_lr": policy.cur_lr,
        **policy._loss_outputs,
        "entropy_coeff": policy.entropy_coeff,
    }


class PPOTFPolicy(PPOPolicy, TFPolicy):
    """An actor with a critic, trained on a clipped surrogate."""

    learn_scalars = (*TFPolicy.learn_scalars, "value_std")

    beyond_bounds = staticmethod(beyond_bounds)

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        self._loss_outputs: Stats = {}
        self.setup_mixins(config)
        self.setup_units(config)
        TFPolicy.__init__(self, obs_space, action_space, config)
        self.check_value_units()

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns the loss of one batch; see `ppo_surrogate_loss`."""
        return ppo_surrogate_loss(self, model, dist_class, train_batch)

    def gradients(self, optimizer: Any, loss: Tensor) -> list[tuple[Any, Any]]:
        """Clips the gradient's global norm to `grad_clip`."""
        return self.clip_gradients(super().gradients(optimizer, loss), self.config["grad_clip"])

    def extra_grad_info(self, train_batch: SampleBatch) -> Stats:
        """Returns losses, divergence, entropy and explained variance; see `kl_and_loss_stats`."""
        return kl_and_loss_stats(self, train_batch)


__all__ = [
    "KLCoeffMixin",
    "PPOTFPolicy",
    "ValueNetworkMixin",
    "kl_and_loss_stats",
    "ppo_surrogate_loss",
    "setup_mixins",
]
