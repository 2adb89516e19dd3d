"""Actors that go up a critic's values: squashed Gaussians, targets of one and of several critics, quantile critics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

#: Limits of log σ, as those of `rlframe.models.gaussian.SquashedGaussian`.
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
_HALF_LOG_2PI, _LOG_2 = 0.5 * math.log(2.0 * math.pi), math.log(2.0)


def gaussian_statistics(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Returns μ and log σ within its limits, float `[B, A]` each, of distribution inputs `[B, 2A]`."""
    half = inputs.shape[-1] // 2
    return inputs[:, :half], ops.clip(inputs[:, half:], LOG_STD_MIN, LOG_STD_MAX)


def squashed_gaussian(inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns actions in [−1, 1] with gradients, float `[B, A]`, and their log-densities, float `[B]`.

        a = tanh(μ + σ ε),   log π(a|s) = Σ [ log N(ε; 0, 1) − log σ − log(1 − a²) ]

    The last term is computed as 2 (log 2 − z − softplus(−2z)) of z = μ + σ ε, which does not cancel where |z| is large.

    Args:
        inputs: μ, then log σ. Float `[B, 2A]`.
        noise: ε, standard normal. Float `[B, A]`.

    Source: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", appendix C, eq. 26.
    """
    mean, log_std = gaussian_statistics(inputs)
    z = mean + ops.exp(log_std) * noise
    normal = -0.5 * ops.square(noise) - log_std - _HALF_LOG_2PI
    slope = 2.0 * (_LOG_2 - z - ops.softplus(-2.0 * z))
    return ops.tanh(z), ops.sum(normal - slope, axis=-1)


def smallest(values: Sequence[Tensor]) -> Tensor:
    """Returns, value by value, the smallest of several critics' estimates.

    Source: Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods", eq. 10.
    """
    least = values[0]
    for other in values[1:]:
        least = ops.minimum(least, other)
    return least


def bootstrapped(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """Returns r + γⁿ(1 − terminated) · V(s'), without gradient.

    Args:
        rewards: Sums of n discounted rewards. Float `[B]`.
        discounts: γⁿ where the episode went on, 0 where it terminated. Float `[B]`.
        next_values: Float `[B]`, or `[B, M]` for M quantiles.

    Returns:
        Float `[B]` or `[B, M]`.
    """
    if len(next_values.shape) > 1:
        rewards, discounts = ops.expand_like(rewards, next_values), ops.expand_like(discounts, next_values)
    return ops.stop_gradient(rewards + discounts * next_values)


def smoothed_actions(
    actions: Tensor, noise: Tensor, std: float, limit: float, bounds: tuple[Any, Any] = (-1.0, 1.0)
) -> Tensor:
    """Returns a target actor's actions with clipped noise, within their bounds. Float `[B, A]`.

        a' = clip(μ⁻(s') + clip(σ ε, −c, c), low, high)

    Args:
        actions: μ⁻(s'). Float `[B, A]`.
        noise: ε, standard normal. Float `[B, A]`.
        std: σ, in units of actions.
        limit: c, in the same.
        bounds: low and high, numbers or arrays `[A]`.

    Source: Fujimoto et al. 2018, eq. 14.
    """
    low, high = bounds
    moved = actions + ops.clip(std * noise, -limit, limit)
    if isinstance(low, float):  # no copy to the device
        return ops.clip(moved, low, high)
    low, high = (ops.cast_like(ops.tensor_like(bound, actions), actions) for bound in bounds)
    return ops.minimum(ops.maximum(moved, low), high)


def truncated_quantiles(quantiles: Sequence[Tensor], dropped: int) -> Tensor:
    """Returns the smallest of several critics' quantiles taken together, float `[B, N · M − N · dropped]`.

    Args:
        quantiles: Of N critics. Float `[B, M]` each.
        dropped: How many of the largest are left out per critic.

    Source: Kuznetsov et al. 2020, "Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional
    Quantile Critics", eq. 8.
    """
    together = ops.sort(ops.concat(list(quantiles), axis=1))
    return together[:, : together.shape[1] - len(quantiles) * dropped]


def quantile_huber(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Returns the quantile Huber loss of each row, float `[B]`.

        mean over m and j of |τ_m − [u < 0]| · huber(u),   u = target_j − θ_m,   τ_m = (2m − 1) / 2M

    Args:
        quantiles: θ. Float `[B, M]`.
        targets: Samples of the target distribution, without gradient. Float `[B, J]`.

    Source: Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression", eq. 10; averaged as by
    Kuznetsov et al. 2020, eq. 10.
    """
    count = int(quantiles.shape[1])
    levels = ((2.0 * np.arange(count, dtype=np.float32) + 1.0) / (2.0 * count))[None, :, None]
    errors = targets[:, None, :] - quantiles[:, :, None]
    level = ops.tensor_like(levels, quantiles)
    below = ops.cast_like(errors < 0, quantiles)
    weights = ops.abs(level - ops.stop_gradient(below))
    return ops.mean(ops.mean(weights * ops.huber(errors), axis=2), axis=1)


def expected(probs: Tensor, values: Tensor) -> Tensor:
    """Returns Σ_a π(a|s) · x(s, a). Float `[B]` of two floats `[B, A]`."""
    return ops.sum(probs * values, axis=-1)


def half_squares(weights: Sequence[Tensor]) -> Tensor:
    """Returns ½ Σ w², a scalar, over arrays of weights."""
    total = 0.5 * ops.sum(ops.square(weights[0]))
    for array in weights[1:]:
        total = total + 0.5 * ops.sum(ops.square(array))
    return total
