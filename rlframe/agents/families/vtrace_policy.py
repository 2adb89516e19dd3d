"""What policies have that learn from rows of policies that lag behind, corrected by V-trace; functions of a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlframe.agents.families.users_losses import kept_by_users_loss
from rlframe.data.column_dict import terminal_rows, trajectory_ends
from rlframe.data.columns import (
    ACTION_LOGP,
    ACTIONS,
    DISCOUNTS,
    DONES,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TRAJECTORY_ENDS,
    VALID_MASK,
    VALUES_AFTER,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import explained_variance, sampled_kl, scaled_by_rms
from rlframe.models.dist_plan import is_gaussian
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.coefficients import schedules_of
from rlframe.policy.parts import (
    MODEL_OUTPUTS,
    MODEL_VALUES,
    WHOLE_MODEL,
    AdamSpec,
    LossOutput,
    OptimizerSpec,
    RMSPropSpec,
)
from rlframe.policy.popart import OutputPopArt
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: λ where the config says nothing and actions are Gaussian.
LAMBDA_OF_GAUSSIANS = 0.9
#: Columns that losses read.
LOSS_COLUMNS = (OBS, ACTIONS, ACTION_LOGP, REWARDS, DISCOUNTS, TRAJECTORY_ENDS, VALUES_AFTER)


# --- what a policy consists of ----------------------------------------------------------------------------------------


def prepare_vtrace(policy: Any) -> None:
    """Makes a policy's schedules, PopArt and action-bound penalty; has workers collect `new_obs` where they bootstrap.

    Args:
        policy: Gets `popart`, `action_bounds`, `scales_advantages` and `default_lambda`.
    """
    config, drops_last = policy.config, policy.config["vtrace_drop_last_ts"]
    normalizes = _default(config["normalize_values"], config["vtrace"] and drops_last)
    policy.popart = OutputPopArt(policy, normalizes=normalizes)
    policy.action_bounds = ActionBoundPenalty(policy)
    policy.components.update(popart=policy.popart, **schedules_of(policy, config))
    policy.scales_advantages = _default(config["scale_advantages"], config["vtrace"])
    policy.default_lambda = LAMBDA_OF_GAUSSIANS if is_gaussian(policy.action_space, config["model"]) else 1.0
    policy.batch_divisibility_req = config["rollout_fragment_length"]  # RLlib's losses cut rows into fragments
    # Workers would store values without the moments, which they do not know; only users' code reads them.
    policy.wants_values = not normalizes or type(policy).wants_values
    if not drops_last and policy.train_columns is not None:
        policy.train_columns = (*policy.train_columns, NEXT_OBS)


def _default(chosen: bool | None, otherwise: bool) -> bool:
    return bool(otherwise if chosen is None else chosen)


def vtrace_optimizers(config: Mapping[str, Any], *, sums: bool) -> dict[str, OptimizerSpec]:
    """Returns the optimiser that `opt_type` names; two of them with `_separate_vf_optimizer`, in the losses' order.

    Args:
        config: See `AsynchronousConfig`.
        sums: Whether `grad_clip` and `epsilon` are for gradients of sums over the rows.
    """

    def make(networks: tuple[str, ...], lr: float, *, follows_schedule: bool = True) -> OptimizerSpec:
        limits: dict[str, Any] = {
            "grad_clip": config["grad_clip"], "limits_for_sums": sums, "follows_schedule": follows_schedule
        }  # fmt: skip
        if config["opt_type"] == "adam":
            return AdamSpec(networks, lr, **limits)
        return RMSPropSpec(
            networks, lr, config["epsilon"], decay=config["decay"], momentum=config["momentum"], **limits
        )

    if not config["_separate_vf_optimizer"]:
        return {"loss": make(WHOLE_MODEL, config["lr"])}
    return {
        "policy": make(MODEL_OUTPUTS, config["lr"]),
        "values": make(MODEL_VALUES, config["_lr_vf"], follows_schedule=False),
    }


# --- rows -------------------------------------------------------------------------------------------------------------


def postprocess_for_vtrace(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Adds `discounts`, `trajectory_ends` and `values_after`; drops `new_obs`, half of what there is to send.

    Args:
        policy: Its config is read for `gamma` and `vtrace_drop_last_ts`. Where last rows are not dropped, its
            `values_after(batch, rows)` `[n]` gives V of what followed them.
        sample_batch: Any number of trajectories one after the other.
        other_agent_batches: Not used; part of the signature of postprocessing functions.
        episode: Not used; part of the signature of postprocessing functions.

    Returns:
        The same batch.
    """
    del other_agent_batches, episode
    ends, terminal = trajectory_ends(sample_batch), terminal_rows(sample_batch)
    after = np.zeros(len(ends), np.float32)
    cut = np.flatnonzero(ends & ~terminal)
    if len(cut) and not policy.config["vtrace_drop_last_ts"]:
        after[cut] = policy.values_after(sample_batch, cut)
    sample_batch[DISCOUNTS] = np.float32(policy.config["gamma"]) * ~terminal
    sample_batch[TRAJECTORY_ENDS] = ends
    sample_batch[VALUES_AFTER] = after
    if policy.config.get("output") is None:
        sample_batch.pop(NEXT_OBS, None)
    return sample_batch


