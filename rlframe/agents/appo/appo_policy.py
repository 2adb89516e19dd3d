"""APPO: the loss and the policy, for both frameworks."""

from __future__ import annotations

import math
from typing import Any

from rlframe.agents.families.vtrace_policy import BACKENDS, VTracePolicy
from rlframe.agents.families.vtrace_postprocessing import postprocess_for_vtrace
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    DONES,
    ENV_ID,
    NEXT_OBS,
    OBS,
    VALID_MASK,
    VALUE_TARGETS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import clipped_surrogate, explained_variance, sampled_kl, scaled_by_rms
from rlframe.losses.vtrace import batch_vtrace
from rlframe.policy.backends import lazy_policies
from rlframe.policy.components import AdaptiveKL
from rlframe.policy.parts import WHOLE_MODEL
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: Largest weight μ/π_old of a row whose behaviour policy and target policy differ.
MAX_WEIGHT = 2.0

Terms = tuple[Tensor, Tensor, Tensor, Tensor | None, Any]


def postprocess_for_appo(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds what V-trace needs, or `advantages` and `value_targets` where it is switched off."""
    postprocess = postprocess_for_vtrace if policy.config["vtrace"] else compute_gae_for_sample_batch
    return postprocess(policy, sample_batch, other_agent_batches, episode)


postprocess_for_appo.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_for_appo.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def terms_with_vtrace(policy: Any, logp: Tensor, values: Tensor, batch: SampleBatch) -> Terms:
    """Returns what the surrogate is made of, with V-trace of the target policy π_old against the workers' μ.

    The surrogate's ratio is min(μ/π_old, 2) · π/μ: it is π/π_old but where workers lag far behind.

    Returns:
        `logp_old` `[B]` of the ratio π/old, advantages `[B]`, value targets `[B]`, which rows count (bool `[B]`, or
        None for all), and the distribution that the KL penalty is measured from.
    """
    inputs, _ = policy.target_network(batch)
    old_dist = policy.dist_class(ops.stop_gradient(inputs), policy.target_network.model)
    old_logp = old_dist.logp(batch[ACTIONS])
    vtrace, counts = batch_vtrace(batch, old_logp, values, **policy.vtrace_options())
    weight = ops.minimum(batch[ACTION_LOGP] - old_logp, math.log(MAX_WEIGHT))
    return batch[ACTION_LOGP] - weight, vtrace.advantages, vtrace.targets, counts, old_dist


def terms_with_gae(policy: Any, logp: Tensor, values: Tensor, batch: SampleBatch) -> Terms:
    """Returns what the surrogate is made of, with advantages and value targets as the workers estimated them.

    Returns:
        As `terms_with_vtrace`; the old policy is the workers'.
    """
    del logp, values
    old_dist = policy.dist_class(batch[ACTION_DIST_INPUTS], policy.model)
    return batch[ACTION_LOGP], batch[ADVANTAGES], batch[VALUE_TARGETS], batch.get(VALID_MASK), old_dist


def appo_surrogate_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
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
    now = ops.stop_gradient(logp), ops.stop_gradient(values)
    old_logp, advantages, targets, counts, old_dist = terms(policy, *now, train_batch)
    mean, counted = valid_mean({VALID_MASK: counts}), valid_rows({VALID_MASK: counts})
    if policy.scales_advantages:
        advantages = scaled_by_rms(advantages, mean)
    policy_loss = -mean(clipped_surrogate(logp, old_logp, advantages, config["clip_param"]))
    kl, entropy = mean(old_dist.kl(dist)), mean(dist.entropy())
    vf_loss = (
        0.5 * mean(ops.square((values - targets) / policy.value_std))
        if config["use_critic"]
        else ops.zeros_like(policy_loss)
    )
    behaviour_kl = mean(sampled_kl(logp, train_batch[ACTION_LOGP]))
    bound_loss = policy.action_bound_loss(dist, mean)
    policy_terms = policy_loss - policy.entropy_coeff * entropy + policy.held(behaviour_kl, bound_loss)
    if config["use_kl_loss"]:
        policy_terms = policy_terms + policy.kl_coeff * kl
    value_terms = config["vf_loss_coeff"] * vf_loss
    weights = ops.exp(train_batch[ACTION_LOGP] - old_logp)
    mean_weight = mean(weights)
    policy.keep(
        total_loss=policy_terms + value_terms,
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        entropy=entropy,
        behaviour_kl=behaviour_kl,
        **policy.action_bound_stats(bound_loss),
        **policy.target_stats(targets, mean),
        vf_explained_var=explained_variance(counted(targets), counted(now[1])),
        mean_IS=mean_weight,
        var_IS=mean(ops.square(weights - mean_weight)),
        kl=kl,
    )
    return policy.losses(policy_terms, value_terms)


class AsyncPPOPolicy(VTracePolicy):
    """An actor with a critic, trained on a clipped surrogate against a policy of a few batches ago."""

    defaults_from = "rlframe.agents.appo.appo:DEFAULT_CONFIG"
    limits_are_for_sums = False  # RLlib's losses were means here

    target_networks = WHOLE_MODEL
    kl_coeff: float

    def prepare(self) -> None:
        """Starts the KL penalty and the schedules; without V-trace, other columns are collected and learned from."""
        self.kl_penalty = AdaptiveKL(self, self.config["kl_coeff"], self.config["kl_target"])
        self.components["kl"] = self.kl_penalty
        super().prepare()
        if self.config["vtrace"]:
            return
        if self.train_columns is not None:
            self.train_columns = (ACTION_DIST_INPUTS, ACTION_LOGP, NEXT_OBS, DONES, ENV_ID)
        if self.learn_columns is not None:
            self.learn_columns = (OBS, ACTIONS, ACTION_DIST_INPUTS, ACTION_LOGP, ADVANTAGES, VALUE_TARGETS)

    def postprocess_trajectory(
        self, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
    ) -> SampleBatch:
        """Adds what V-trace needs, or advantages where it is switched off."""
        return postprocess_for_appo(self, sample_batch, other_agent_batches, episode)

    postprocess_trajectory.framework_free = postprocess_for_appo  # type: ignore[attr-defined]  # a marker for NumPy workers

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
        """Returns the loss of one batch; see `appo_surrogate_loss`."""
        return appo_surrogate_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns IMPALA's statistics, those of the importance weights, and the KL penalty's weight."""
        return {**super().extra_grad_info(train_batch), "KL_Coeff": self.kl_coeff}

    def update_kl(self, sampled_kl: float) -> float:
        """Takes the mean divergence of a train batch, in nats, and returns the KL penalty's new weight."""
        return self.kl_penalty.update(sampled_kl)

    def update_target(self, tau: float | None = None) -> None:
        """Copies the network into the target policy's; with τ below 1, moves it there by so much."""
        super().update_target(1.0 if tau is None else tau)


__getattr__ = lazy_policies(
    __name__, AsyncPPOPolicy, backends=BACKENDS, AsyncPPOTorchPolicy="torch", AsyncPPOTFPolicy="tf"
)
