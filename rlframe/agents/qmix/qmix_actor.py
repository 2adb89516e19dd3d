"""Acting with QMIX's default network in NumPy: a dense layer, a GRU and a dense layer, the same for all agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.actor import FloatArray, Weights, bind_layer, get_array, sigmoid
from rlframe.models.spec import Dense
from rlframe.utils.numpy import FLOAT_MIN


class QMixActor:
    """The values of all agents' actions, and the next states of their GRUs.

    Args:
        spec: `n_agents` N; `obs` and `mask`, where these begin and end in one agent's flat observation (`mask` may be
            None); `name`, prefix of the arrays of `inputs` and `outputs` (dense) and of `gru`, which has
            `weight_ih [3S, S]`, `weight_hh [3S, S]`, `bias_ih [3S]` and `bias_hh [3S]`, gates in the order reset,
            update, new.
        weights: Float32 arrays by name, possibly views of a live model's memory.
        rng: Not needed: the network has no noise.

    Source: Cho et al. 2014 (GRU), with the reset gate behind the product as in cuDNN.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> None:
        del rng
        self.spec = dict(spec)
        self.weights = weights
        name, self._agents = spec["name"], int(spec["n_agents"])
        self._obs, self._mask = slice(*spec["obs"]), None if spec["mask"] is None else slice(*spec["mask"])
        self._inputs = bind_layer(Dense(f"{name}.inputs", "relu"), weights, None)
        self._outputs = bind_layer(Dense(f"{name}.outputs"), weights, None)
        self._input_weights = get_array(weights, f"{name}.gru.weight_ih", 2).T
        self._state_weights = get_array(weights, f"{name}.gru.weight_hh", 2).T
        self._input_bias = get_array(weights, f"{name}.gru.bias_ih", 1)
        self._state_bias = get_array(weights, f"{name}.gru.bias_hh", 1)

    @property
    def mean(self) -> QMixActor:
        """The actor itself: its layers have no noise."""
        return self

    def step(self, obs: NDArray[Any], inputs: Mapping[str, NDArray[Any]]) -> tuple[FloatArray, None, list[FloatArray]]:
        """Returns values [B, N · A], FLOAT_MIN for invalid actions; None (no state values); new states [[B, N, S]].

        Args:
            obs: Flat observations of groups. `[B, D]`.
            inputs: `state_in_0`, float `[B, N, S]`.
        """
        rows = len(obs)
        by_agent = np.asarray(obs, np.float32).reshape(rows * self._agents, -1)
        state = inputs["state_in_0"].reshape(rows * self._agents, -1)
        hidden = self._gru(self._inputs(by_agent[:, self._obs]), state)
        values = self._outputs(hidden)
        if self._mask is not None:
            values[by_agent[:, self._mask] <= 0.5] = FLOAT_MIN
        return values.reshape(rows, -1), None, [hidden.reshape(rows, self._agents, -1)]

    def _gru(self, x: FloatArray, state: FloatArray) -> FloatArray:
        size = state.shape[1]
        of_input = np.dot(x, self._input_weights)
        of_input += self._input_bias
        of_state = np.dot(state, self._state_weights)
        of_state += self._state_bias
        gates = of_input[:, : 2 * size] + of_state[:, : 2 * size]
        sigmoid(gates, gates)
        reset, update = gates[:, :size], gates[:, size:]
        new = np.tanh(of_input[:, 2 * size :] + reset * of_state[:, 2 * size :])
        hidden: FloatArray = new + update * (state - new)
        return hidden