postprocess_for_vtrace.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_for_vtrace.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def complete_for_vtrace(policy: Any, batch: SampleBatch) -> SampleBatch:
    """Returns the batch with what V-trace needs, where none of it is there: rows of the user's own making."""
    told = DONES in batch or TERMINATEDS in batch  # a loss of the user's own may do without
    if not policy.config["vtrace"] or TRAJECTORY_ENDS in batch or not told:
        return batch
    new_obs = batch.get(NEXT_OBS)
    batch = postprocess_for_vtrace(policy, batch.copy(shallow=True))
    if new_obs is not None:  # a loss or plan of the user's own may read it
        batch[NEXT_OBS] = new_obs
    return batch


def rows_of_vtrace(policy: Any, batch: Mapping[str, Any]) -> Any:
    """Returns which rows count, bool `[B]`, None for all: not those that a cut trajectory is bootstrapped from."""
    counts = batch.get(VALID_MASK)
    if not policy.config["vtrace_drop_last_ts"] or TRAJECTORY_ENDS not in batch:
        return counts
    kept = ~(batch[TRAJECTORY_ENDS] & (batch[DISCOUNTS] > 0))
    return kept if counts is None else kept & counts


# --- terms of losses --------------------------------------------------------------------------------------------------


def vtrace_options(policy: Any) -> dict[str, Any]:
    """Returns the keywords of `batch_vtrace` that a policy's config sets."""
    config, lambda_ = policy.config, policy.config["vtrace_lambda"]
    return {
        "drop_last": config["vtrace_drop_last_ts"],
        "clip_rho": config["vtrace_clip_rho_threshold"],
        "clip_pg_rho": config["vtrace_clip_pg_rho_threshold"],
        "lambda_": policy.default_lambda if lambda_ is None else lambda_,
    }


@dataclass(frozen=True)
class Estimates:
    """What a batch is learned from.

    Attributes:
        targets: What values are regressed on, in reward units. Float `[B]`.
        advantages: What the policy gradient is weighted by. Float `[B]`.
        counts: Which rows count, bool `[B]`; None for all.
    """

    targets: Tensor
    advantages: Tensor
    counts: Tensor | None

    @property
    def mean(self) -> Callable[[Tensor], Tensor]:
        """What takes the mean over the rows that count."""
        return valid_mean({VALID_MASK: self.counts})


