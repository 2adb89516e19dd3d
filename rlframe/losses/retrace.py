"""Retrace: action-value targets from rows of other policies, without a loop over time."""

from __future__ import annotations

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def retrace(
    rewards: Tensor, discounts: Tensor, traces: Tensor, q_taken: Tensor, values_next: Tensor, ends: Tensor
) -> Tensor:
    """Returns Q^ret of trajectories that stand one after the other, without gradient. Float `[B]`.

        Q^ret_t = r_t + γ V(s_{t+1}) + γ c_{t+1} [ Q^ret_{t+1} − Q(s_{t+1}, a_{t+1}) ]

    At the last row of a trajectory the bracket is 0. With c = min(1, π/μ) these are the targets of Munos et al., with
    c = 1 the uncorrected Q^opc of Wang et al., with c = 0 those of one step (expected SARSA). Where all of c are 1 and
    Q(s, a) = V(s), they are n-step returns.

    Args:
        rewards: r_t. Float `[B]`.
        discounts: γ(1 − terminated). Float `[B]`, in [0, 1].
        traces: c_t, how much of what follows is believed of the action taken in row t. Float `[B]`, in [0, 1].
        q_taken: Q(s_t, a_t) of the action taken. Float `[B]`, in discounted reward units.
        values_next: V(s_{t+1}), at the last row of a trajectory what it is bootstrapped with. Float `[B]`.
        ends: The next row is of another trajectory. Bool `[B]`.

    Source: Munos et al. 2016, "Safe and Efficient Off-Policy Reinforcement Learning", eqs. 3 and 4; Wang et al. 2017,
    "Sample Efficient Actor-Critic with Experience Replay", eq. 5.
    """
    traces, q_taken, values_next = (ops.stop_gradient(column) for column in (traces, q_taken, values_next))
    alive = ops.cast_like(~ends, q_taken)
    errors = rewards + discounts * values_next - q_taken
    return q_taken + ops.reverse_scan(errors, discounts * alive * ops.roll(traces, -1))
