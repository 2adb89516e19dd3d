"""APPO: the loss and the policy, for both frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.families.users_losses import called_as_in_rllib
from rlframe.agents.families.vtrace_policy import (
    KEPT_KL,
    KEPT_NAMES,
    LOSS_COLUMNS,
    Estimates,
    asynchronous_loss,
    complete_for_vtrace,
    postprocess_for_vtrace,
    prepare_vtrace,
    rows_of_vtrace,
    vtrace_optimizers,
    vtrace_options,
    vtrace_stats,
)
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
from rlframe.losses.policy_gradients import clipped_surrogate
from rlframe.losses.vtrace import batch_vtrace
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.backends import lazy_policies
from rlframe.policy.coefficients import AdaptiveKL, update_kl
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, LossOutput, OptimizerSpec
from rlframe.policy.popart import OutputPopArt
from rlframe.policy.value_network import value_of_step
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

if TYPE_CHECKING:
    from rlframe.agents.appo.appo import APPOConfig

#: Largest weight μ/π_old of a row whose behaviour policy and target policy differ.
MAX_WEIGHT = 2.0

#: log π_old(a|s) `[B]` of the surrogate's ratio, what is learned from, and what the KL penalty is measured from.
Terms = tuple[Tensor, Estimates, Any]


#: By statistic, the names under which losses for RLlib 1.x kept it.
_KEPT = {**KEPT_NAMES, **KEPT_KL}


def postprocess_for_appo(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds what V-trace needs, or `advantages` and `value_targets` where it is switched off."""
    postprocess = postprocess_for_vtrace if policy.config.vtrace else compute_gae_for_sample_batch
    return postprocess(policy, sample_batch, other_agent_batches, episode)


postprocess_for_appo.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_for_appo.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def terms_with_vtrace(policy: Any, logp: Tensor, values: Tensor, batch: SampleBatch) -> Terms:
    """Returns what the surrogate is made of, with V-trace of the target policy π_old against the workers' μ.

    The surrogate's ratio is min(μ/π_old, 2) · π/μ: it is π/π_old but where workers lag far behind.
    """
    inputs, _ = policy.target_network(batch)
    old_dist = policy.dist_class(ops.stop_gradient(inputs), policy.target_network.model)
    old_logp = old_dist.logp(batch[ACTIONS])
    vtrace, counts = batch_vtrace(batch, old_logp, values, **vtrace_options(policy))
    weight = ops.minimum(batch[ACTION_LOGP] - old_logp, math.log(MAX_WEIGHT))
    return batch[ACTION_LOGP] - weight, Estimates(vtrace.targets, vtrace.advantages, counts), old_dist


def terms_with_gae(policy: Any, logp: Tensor, values: Tensor, batch: SampleBatch) -> Terms:
    """Returns the same with advantages and value targets as the workers estimated them; the old policy is theirs."""
    del logp, values
    old_dist = policy.dist_class(batch[ACTION_DIST_INPUTS], policy.model)
    return batch[ACTION_LOGP], Estimates(batch[VALUE_TARGETS], batch[ADVANTAGES], batch.get(VALID_MASK)), old_dist


def appo_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one batch, `asynchronous_loss` with PPO's surrogate −min(ρA, clip(ρ, 1 ± ε) A).

    With `use_kl_loss` β KL(π_old‖π) is added.

    Source: Schulman et al. 2017, eq. 7, on Espeholt et al. 2018, eq. 1; Luo et al. 2020, "IMPACT", section 3.
    """
    config = policy.config
    dist_inputs, _ = model(train_batch)
    dist, values = dist_class(dist_inputs, model), policy.popart.in_reward_units(model.value_function())
    logp = dist.logp(train_batch[ACTIONS])
    terms = terms_with_vtrace if config.vtrace else terms_with_gae
    old_logp, estimates, old_dist = terms(policy, ops.stop_gradient(logp), ops.stop_gradient(values), train_batch)
    kl, weights = estimates.mean(old_dist.kl(dist)), ops.exp(train_batch[ACTION_LOGP] - old_logp)
    mean_weight = estimates.mean(weights)

    def surrogate(advantages: Tensor) -> Tensor:
        return -clipped_surrogate(logp, old_logp, advantages, config["clip_param"])

    return asynchronous_loss(
        policy, train_batch, dist, logp, values, estimates, surrogate,
        penalty=policy.kl_coeff * kl if config["use_kl_loss"] else 0.0, learns_values=config["use_critic"],
        stats={"mean_IS": mean_weight, "var_IS": estimates.mean(ops.square(weights - mean_weight)), "kl": kl},
    )  # fmt: skip


def appo_surrogate_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
    """Returns the loss of one batch, a scalar, or one by optimiser; the policy keeps the rest. See `appo_loss`."""
    return called_as_in_rllib(appo_loss, (policy, model, dist_class, train_batch), _KEPT)


class AsyncPPOPolicy(LearningPolicy):
    """An actor with a critic, trained on a clipped surrogate against a policy of a few batches ago."""

    config: APPOConfig
    defaults_from = "rlframe.agents.appo.appo:DEFAULT_CONFIG"

    learns_values = True
    kept_names = _KEPT
    train_columns: tuple[str, ...] | None = (ACTION_LOGP,)
    learn_columns: tuple[str, ...] | None = LOSS_COLUMNS
    _value = value_of_step
    postprocess_trajectory = postprocess_for_appo
    complete_columns = complete_batch = complete_for_vtrace
    counted_rows = rows_of_vtrace
    update_kl = update_kl
    target_networks = WHOLE_MODEL

    popart: OutputPopArt
    action_bounds: ActionBoundPenalty
    cur_lr: float
    entropy_coeff: float
    kl_coeff: float

    def prepare(self) -> None:
        """Makes schedules, PopArt and penalties; without V-trace, other columns are collected and learned from."""
        prepare_vtrace(self)
        self.components["kl"] = AdaptiveKL(self, self.config.kl_coeff, self.config.kl_target)
        if self.config.vtrace:
            return
        if self.train_columns is not None:
            self.train_columns = (ACTION_DIST_INPUTS, ACTION_LOGP, NEXT_OBS, DONES, ENV_ID)
        if self.learn_columns is not None:
            self.learn_columns = (OBS, ACTIONS, ACTION_DIST_INPUTS, ACTION_LOGP, ADVANTAGES, VALUE_TARGETS)

    def optimizers(self) -> Mapping[str, OptimizerSpec]:
        """Returns the optimiser that `opt_type` names; RLlib's losses were means here, and so its limits are."""
        return vtrace_optimizers(self.config, sums=False)

    def values(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Returns V(s) [B] of `obs` [B, ...], in discounted reward units."""
        return np.asarray(self.popart.in_reward_units(super().values(obs)), np.float32)

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one batch; see `appo_loss`."""
        return appo_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns IMPALA's statistics, those of the importance weights, and the KL penalty's weight."""
        return {**vtrace_stats(self, train_batch), "KL_Coeff": self.kl_coeff}

    def update_target(self, tau: float | None = None) -> None:
        """Copies the network into the target policy's; with τ below 1, moves it there by so much."""
        super().update_target(1.0 if tau is None else tau)


__getattr__ = lazy_policies(__name__, AsyncPPOPolicy, AsyncPPOTorchPolicy="torch", AsyncPPOTFPolicy="tf")