def asynchronous_loss(
    policy: Any,
    batch: SampleBatch,
    dist: Any,
    logp: Tensor,
    values: Tensor,
    estimates: Estimates,
    surrogate: Callable[[Tensor], Tensor],
    *,
    penalty: Tensor | float = 0.0,
    learns_values: bool = True,
    stats: Mapping[str, Tensor] | None = None,
) -> LossOutput:
    """Returns the loss of one batch: a scalar, or those of policy and values with `_separate_vf_optimizer`.

        mean[ surrogate(A) + c_v ½ ((V − v) / σ)² − c_e H(π) + c_k KL(μ‖π) + c_b B(π) ] + penalty

    μ is the policy that acted: where π left it, the fourth term pulls back. B is how far means of Gaussians lie beyond
    the action bounds, see `ActionBoundPenalty`. A is in units of its root mean square with `scale_advantages`. σ is the
    deviation that values are normalised by, see `OutputPopArt`.

    Args:
        policy: See `prepare_vtrace`.
        batch: The rows, of which `action_logp` is read.
        dist: π of the rows.
        logp: log π(a|s). Float `[B]`.
        values: V(s) in reward units. Float `[B]`.
        estimates: A, v, and which rows count.
        surrogate: Takes A and returns what is minimised, float `[B]`.
        penalty: A further term of the policy's.
        learns_values: Whether there is a value loss.
        stats: Further statistics.
    """
    config, mean = policy.config, estimates.mean
    counted = valid_rows({VALID_MASK: estimates.counts})
    advantages = scaled_by_rms(estimates.advantages, mean) if policy.scales_advantages else estimates.advantages
    policy_loss, entropy = mean(surrogate(advantages)), mean(dist.entropy())
    errors = (values - estimates.targets) / policy.value_std
    vf_loss = 0.5 * mean(ops.square(errors)) if learns_values else ops.zeros_like(policy_loss)
    behaviour_kl, bound_loss = mean(sampled_kl(logp, batch[ACTION_LOGP])), policy.action_bounds.loss(dist, mean)
    held = config["behaviour_kl_coeff"] * behaviour_kl + config["action_bound_coeff"] * bound_loss
    policy_terms = policy_loss - policy.entropy_coeff * entropy + held + penalty
    value_terms = config["vf_loss_coeff"] * vf_loss
    total = policy_terms + value_terms
    report = {
        "total_loss": total,
        "policy_loss": policy_loss,
        "vf_loss": vf_loss,
        "entropy": entropy,
        "behaviour_kl": behaviour_kl,
        **policy.action_bounds.stats(bound_loss),
        **policy.popart.target_stats(estimates.targets, mean),
        "vf_explained_var": explained_variance(counted(estimates.targets), counted(ops.stop_gradient(values))),
        **(stats or {}),
    }
    apart = config["_separate_vf_optimizer"]
    return LossOutput({"policy": policy_terms, "values": value_terms} if apart else total, report)


KEPT_NAMES = {
    "total_loss": ("total_loss",),
    "policy_loss": ("pi_loss", "mean_policy_loss"),
    "vf_loss": ("vf_loss", "mean_vf_loss"),
    "vf_explained_var": ("vf_explained_var",),
    "entropy": ("mean_entropy",),
}
"""By statistic, the names under which losses of IMPALA and APPO for RLlib 1.x kept it."""
KEPT_KL = {"kl": ("mean_kl_loss", "mean_kl")}
"""The same of APPO's, and of losses of PPO's kind that programs give IMPALA."""


def vtrace_stats(policy: Any, train_batch: SampleBatch) -> dict[str, Any]:
    """Returns losses, entropy and explained variance, means over the rows, and the norm of the weights."""
    del train_batch
    norm, names, told = policy.weights_norm(), policy.kept_names, policy._loss_outputs
    kept = {} if told.keys() >= names.keys() else kept_by_users_loss(policy, {**names, **KEPT_KL})
    return {"cur_lr": policy.cur_lr, **kept, **told, "entropy_coeff": policy.entropy_coeff, "var_gnorm": norm}
