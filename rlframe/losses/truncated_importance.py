"""Policy gradients with truncated importance weights, and what makes good the bias of that; by a policy's statistics.

    g = min(c, ρ(a_t)) A(a_t) ∇ log π(a_t|s) + E_{a ~ π} [ max(0, 1 − c/ρ(a)) A(a) ∇ log π(a|s) ],   ρ = π/μ

The first term is of the action that μ took; the second is what the truncation takes from the expectation.

Source: Wang et al. 2017, "Sample Efficient Actor-Critic with Experience Replay", eqs. 7 and 9.
"""

from __future__ import annotations

from rlframe.losses.trust_region import gaussian_score
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def bias_correction(ratios: Tensor, c: float, epsilon: float) -> Tensor:
    """Returns max(0, 1 − c/ρ), value by value, with ε added to ρ."""
    return ops.maximum(1.0 - c / (ratios + epsilon), 0.0)


def choices_gradient(  # noqa: PLR0913 - the columns of the formula, and two options
    probs: Tensor, ratios: Tensor, taken: Tensor, advantages_taken: Tensor, advantages: Tensor, *, c: float,
    epsilon: float,
) -> Tensor:  # fmt: skip
    """Returns g by the probabilities p of choices, where ∇ log p(a) is 1 / (p(a) + ε) at a. Float `[B, A]`.

    Args:
        probs: p. Float `[B, A]`.
        ratios: ρ of all choices. Float `[B, A]`.
        taken: 1 at the choice that μ took, else 0. Float `[B, A]`.
        advantages_taken: A(a_t), as returns tell it. Float `[B]`.
        advantages: A of all choices, as the critic tells it. Float `[B, A]`.
        c: Largest importance weight.
        epsilon: ε.
    """
    weight = ops.minimum(ops.sum(ratios * taken, axis=-1), c) * advantages_taken
    return weight[:, None] * taken / (probs + epsilon) + bias_correction(ratios, c, epsilon) * advantages


def gaussian_gradient(
    mean: Tensor, log_std: Tensor, taken: tuple[Tensor, Tensor, Tensor], drawn: tuple[Tensor, Tensor, Tensor], *,
    c: float, epsilon: float,
) -> Tensor:  # fmt: skip
    """Returns g by the mean and log σ of a Gaussian, the expectation taken by one draw. Float `[B, 2A]`.

    Args:
        mean: Float `[B, A]`.
        log_std: Float `[B, A]`.
        taken: What μ drew `[B, A]`, its ρ and its A as returns tell it, `[B]` each.
        drawn: What π drew, its ρ, and its A as the critic tells it; of the same shapes.
        c: Largest importance weight.
        epsilon: ε.
    """
    weight = ops.minimum(taken[1], c) * taken[2]
    correction = bias_correction(drawn[1], c, epsilon) * drawn[2]
    own, made_good = (gaussian_score(values, mean, log_std) for values, _, _ in (taken, drawn))
    return weight[:, None] * own + correction[:, None] * made_good
