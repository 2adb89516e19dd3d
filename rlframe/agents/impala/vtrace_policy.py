"""IMPALA: the loss on V-trace and the policy, for both frameworks."""

from __future__ import annotations

from typing import Any

from rlframe.agents.families.vtrace_policy import BACKENDS, VTracePolicy
from rlframe.data.columns import ACTION_LOGP, ACTIONS, VALID_MASK
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import explained_variance, policy_gradient, sampled_kl, scaled_by_rms
from rlframe.losses.vtrace import batch_vtrace
from rlframe.policy.backends import lazy_policies
from rlframe.tensor import ops


def vtrace_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
    """Returns the loss of one batch, a scalar; or those of policy and values, with `_separate_vf_optimizer`.

        mean[ −log π(a|s) A + c_v ½ ((V − v_s) / σ)² − c_e H(π) + c_k KL(μ‖π) + c_b B(π) ]

    μ is the policy that acted: where π left it, the fourth term pulls back, which V-trace alone does not. B is how far
    means of Gaussians lie beyond the action bounds, see `action_bound_penalty`; 0 for other distributions. A is in
    units of its root mean square with `scale_advantages`. With `normalize_values` V is μ_v + σ times what the network
    gives, μ_v and σ the running mean and standard deviation of v_s; without, they are 0 and 1.
    RLlib summed over the rows; with a mean, the length of a step does not depend on the size of the batch.

    Source: Espeholt et al. 2018, "IMPALA", section 4.2.
    """
    dist_inputs, _ = model(train_batch)
    dist, values = dist_class(dist_inputs, model), policy.in_reward_units(model.value_function())
    logp = dist.logp(train_batch[ACTIONS])
    now = ops.stop_gradient(logp), ops.stop_gradient(values)
    vtrace, counts = batch_vtrace(train_batch, *now, **policy.vtrace_options())
    mean, counted = valid_mean({VALID_MASK: counts}), valid_rows({VALID_MASK: counts})
    advantages = scaled_by_rms(vtrace.advantages, mean) if policy.scales_advantages else vtrace.advantages
    policy_loss = mean(policy_gradient(logp, advantages))
    vf_loss = 0.5 * mean(ops.square((values - vtrace.targets) / policy.value_std))
    entropy = mean(dist.entropy())
    behaviour_kl = mean(sampled_kl(logp, train_batch[ACTION_LOGP]))
    bound_loss = policy.action_bound_loss(dist, mean)
    policy_terms = policy_loss - policy.entropy_coeff * entropy + policy.held(behaviour_kl, bound_loss)
    value_terms = policy.config["vf_loss_coeff"] * vf_loss
    policy.keep(
        total_loss=policy_terms + value_terms,
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        entropy=entropy,
        behaviour_kl=behaviour_kl,
        **policy.action_bound_stats(bound_loss),
        **policy.target_stats(vtrace.targets, mean),
        vf_explained_var=explained_variance(counted(vtrace.targets), counted(now[1])),
    )
    return policy.losses(policy_terms, value_terms)


class ImpalaPolicy(VTracePolicy):
    """An actor with a critic, trained on rows of policies that lag behind."""

    defaults_from = "rlframe.agents.impala.impala:DEFAULT_CONFIG"

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
        """Returns the loss of one batch; see `vtrace_loss`."""
        return vtrace_loss(self, model, dist_class, train_batch)


__getattr__ = lazy_policies(__name__, ImpalaPolicy, backends=BACKENDS, VTraceTorchPolicy="torch", VTraceTFPolicy="tf")
