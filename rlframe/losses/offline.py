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
