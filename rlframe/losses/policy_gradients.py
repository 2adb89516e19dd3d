"""Policy gradients: surrogates, value losses and diagnostics, per row, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: Probability ratio from which on `sampled_kl` grows with its logarithm only.
MOST_RATIO = 20.0


def policy_gradient(logp: Tensor, advantages: Tensor) -> Tensor:
    """Returns −log π(a|s) · A, whose gradient is the policy gradient's estimate.

    Args:
        logp: log π(a|s) of the actions taken. Float `[B]`.
        advantages: A, without gradient. Float `[B]`.

    Returns:
        Float `[B]`.

    Source: Sutton and Barto 2018, eq. 13.11.
    """
    return -logp * advantages


def scaled_by_rms(advantages: Tensor, mean: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns advantages over their root mean square, or over 1e-4 where that is larger.

    Their mean stays: it says that a batch came out better, or worse, than its values told.

    Args:
        advantages: A. Float `[B]`.
        mean: What takes the mean over the rows that count; see `valid_mean`.

    Returns:
        Float `[B]`.
    """
    return advantages / ops.maximum(ops.sqrt(mean(ops.square(advantages))), 1e-4)


def sampled_kl(logp: Tensor, behaviour_logp: Tensor) -> Tensor:
    """Returns ρ − 1 − log ρ with ρ = π(a|s) / μ(a|s): over actions that μ took, its mean estimates KL(μ‖π).

    It is at least 0, and 0, as is its gradient, where π = μ: rows that are on-policy add no noise. Beyond ρ = 20 it
    goes on as its tangent in log ρ, so that no row outweighs a batch.

    Args:
        logp: log π(a|s) of the actions taken. Float `[B]`.
        behaviour_logp: log μ(a|s) of the policy that took them. Float `[B]`.

    Returns:
        Float `[B]`, in nats.

    Source: Schulman 2020, "Approximating KL Divergence", the estimator k3.
    """
    log_ratio = logp - behaviour_logp
    beyond = ops.maximum(log_ratio - math.log(MOST_RATIO), 0.0)
    return ops.exp(log_ratio - beyond) * (1.0 + beyond) - 1.0 - log_ratio


def importance_surrogate(logp: Tensor, logp_old: Tensor, advantages: Tensor) -> Tensor:
    """Returns ρA with ρ = π(a|s) / π_old(a|s); to be maximised where π stays near π_old.

    Args:
        logp: log π(a|s) of the actions taken. Float `[B]`.
        logp_old: log π_old(a|s) when they were taken. Float `[B]`.
        advantages: A. Float `[B]`.

    Returns:
        Float `[B]`.

    Source: Schulman et al. 2015, "Trust Region Policy Optimization", eq. 14.
    """
    return ops.exp(logp - logp_old) * advantages


def clipped_surrogate(logp: Tensor, logp_old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Returns min(ρA, clip(ρ, 1 − ε, 1 + ε) A) with ρ = π(a|s) / π_old(a|s); to be maximised.

    Args:
        logp: log π(a|s) of the actions taken. Float `[B]`.
        logp_old: log π_old(a|s) when they were taken. Float `[B]`.
        advantages: A. Float `[B]`.
        clip: ε, above 0.

    Returns:
        Float `[B]`.

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", eq. 7.
    """
    ratio = ops.exp(logp - logp_old)
    return ops.minimum(ratio * advantages, ops.clip(ratio, 1.0 - clip, 1.0 + clip) * advantages)


def action_bound_penalty(means: Tensor, low: Any, high: Any) -> Tensor:
    """Returns Σ (max(low − m, m − high, 0) / half)², half = (high − low) / 2: what means beyond the bounds cost.

    Actions beyond the bounds are clipped to them, and all do the same: no advantage says which of two such means is
    better, and noise moves them on. So this brings them back.

    Args:
        means: m. Float `[B, A]`.
        low: Lower bounds, an array or a tensor. Float `[A]`.
        high: Upper bounds, above `low`. Float `[A]`.

    Returns:
        Float `[B]`.
    """
    least, most = ops.tensor_like(low, means), ops.tensor_like(high, means)
    beyond = ops.abs(means - (least + most) / 2.0) / ((most - least) / 2.0) - 1.0
    return ops.sum(ops.square(ops.maximum(beyond, 0.0)), axis=-1)


def clipped_value_loss(values: Tensor, values_old: Tensor, targets: Tensor, clip: float) -> Tensor:
    """Returns max((V − R)², (V_old + clip(V − V_old, ±c) − R)²).

    Args:
        values: V(s) now. Float `[B]`, in discounted reward units.
        values_old: V(s) when the rows were sampled. Float `[B]`.
        targets: R. Float `[B]`.
        clip: c, above 0, in discounted reward units.

    Returns:
        Float `[B]`.

    Source: the reference implementation of Schulman et al. 2017; the paper's eq. 9 has it without the clipping.
    """
    clipped = values_old + ops.clip(values - values_old, -clip, clip)
    return ops.maximum(ops.square(values - targets), ops.square(clipped - targets))


def explained_variance(targets: Tensor, predictions: Tensor) -> Tensor:
    """Returns 1 − Var(targets − predictions) / Var(targets), at least −1; −1 for targets without variance.

    Args:
        targets: Float `[B]`.
        predictions: Float `[B]`.

    Returns:
        Scalar, at most 1.
    """
    variance = ops.variance(targets)
    unexplained = ops.variance(targets - predictions)
    explained = 1.0 - unexplained / ops.maximum(variance, 1e-12)
    return ops.maximum(ops.where(variance > 0, explained, -ops.ones_like(variance)), -1.0)
