"""APPO in TensorFlow: the loss and the policy."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from rlframe.agents.impala.vtrace_tf_policy import VTraceTFPolicy
from rlframe.agents.ppo.appo_policy import MAX_WEIGHT, AsyncPPOPolicy
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    VALID_MASK,
    VALUE_TARGETS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import (
    clipped_surrogate,
    explained_variance,
    sampled_kl,
    scaled_by_rms,
)
from rlframe.losses.vtrace import batch_vtrace
from rlframe.policy.tf.target import TargetNetwork
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any
Terms = tuple[Tensor, Tensor, Tensor, Tensor | None, Any]


def terms_with_vtrace(policy: AsyncPPOTFPolicy, logp: Tensor, values: Tensor, batch: SampleBatch) -> Terms:
    """Returns what the surrogate is made of, with V-trace of the target policy π_old against the workers' μ.

    The surrogate's ratio is min(μ/π_old, 2) · π/μ: it is π/π_old but where workers lag far behind.

    Returns:
        `logp_old` `[B]` of the ratio π/old, advantages `[B]`, value targets `[B]`, which rows count (bool `[B]`, or
        None for all), and the distribution that the KL penalty is measured from.
    """
    inputs, _ = policy.target_network(batch)
    old_dist = policy.dist_class(tf.stop_gradient(inputs), policy.target_network.model)
    old_logp = old_dist.logp(batch[ACTIONS])
    vtrace, counts = batch_vtrace(batch, old_logp, values, **policy.vtrace_options())
    weight = tf.minimum(batch[ACTION_LOGP] - old_logp, math.log(MAX_WEIGHT))
    return batch[ACTION_LOGP] - weight, vtrace.advantages, vtrace.targets, counts, old_dist


def terms_with_gae(policy: AsyncPPOTFPolicy, logp: Tensor, values: Tensor, batch: SampleBatch) -> Terms:
    """Returns what the surrogate is made of, with advantages and value targets as the workers estimated them.

    Returns:
        As `terms_with_vtrace`; the old policy is the workers'.
    """
    del logp, values
    old_dist = policy.dist_class(batch[ACTION_DIST_INPUTS], policy.model)
    return batch[ACTION_LOGP], batch[ADVANTAGES], batch[VALUE_TARGETS], batch.get(VALID_MASK), old_dist


def appo_surrogate_loss(policy: AsyncPPOTFPolicy, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
    """Returns the loss of one batch, a scalar; or those of policy and values, with `_separate_vf_optimizer`.

        mean[ −min(ρA, clip(ρ, 1 ± ε) A) + β KL(π_old‖π) + c_v ½ ((V − v_s) / σ)² − c_e H(π) + c_k KL(μ‖π) + c_b B(π) ]

    Advantages are in units of their root mean square, values in units of σ, the policy is held near those that acted
    (μ), and means within the action bounds, as in `vtrace_loss`.

    Source: Schulman et al. 2017, eq. 7, on Espeholt et al. 2018, eq. 1; Luo et al. 2020, "IMPACT", section 3.
    """
    config = policy.config
    dist_inputs, _ = model(train_batch)
    dist, values = dist_class(dist_inputs, model), policy.in_reward_units(model.value_function())
    logp = dist.logp(train_batch[ACTIONS])
    terms = terms_with_vtrace if config["vtrace"] else terms_with_gae
    old_logp, advantages, targets, counts, old_dist = terms(policy, logp, values, train_batch)
    mean, counted = valid_mean({VALID_MASK: counts}), valid_rows({VALID_MASK: counts})
    if policy.scales_advantages:
        advantages = scaled_by_rms(advantages, mean)
    policy_loss = -mean(clipped_surrogate(logp, old_logp, advantages, config["clip_param"]))
    kl, entropy = mean(old_dist.kl(dist)), mean(dist.entropy())
    vf_loss = (
        0.5 * mean(tf.square((values - targets) / policy.value_std))
        if config["use_critic"]
        else tf.zeros_like(policy_loss)
    )
    behaviour_kl = mean(sampled_kl(logp, train_batch[ACTION_LOGP]))
    bound_loss = policy.bound_loss(dist, mean)
    policy_terms = policy_loss - policy.entropy_coeff * entropy + policy.held(behaviour_kl, bound_loss)
    if config["use_kl_loss"]:
        policy_terms = policy_terms + policy.kl_coeff * kl
    value_terms = config["vf_loss_coeff"] * vf_loss
    weights = tf.exp(train_batch[ACTION_LOGP] - old_logp)
    mean_weight = mean(weights)
    policy.keep(
        total_loss=policy_terms + value_terms,
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        entropy=entropy,
        behaviour_kl=behaviour_kl,
        **policy.bound_stats(bound_loss),
        **policy.target_stats(targets, mean),
        vf_explained_var=explained_variance(counted(targets), counted(tf.stop_gradient(values))),
        mean_IS=mean_weight,
        var_IS=mean(tf.square(weights - mean_weight)),
        kl=kl,
    )
    return policy.losses(policy_terms, value_terms)


class AsyncPPOTFPolicy(AsyncPPOPolicy, VTraceTFPolicy):
    """An actor with a critic, trained on a clipped surrogate against a policy of a few batches ago."""

    def __init__(self, obs_space: Any, action_space: Any, config: dict[str, Any]) -> None:
        VTraceTFPolicy.__init__(self, obs_space, action_space, config)
        with tf.device(self.device), self.seeded("target"):
            self.target_network = TargetNetwork(self.model, self.make_model_and_dist()[0])

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
        """Returns the loss of one batch; see `appo_surrogate_loss`."""
        return appo_surrogate_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns IMPALA's statistics, those of the importance weights, and the KL penalty's weight."""
        return {**super().extra_grad_info(train_batch), "KL_Coeff": self.kl_coeff}


__all__ = ["AsyncPPOTFPolicy", "appo_surrogate_loss", "terms_with_gae", "terms_with_vtrace"]
