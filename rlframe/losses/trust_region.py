"""Policy gradients by the numbers that a distribution has, held near an average policy; in closed form."""

from __future__ import annotations

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: Squared length below which a gradient is taken to be 0: two policies are the same there.
_NOTHING = 1e-20


def projected(gradients: Tensor, kl_gradients: Tensor, delta: float) -> Tensor:
    """Returns, row by row, the vectors nearest to some that do not raise a divergence by more than δ. Float `[B, K]`.

        z* = argmin_z ½ ‖g − z‖²  subject to  kᵀz ≤ δ   =   g − max(0, (kᵀg − δ) / ‖k‖²) k

    Args:
        gradients: g, by the statistics of a distribution: of what is to grow. Float `[B, K]`.
        kl_gradients: k, by the same: of the divergence from the average policy. Float `[B, K]`.
        delta: δ, above 0.

    Source: Wang et al. 2017, "Sample Efficient Actor-Critic with Experience Replay", eqs. 11 and 12.
    """
    squares = ops.maximum(ops.sum(ops.square(kl_gradients), axis=-1), _NOTHING)
    excess = ops.maximum(ops.sum(kl_gradients * gradients, axis=-1) - delta, 0.0)
    return gradients - (excess / squares)[:, None] * kl_gradients


def categorical_kl_gradient(probs: Tensor, average: Tensor, epsilon: float) -> Tensor:
    """Returns ∂ KL(p_a ‖ p) / ∂ p = −p_a / p, float `[B, A]`.

    Args:
        probs: p, of the policy that learns. Float `[B, A]`.
        average: p_a, of the average policy. Float `[B, A]`.
        epsilon: What is added to p.
    """
    return -average / (probs + epsilon)


def gaussian_kl_gradient(mean: Tensor, log_std: Tensor, average_mean: Tensor, average_log_std: Tensor) -> Tensor:
    """Returns ∂ KL(N_a ‖ N) / ∂ (μ, log σ), float `[B, 2A]`; the same where both pass through one tanh.

        ∂μ = (μ − μ_a) / σ²,   ∂ log σ = 1 − (σ_a² + (μ − μ_a)²) / σ²

    Args:
        mean: μ of the policy that learns. Float `[B, A]`.
        log_std: log σ of the same. Float `[B, A]`.
        average_mean: μ_a of the average policy. Float `[B, A]`.
        average_log_std: log σ_a of the same. Float `[B, A]`.
    """
    precision, apart = ops.exp(-2.0 * log_std), mean - average_mean
    spread = (ops.exp(2.0 * average_log_std) + ops.square(apart)) * precision
    return ops.concat([apart * precision, 1.0 - spread], axis=1)


def gaussian_score(values: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Returns ∂ log N(x; μ, σ) / ∂ (μ, log σ) = ((x − μ) / σ², (x − μ)² / σ² − 1), float `[B, 2A]`.

    Args:
        values: x. Float `[B, A]`.
        mean: μ. Float `[B, A]`.
        log_std: log σ. Float `[B, A]`.
    """
    precision, apart = ops.exp(-2.0 * log_std), values - mean
    return ops.concat([apart * precision, ops.square(apart) * precision - 1.0], axis=1)


def gaussian_logp(values: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Returns log N(x; μ, σ) but for the constant −½ A log 2π, float `[B]`; see `gaussian_score`."""
    return -ops.sum(0.5 * ops.square((values - mean) * ops.exp(-log_std)) + log_std, axis=-1)


def gaussian_log_ratio(
    values: Tensor, gaussian: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], most: float
) -> Tensor:
    """Returns log N(x; μ, σ) − log N(x; μ', σ'), float `[B]`, at most `most`.

    Args:
        values: x. Float `[B, A]`.
        gaussian: μ and log σ. Float `[B, A]` each.
        other: μ' and log σ' of the same shape.
        most: Where it is cut, so that its exponential is finite.
    """
    return ops.minimum(gaussian_logp(values, *gaussian) - gaussian_logp(values, *other), most)
