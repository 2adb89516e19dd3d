"""Returns of imagined rollouts, in the framework of their tensors."""

from __future__ import annotations

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def lambda_return(reward: Tensor, value: Tensor, pcont: Tensor, bootstrap: Tensor, lambda_: float) -> Tensor:
    """Returns the λ-return of each step of some rollouts; gradients flow through all tensors.

        V_t = r_t + γ_t [ (1 − λ) v_{t+1} + λ V_{t+1} ],     V_H = v_H

    Args:
        reward: r, rewards of the steps. Float `[H, N]`.
        value: v, values of the same states. Float `[H, N]`.
        pcont: γ, discounts of what follows a step. Float `[H, N]`, in [0, 1].
        bootstrap: v_H, values of the states behind. Float `[N]`.
        lambda_: λ, in [0, 1].

    Returns:
        Float `[H, N]`.

    Source: Hafner et al. 2020, eq. 6, written as a recursion.
    """
    after = ops.concat([value[1:], bootstrap[None]], 0)
    terms = reward + (1.0 - lambda_) * pcont * after
    last = terms[-1:] + lambda_ * pcont[-1:] * bootstrap[None]
    made: Tensor = ops.reverse_scan(ops.concat([terms[:-1], last], 0), lambda_ * pcont)
    return made
