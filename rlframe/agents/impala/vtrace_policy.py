"""IMPALA: the loss on V-trace and the policy, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.vtrace_policy import (
    LOSS_COLUMNS,
    by_optimizer,
    complete_for_vtrace,
    held,
    postprocess_for_vtrace,
    prepare_vtrace,
    rows_of_vtrace,
    vtrace_optimizers,
    vtrace_options,
    vtrace_stats,
)
from rlframe.data.columns import ACTION_LOGP, ACTIONS, VALID_MASK
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import explained_variance, policy_gradient, sampled_kl, scaled_by_rms
from rlframe.losses.vtrace import batch_vtrace
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.backends import lazy_policies
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import OptimizerSpec
from rlframe.policy.popart import OutputPopArt
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
    config, popart = policy.config, policy.popart
    dist_inputs, _ = model(train_batch)
    dist, values = dist_class(dist_inputs, model), popart.in_reward_units(model.value_function())
    logp = dist.logp(train_batch[ACTIONS])
    now = ops.stop_gradient(logp), ops.stop_gradient(values)
    vtrace, counts = batch_vtrace(train_batch, *now, **vtrace_options(config))
    mean, counted = valid_mean({VALID_MASK: counts}), valid_rows({VALID_MASK: counts})
    advantages = scaled_by_rms(vtrace.advantages, mean) if policy.scales_advantages else vtrace.advantages
    policy_loss = mean(policy_gradient(logp, advantages))
    vf_loss = 0.5 * mean(ops.square((values - vtrace.targets) / policy.value_std))
    entropy = mean(dist.entropy())
    behaviour_kl = mean(sampled_kl(logp, train_batch[ACTION_LOGP]))
    bound_loss = policy.action_bounds.loss(dist, mean)
    policy_terms = policy_loss - policy.entropy_coeff * entropy + held(config, behaviour_kl, bound_loss)
    value_terms = config["vf_loss_coeff"] * vf_loss
    policy.keep(
        total_loss=policy_terms + value_terms,
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        entropy=entropy,
        behaviour_kl=behaviour_kl,
        **policy.action_bounds.stats(bound_loss),
        **popart.target_stats(vtrace.targets, mean),
        vf_explained_var=explained_variance(counted(vtrace.targets), counted(now[1])),
    )
    return by_optimizer(config, policy_terms, value_terms)


class ImpalaPolicy(LearningPolicy):
    """An actor with a critic, trained on rows of policies that lag behind."""

    defaults_from = "rlframe.agents.impala.impala:DEFAULT_CONFIG"

    learns_values = True
    train_columns: tuple[str, ...] | None = (ACTION_LOGP,)
    learn_columns: tuple[str, ...] | None = LOSS_COLUMNS
    postprocess_trajectory = postprocess_for_vtrace
    complete_columns = complete_for_vtrace
    counted_rows = rows_of_vtrace
    extra_grad_info = vtrace_stats

    popart: OutputPopArt
    action_bounds: ActionBoundPenalty
    cur_lr: float
    entropy_coeff: float

    def prepare(self) -> None:
        """Makes schedules, PopArt and the penalty on means beyond the action bounds."""
        prepare_vtrace(self)

    def optimizers(self) -> Mapping[str, OptimizerSpec]:
        """Returns the optimiser that `opt_type` names, with limits for gradients of sums, as RLlib's are."""
        return vtrace_optimizers(self.config, sums=True)

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns V(s) [B] of `obs` [B, ...], in discounted reward units."""
        return np.asarray(self.popart.in_reward_units(super().values(obs)), np.float32)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
        """Returns the loss of one batch; see `vtrace_loss`."""
        return vtrace_loss(self, model, dist_class, train_batch)


__getattr__ = lazy_policies(__name__, ImpalaPolicy, VTraceTorchPolicy="torch", VTraceTFPolicy="tf")
