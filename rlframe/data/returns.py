"""Returns and advantages of trajectories, in NumPy: discounted sums, generalised advantage estimates (GAE)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]


def discount_cumsum(x: NDArray[Any], gamma: float) -> FloatArray:
    """Returns the discounted sum of what follows each entry, itself included.

        y_t = x_t + gamma * y_{t+1}

    Args:
        x: Numbers `[T]` or `[T, ...]`; sums run along axis 0.
        gamma: Discount per step, in [0, 1].

    Returns:
        Same shape as `x`; its dtype where that is floating, else float64. Summed in float64.
    """
    array = np.asarray(x)
    out = array.astype(np.float64)
    if out.ndim == 1:
        out[:] = _backward_sum(out.tolist(), [gamma] * len(out))
    else:
        for t in range(len(out) - 2, -1, -1):
            out[t] += gamma * out[t + 1]
    return out.astype(array.dtype if array.dtype.kind == "f" else np.float64, copy=False)


def _backward_sum(terms: list[float], decays: list[float]) -> list[float]:
    """Returns y with y_t = terms_t + decays_t * y_{t+1}; plain floats beat NumPy scalars several times over."""
    total = 0.0
    for t in range(len(terms) - 1, -1, -1):
        total = terms[t] + decays[t] * total
        terms[t] = total
    return terms


def gae(  # noqa: PLR0913, PLR0917 - the columns of the formula, in its order
    rewards: FloatArray,
    values: FloatArray,
    next_values: FloatArray,
    terminateds: NDArray[Any],
    ends: NDArray[Any],
    gamma: float,
    lambda_: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns generalised advantage estimates and the value targets that go with them.

        delta_t = r_t + gamma * (1 - terminated_t) * V(s_{t+1}) - V(s_t)
        A_t     = delta_t + gamma * lambda * (1 - end_t) * A_{t+1}
        target_t = A_t + V(s_t)

    Args:
        rewards: r_t. Float `[T]` or `[T, B]`, B trajectories side by side.
        values: V(s_t). Same shape.
        next_values: V(s_{t+1}), of the observation that followed the action, also where the episode was truncated.
        terminateds: Nothing follows: the bootstrap is 0. bool.
        ends: Row t+1 does not continue row t (termination, truncation, another trajectory): the trace is cut. bool.
        gamma: Discount per step, in [0, 1].
        lambda_: Decay of the trace, in [0, 1]; 1 gives discounted returns, 0 one-step errors.

    Returns:
        Advantages and value targets, float32, same shape; computed in float64.

    Raises:
        ValueError: If the shapes differ.

    Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using Generalized Advantage Estimation", eq. 16.
    """
    shapes = {np.shape(array) for array in (rewards, values, next_values, terminateds, ends)}
    if len(shapes) != 1:
        raise ValueError(
            f"Got rewards, values, next_values, terminateds and ends of shapes {shapes}; wanted one shape."
        )
    alive = ~np.asarray(terminateds, bool)
    decay = (gamma * lambda_) * (alive & ~np.asarray(ends, bool))
    base = np.asarray(values, np.float64)
    advantages = np.asarray(rewards, np.float64) + gamma * alive * np.asarray(next_values, np.float64) - base
    if advantages.ndim == 1:
        advantages[:] = _backward_sum(advantages.tolist(), decay.tolist())
    else:
        _trace(advantages, decay)
    return advantages.astype(np.float32), (advantages + base).astype(np.float32)


def _trace(deltas: NDArray[np.float64], decay: NDArray[np.float64]) -> None:
    """Turns one-step errors `[T, B]` into decaying sums of what follows, in place."""
    carried = np.empty_like(deltas[0]) if len(deltas) else deltas
    for t in range(len(deltas) - 2, -1, -1):
        np.multiply(decay[t], deltas[t + 1], out=carried)
        row = deltas[t]
        np.add(row, carried, out=row)
