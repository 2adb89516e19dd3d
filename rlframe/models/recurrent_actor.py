"""Acting with an LSTM in NumPy: built-in layers, an LSTM behind them, heads behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.action_encoding import action_encoding, encode_actions
from rlframe.models.actor import ChainActor, FloatArray, Weights, as_rows, bind_chain, get_array, sigmoid

#: Names of the parts of a model with an LSTM: before it, the LSTM, behind it.
INNER, LSTM, HEADS = "inner", "lstm", "heads"


def lstm_spec(
    inner: Mapping[str, Any] | None, heads: Mapping[str, Any], model_config: Mapping[str, Any], action_space: Any
) -> dict[str, Any] | None:
    """Returns the actor spec of a model with an LSTM; None where the model before it has none.

    Args:
        inner: Actor spec of the model before the LSTM.
        heads: Actor spec of the layers behind it.
        model_config: Keys `lstm_cell_size`, `lstm_use_prev_action` and `lstm_use_prev_reward`.
        action_space: Action space of the environment.
    """
    if inner is None:
        return None
    return {
        "inner": _prefixed(inner["outputs"], INNER),
        "lstm": {
            "name": LSTM,
            "cell_size": int(model_config["lstm_cell_size"]),
            "prev_actions": action_encoding(action_space) if model_config["lstm_use_prev_action"] else None,
            "prev_rewards": bool(model_config["lstm_use_prev_reward"]),
        },
        "outputs": _prefixed(heads["outputs"], HEADS),
        "values": _prefixed(heads["values"], HEADS),
    }


def _prefixed(layers: Any, prefix: str) -> list[dict[str, Any]]:
    return [{**layer, "name": f"{prefix}.{layer['name']}"} for layer in layers]


def heads_config(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of the network behind a memory: no hidden layers, values beside the outputs."""
    without = {"fcnet_hiddens": [], "post_fcnet_hiddens": [], "no_final_linear": False, "vf_share_layers": True}
    return {**model_config, **without}


class LSTMActor:
    """A chain of layers, an LSTM behind it, and heads for distribution inputs and values, in NumPy.

    Args:
        spec: `{"inner": [layer, ...], "lstm": {"name": ..., "cell_size": S, "prev_actions": how to encode or None,
            "prev_rewards": bool}, "outputs": [layer, ...], "values": [layer, ...]}`. The LSTM reads the arrays
            `<name>.weight_ih [4S, in]`, `<name>.weight_hh [4S, S]` and `<name>.bias [4S]`, gates in the order input,
            forget, cell, output.
        weights: Float32 arrays by name, possibly views of a live model's memory.
        rng: Generator for noisy layers; None switches their noise off.

    Source: Hochreiter and Schmidhuber 1997; with the forget gate of Gers et al. 2000.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> None:
        self.spec = dict(spec)
        self.weights = weights
        lstm = spec["lstm"]
        self._inner = bind_chain(spec["inner"], weights, rng)
        self._outputs = bind_chain(spec["outputs"], weights, rng)
        self._values = bind_chain(spec["values"], weights, rng)
        self._input_weights = get_array(weights, f"{lstm['name']}.weight_ih", 2).T
        self._state_weights = get_array(weights, f"{lstm['name']}.weight_hh", 2).T
        self._bias = get_array(weights, f"{lstm['name']}.bias", 1)
        self._size = int(lstm["cell_size"])
        self._prev_actions, self._prev_rewards = lstm["prev_actions"], bool(lstm["prev_rewards"])

    @property
    def mean(self) -> LSTMActor:
        """The actor itself: its layers have no noise."""
        return self

    def step(
        self, obs: NDArray[Any], inputs: Mapping[str, NDArray[Any]]
    ) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        """Returns distribution inputs [B, K], values [B] and the new states [h, c], each [B, S].

        Args:
            obs: Observations. `[B, D]`.
            inputs: `state_in_0` (h) and `state_in_1` (c), float `[B, S]`; `prev_actions` and `prev_rewards` where the
                spec says so.
        """
        x = obs if obs.dtype == np.float32 and obs.ndim == 2 else as_rows(obs)
        for layer in self._inner:
            x = layer(x)
        parts = [x]
        if self._prev_actions is not None:
            parts.append(encode_actions(inputs["prev_actions"], self._prev_actions))
        if self._prev_rewards:
            parts.append(np.asarray(inputs["prev_rewards"], np.float32).reshape(-1, 1))
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        gates = np.dot(x, self._input_weights)
        gates += np.dot(inputs["state_in_0"], self._state_weights)
        gates += self._bias
        size = self._size
        squashed = np.empty_like(gates)
        sigmoid(gates, squashed)
        cell = squashed[:, size : 2 * size] * inputs["state_in_1"]
        cell += squashed[:, :size] * np.tanh(gates[:, 2 * size : 3 * size])
        hidden = squashed[:, 3 * size :] * np.tanh(cell)
        outputs = values = hidden
        for layer in self._outputs:
            outputs = layer(outputs)
        for layer in self._values:
            values = layer(values)
        return outputs, values[:, 0], [hidden, cell]


def make_actor(spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> Any:
    """Returns the actor that a model's `actor_spec()` describes."""
    return LSTMActor(spec, weights, rng) if "lstm" in spec else ChainActor(spec, weights, rng)
