"""DQN's loss and its gradient for dense networks in NumPy: on small batches faster than by PyTorch's operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.fast.array_chain import ArrayChain, FloatArray

#: Trunk, advantages and state values of a Q-network; the latter two may be empty.
Chains = tuple[ArrayChain, ArrayChain, ArrayChain]

# 0-d arrays: a Python scalar is converted at every call, which costs as much as the operation.
_ONE, _MINUS_ONE, _HALF = (np.full((), number, np.float32) for number in (1.0, -1.0, 0.5))


class ArrayQGradients:
    """Fills the gradients of the mean of w · huber(δ) for a Q-network of dense layers.

    Args:
        online: The chains that learn.
        target: Those that targets come from.
        double_q: Whether the online chains choose the next action.
    """

    def __init__(self, online: Chains, target: Chains, double_q: bool) -> None:
        self._trunk, self._advantage, self._state_value = online
        self._online, self._target, self._double_q = online, target, double_q
        self._places = np.arange(0)

    @np.errstate(over="ignore", invalid="ignore")  # the policy looks at the loss
    def __call__(
        self,
        obs: FloatArray,
        actions: NDArray[Any],
        rewards: FloatArray,
        next_obs: FloatArray,
        discounts: FloatArray,
        weights: FloatArray | None,
    ) -> tuple[float, FloatArray, dict[str, float]]:
        """Fills the gradients; returns the loss, the TD errors `[B]`, and statistics of the Q-values.

        Args:
            obs: Float32 `[B, D]`.
            actions: Integer `[B]`.
            rewards: Float32 `[B]`.
            next_obs: Float32 `[B, D]`.
            discounts: Float32 `[B]`.
            weights: Importance weights, float32 `[B]`; None for ones.
        """
        rows = len(obs)
        if len(self._places) != rows:
            self._places = np.arange(rows)
        places = self._places
        trunk = self._trunk.forward(obs)
        advantage, value = self._advantage.forward(trunk[-1]), self._state_value.forward(trunk[-1])
        q_t = _combined(advantage[-1], value[-1]) if self._state_value else advantage[-1]
        q_tp1 = _q_values(self._target, next_obs)
        if self._double_q:
            q_next = q_tp1[places, _q_values(self._online, next_obs).argmax(1)]
        else:
            q_next = np.maximum.reduce(q_tp1, 1)
        td_error = q_t[places, actions] - (rewards + discounts * q_next)
        # The slope of huber(δ) is δ within ±1, and the sign of δ beyond; the loss follows from the slope.
        slope = np.minimum(np.maximum(td_error, _MINUS_ONE), _ONE)
        per_row = slope * (td_error - _HALF * slope)
        if weights is not None:
            slope, per_row = weights * slope, weights * per_row
        size = q_t.size
        stats = {
            "mean_q": float(np.add.reduce(q_t, None)) / size,
            "min_q": float(np.minimum.reduce(q_t, None)),
            "max_q": float(np.maximum.reduce(q_t, None)),
        }
        slope /= np.float32(rows)
        grad = np.zeros(q_t.shape, np.float32)
        grad[places, actions] = slope
        self._backward(trunk, advantage, value, grad, slope)
        return float(np.add.reduce(per_row)) / rows, td_error, stats

    def _backward(
        self,
        trunk: list[FloatArray],
        advantage: list[FloatArray],
        value: list[FloatArray],
        grad: FloatArray,
        slope: FloatArray,
    ) -> None:
        """Fills the gradients from ∂loss/∂Q `[B, A]`, of which rows sum to `slope` `[B]`."""
        by_features: FloatArray | None = grad
        if self._state_value:
            # Q = V + A − mean A: V takes the whole slope, and every advantage gives up its share of the mean.
            whole = slope[:, None]
            by_features = self._advantage.backward(advantage, grad - whole / np.float32(grad.shape[1]), input_grad=True)
            by_value = self._state_value.backward(value, whole, input_grad=True)
            assert by_features is not None
            assert by_value is not None
            by_features = by_features + by_value
        elif self._advantage:
            by_features = self._advantage.backward(advantage, grad, input_grad=True)
        assert by_features is not None
        self._trunk.backward(trunk, by_features, input_grad=False)


def _q_values(chains: Chains, obs: FloatArray) -> FloatArray:
    trunk, advantage, state_value = chains
    features = trunk.forward(obs)[-1]
    scores = advantage.forward(features)[-1]
    return _combined(scores, state_value.forward(features)[-1]) if state_value else scores


def _combined(scores: FloatArray, value: FloatArray) -> FloatArray:
    """Returns V + A − mean A. Float32 `[B, A]`."""
    q: FloatArray = value + (scores - scores.mean(1, keepdims=True))
    return q


__all__ = ["ArrayQGradients"]
