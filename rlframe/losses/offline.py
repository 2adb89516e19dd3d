"""Losses on recorded experience, per row, as pure functions."""

from __future__ import annotations

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def weighted_imitation(logp: Tensor, advantages: Tensor, scale: Tensor | float, beta: float) -> Tensor:
    """Returns −exp(β A / c) · log π(a|s): actions are imitated the more, the better they came out.

    Args:
        logp: log π(a|s) of the actions in the data. Float `[B]`.
        advantages: A, without gradient. Float `[B]`.
        scale: c, above 0, in discounted reward units.
        beta: β; 0 imitates all rows alike.

    Returns:
        Float `[B]`.

    Source: Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data", eq. 3.
    """
    if beta == 0.0:
        return -logp
    return -ops.exp(beta * advantages / scale) * logp


def conservative_penalty(compared: Tensor, taken: Tensor, temperature: float) -> Tensor:
    """Returns T log Σ_j exp(Q_j / T) − Q(s, a): how far other actions are valued above those in the data.

    Args:
        compared: Q(s, a_j), of drawn actions less the logarithm of their density. Float `[M, B]`.
        taken: Q(s, a) of the actions in the data. Float `[B]`.
        temperature: T, above 0, in discounted reward units.

    Returns:
        Float `[B]`.

    Source: Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning", eq. 4; appendix F.
    """
    scaled = compared / temperature
    most = ops.stop_gradient(ops.max(scaled, axis=0))
    return temperature * (most + ops.log(ops.sum(ops.exp(scaled - most), axis=0))) - taken
