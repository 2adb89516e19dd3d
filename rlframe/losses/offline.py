"""Losses on recorded experience, per row, as pure functions."""

from __future__ import annotations

import math

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: Size of an exponent of which float32 has the exponential.
_LARGEST_EXPONENT = 80.0


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


def expectile_loss(errors: Tensor, expectile: float) -> Tensor:
    """Returns |τ − 1[u < 0]| u²: what is above counts τ, what is below 1 − τ, so that values near the best are found.

    Args:
        errors: u, target less value, in discounted reward units. Float `[B]`.
        expectile: τ, in (0, 1); 0.5 gives the mean.

    Returns:
        Float `[B]`.

    Source: Kostrikov et al. 2022, "Offline Reinforcement Learning with Implicit Q-Learning", eq. 5.
    """
    weights = ops.where(errors < 0.0, (1.0 - expectile) * ops.ones_like(errors), expectile * ops.ones_like(errors))
    return weights * ops.square(errors)


def limited_weights(advantages: Tensor, beta: float, most: float) -> Tensor:
    """Returns min(exp(β A), most): how much actions are imitated.

    Args:
        advantages: A, in discounted reward units. Float `[B]`.
        beta: β, an inverse temperature; 0 imitates all alike.
        most: Largest weight, above 0.

    Returns:
        Float `[B]`.

    Source: Kostrikov et al. 2022, eq. 7; the limit is that of the authors' program, 100.
    """
    return ops.exp(ops.clip(beta * advantages, -_LARGEST_EXPONENT, math.log(most)))
