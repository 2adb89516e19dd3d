"""V-trace: off-policy corrected value targets and advantages, without a loop over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rlframe.data.columns import ACTION_LOGP, DISCOUNTS, REWARDS, TRAJECTORY_ENDS, VALID_MASK, VALUES_AFTER
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


class VTrace(NamedTuple):
    """What a policy that lags behind has to know of a batch; no gradient flows through either.

    Attributes:
        targets: v_s, what values are regressed on. Float `[B]`.
        advantages: What the policy gradient is weighted by, importance weights included. Float `[B]`.
    """

    targets: Tensor
    advantages: Tensor


def batch_vtrace(  # noqa: PLR0913 - a batch, two columns that depend on the policy, the formula's options
    batch: Mapping[str, Any],
    logp: Tensor,
    values: Tensor,
    *,
    drop_last: bool,
    clip_rho: float | None = 1.0,
    clip_pg_rho: float | None = 1.0,
    lambda_: float = 1.0,
) -> tuple[VTrace, Tensor | None]:
    """Returns V-trace of a train batch, and which of its rows count in a loss.

    Args:
        batch: Columns `action_logp`, `rewards`, `discounts`, `trajectory_ends`, `values_after`, and `valid_mask` where
            it has padding rows; `[B]` each. Padding rows stand behind the ends of trajectories.
        logp: log π(a|s) of the policy that the traces are for. Float `[B]`.
        values: V(s_t) now. Float `[B]`.
        drop_last: The last row of a trajectory that was cut does not count: its value, as it is now, is what the row
            before is bootstrapped with. Otherwise all rows count, and `values_after` is what the last is bootstrapped
            with: what the value was when the row was sampled.
        clip_rho: See `vtrace`.
        clip_pg_rho: See `vtrace`.
        lambda_: See `vtrace`.

    Returns:
        V-trace, and bool `[B]`, None where all rows count.
    """
    ends, discounts, counts = batch[TRAJECTORY_ENDS], batch[DISCOUNTS], batch.get(VALID_MASK)
    values_next = next_values(values, batch[VALUES_AFTER], ends)
    if drop_last:
        cut = ends & (discounts > 0)
        ends = ends | ops.roll(cut, -1)
        counts = ~cut if counts is None else ~cut & counts
    sampled = batch[ACTION_LOGP], batch[REWARDS]
    made = vtrace(logp, *sampled, values, values_next, discounts, ends, clip_rho, clip_pg_rho, lambda_)
    return made, counts


def next_values(values: Tensor, values_after: Tensor, ends: Tensor) -> Tensor:
    """Returns V(s_{t+1}): the next row's value, and `values_after` at the ends of trajectories; float `[B]` each."""
    return ops.where(ends, values_after, ops.roll(values, -1))


def vtrace(  # noqa: PLR0913, PLR0917 - the columns of the formula, in its order
    logp: Tensor,
    behaviour_logp: Tensor,
    rewards: Tensor,
    values: Tensor,
    values_next: Tensor,
    discounts: Tensor,
    ends: Tensor,
    clip_rho: float | None = 1.0,
    clip_pg_rho: float | None = 1.0,
    lambda_: float = 1.0,
) -> VTrace:
    """Returns V-trace's targets and advantages of trajectories that stand one after the other.

    Columns `[T, B]`, in which B trajectories of T rows stand side by side, do as well.

        v_s = V(s_s) + Σ_{t ≥ s} γ^{t−s} (c_s ⋯ c_{t−1}) ρ_t (r_t + γ V(s_{t+1}) − V(s_t))
        A_s = min(ρ̄_pg, π/μ) (r_s + γ v_{s+1} − V(s_s)),   ρ_t = min(ρ̄, π/μ),   c_t = λ min(1, π/μ)

    Args:
        logp: log π(a|s) of the policy that learns. Float `[B]`.
        behaviour_logp: log μ(a|s) of the policy that acted. Float `[B]`.
        rewards: r_t. Float `[B]`.
        values: V(s_t). Float `[B]`, in discounted reward units.
        values_next: V(s_{t+1}), at the last row of a trajectory what it is bootstrapped with. Float `[B]`.
        discounts: γ(1 − terminated). Float `[B]`, in [0, 1].
        ends: The next row is of another trajectory: the trace is cut. Bool `[B]`.
        clip_rho: ρ̄, above 0; None does not clip.
        clip_pg_rho: ρ̄_pg, above 0; None does not clip.
        lambda_: λ in [0, 1]: how far an error reaches back. 1 sums the whole trajectory, 0 its next step.

    Returns:
        See `VTrace`.

    Source: Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
    Architectures", eq. 1, remark 2 and section 4.2.
    """
    sampled = (logp, behaviour_logp, values, values_next)
    logp, behaviour_logp, values, values_next = (ops.stop_gradient(column) for column in sampled)
    ratios = ops.exp(logp - behaviour_logp)
    rho = ratios if clip_rho is None else ops.minimum(ratios, clip_rho)
    pg_rho = ratios if clip_pg_rho is None else ops.minimum(ratios, clip_pg_rho)
    alive = ops.cast_like(~ends, values)
    deltas = rho * (rewards + discounts * values_next - values)
    corrections = ops.reverse_scan(deltas, discounts * lambda_ * ops.minimum(ratios, 1.0) * alive)
    # v_{s+1} = V(s_{s+1}) + the next row's correction, which at the end of a trajectory there is none of.
    targets_next = values_next + alive * ops.roll(corrections, -1)
    return VTrace(values + corrections, pg_rho * (rewards + discounts * targets_next - values))


class VTraceReturns(NamedTuple):
    """Value targets v_s and advantages of the policy gradient, float `[T, B]` each (RLlib's name)."""

    vs: Tensor
    pg_advantages: Tensor


def from_importance_weights(  # noqa: PLR0913, PLR0917 - RLlib's signature
    log_rhos: Tensor,
    discounts: Tensor,
    rewards: Tensor,
    values: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
    name: str | None = None,
) -> VTraceReturns:
    """Returns V-trace of B trajectories side by side.

    Args:
        log_rhos: log π/μ of the actions taken. Float `[T, B]`.
        discounts: γ(1 − terminated). Float `[T, B]`.
        rewards: Float `[T, B]`.
        values: V(s_t). Float `[T, B]`.
        bootstrap_value: V(s_T). Float `[B]`.
        clip_rho_threshold: ρ̄; None does not clip.
        clip_pg_rho_threshold: ρ̄_pg; None does not clip.
        name: Not used: of a scope in TensorFlow 1's graphs.

    Source: Espeholt et al. 2018, eq. 1.
    """
    del name
    values_next = ops.concat([values[1:], bootstrap_value[None]], axis=0)
    ends = ops.concat([ops.zeros_like(values[1:]), ops.ones_like(values[:1])], axis=0) > 0
    clips = (clip_rho_threshold, clip_pg_rho_threshold)
    return VTraceReturns(
        *vtrace(log_rhos, ops.zeros_like(log_rhos), rewards, values, values_next, discounts, ends, *clips)
    )
