"""What policies have that learn from rows of policies that lag behind, corrected by V-trace; functions of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.columns import (
    ACTION_LOGP,
    ACTIONS,
    DISCOUNTS,
    NEXT_OBS,
    OBS,
    REWARDS,
    TRAJECTORY_ENDS,
    VALID_MASK,
    VALUES_AFTER,
)
from rlframe.data.returns import terminal_rows, trajectory_ends
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.action_bounds import ActionBoundPenalty
from rlframe.policy.components import schedules_of
from rlframe.policy.parts import MODEL_OUTPUTS, MODEL_VALUES, WHOLE_MODEL, AdamSpec, OptimizerSpec, RMSPropSpec
from rlframe.policy.popart import OutputPopArt
from rlframe.tensor.ops import Tensor

#: Columns that losses read.
LOSS_COLUMNS = (OBS, ACTIONS, ACTION_LOGP, REWARDS, DISCOUNTS, TRAJECTORY_ENDS, VALUES_AFTER)


# --- what a policy consists of ----------------------------------------------------------------------------------------


def prepare_vtrace(policy: Any) -> None:
    """Makes a policy's schedules, PopArt and action-bound penalty; has workers collect `new_obs` where they bootstrap.

    Args:
        policy: Gets `popart`, `action_bounds` and `scales_advantages`.
    """
    config, drops_last = policy.config, policy.config["vtrace_drop_last_ts"]
    normalizes = _default(config["normalize_values"], config["vtrace"] and drops_last)
    policy.popart = OutputPopArt(policy, normalizes=normalizes)
    policy.action_bounds = ActionBoundPenalty(policy)
    policy.components.update(popart=policy.popart, **schedules_of(policy, config))
    policy.scales_advantages = _default(config["scale_advantages"], config["vtrace"])
    policy.batch_divisibility_req = config["rollout_fragment_length"]  # RLlib's losses cut rows into fragments
    # Workers would store values without the moments, which they do not know; nothing reads them.
    policy.wants_values = not normalizes
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
    sample_batch.pop(NEXT_OBS, None)
    return sample_batch


postprocess_for_vtrace.handles_many = True  # type: ignore[attr-defined]  # one call for several trajectories
postprocess_for_vtrace.framework_free = True  # type: ignore[attr-defined]  # NumPy workers may run it


def complete_for_vtrace(policy: Any, batch: SampleBatch) -> SampleBatch:
    """Returns the batch with what V-trace needs, where postprocessing made none of it."""
    if not policy.config["vtrace"] or TRAJECTORY_ENDS in batch:
        return batch
    return postprocess_for_vtrace(policy, batch)


def rows_of_vtrace(policy: Any, batch: Mapping[str, Any]) -> Any:
    """Returns which rows count, bool `[B]`, None for all: not those that a cut trajectory is bootstrapped from."""
    counts = batch.get(VALID_MASK)
    if not policy.config["vtrace_drop_last_ts"] or TRAJECTORY_ENDS not in batch:
        return counts
    kept = ~(batch[TRAJECTORY_ENDS] & (batch[DISCOUNTS] > 0))
    return kept if counts is None else kept & counts


# --- terms of losses --------------------------------------------------------------------------------------------------


def vtrace_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keywords of `batch_vtrace` that the config sets."""
    return {
        "drop_last": config["vtrace_drop_last_ts"],
        "clip_rho": config["vtrace_clip_rho_threshold"],
        "clip_pg_rho": config["vtrace_clip_pg_rho_threshold"],
        "lambda_": config["vtrace_lambda"],
    }


def held(config: Mapping[str, Any], behaviour_kl: Tensor, bound_loss: Any) -> Any:
    """Returns what a loss adds to hold the policy near those that acted, and its means within the action bounds."""
    return config["behaviour_kl_coeff"] * behaviour_kl + config["action_bound_coeff"] * bound_loss


def by_optimizer(config: Mapping[str, Any], policy_terms: Tensor, value_terms: Tensor) -> Any:
    """Returns one loss, or two with `_separate_vf_optimizer`."""
    return [policy_terms, value_terms] if config["_separate_vf_optimizer"] else policy_terms + value_terms


def vtrace_stats(policy: Any, train_batch: SampleBatch) -> dict[str, Any]:
    """Returns losses, entropy and explained variance, means over the rows, and the norm of the weights."""
    del train_batch
    norm = policy.weights_norm()
    return {"cur_lr": policy.cur_lr, **policy._loss_outputs, "entropy_coeff": policy.entropy_coeff, "var_gnorm": norm}
