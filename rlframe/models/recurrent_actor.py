"""Acting with memory in NumPy: recurrent layers among others, or an LSTM behind a model and heads behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import STATE_IN_PREFIX
from rlframe.models.action_encoding import action_encoding, encode_actions
from rlframe.models.actor import ChainActor, as_rows, bind_chain, bind_layer
from rlframe.models.actor_layers import FloatArray, Weights, get_array, sigmoid
from rlframe.models.spec import GRU, LSTM, layer_from_spec

Cell: TypeAlias = Callable[[FloatArray, list[FloatArray]], list[FloatArray]]

#: Names of the parts of a model with an LSTM: before it, the LSTM, behind it.
INNER, MEMORY, HEADS = "inner", "lstm", "heads"


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
            "name": MEMORY,
            "cell_size": int(model_config["lstm_cell_size"]),
            "prev_actions": action_encoding(action_space) if model_config["lstm_use_prev_action"] else None,
            "prev_rewards": bool(model_config["lstm_use_prev_reward"]),
        },
        "outputs": _prefixed(heads["outputs"], HEADS),
        "values": None if heads["values"] is None else _prefixed(heads["values"], HEADS),
    }


def behind_lstm(memory: Mapping[str, Any] | None, prefix: str, layers: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the actor spec of layers behind a model with an LSTM; None where that has none.

    Args:
        memory: Actor spec of the model, see `lstm_spec`.
        prefix: What its weights' names begin with.
        layers: As plain data.
    """
    if memory is None or "lstm" not in memory:
        return None
    lstm = {**memory["lstm"], "name": f"{prefix}.{memory['lstm']['name']}"}
    outputs = [*_prefixed(memory["outputs"], prefix), *layers]
    return {"inner": _prefixed(memory["inner"], prefix), "lstm": lstm, "outputs": outputs, "values": None}


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
            "prev_rewards": bool}, "outputs": [layer, ...], "values": [layer, ...] or None}`.
        weights: Float32 arrays by name, possibly views of a live model's memory.
        rng: Generator for noisy layers; None switches their noise off.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> None:
        self.spec = dict(spec)
        self.weights = weights
        lstm = spec["lstm"]
        self._inner = bind_chain(spec["inner"], weights, rng)
        self._outputs = bind_chain(spec["outputs"], weights, rng)
        self._values = None if spec["values"] is None else bind_chain(spec["values"], weights, rng)
        self._cell = bind_cell(LSTM(lstm["name"]), weights)
        self._prev_actions, self._prev_rewards = lstm["prev_actions"], bool(lstm["prev_rewards"])
        self._mean_actor = self if rng is None else LSTMActor(spec, weights)

    @property
    def mean(self) -> LSTMActor:
        """The same actor on the same arrays with the noise of noisy layers switched off."""
        return self._mean_actor

    def step(
        self, obs: NDArray[Any], inputs: Mapping[str, NDArray[Any]]
    ) -> tuple[FloatArray, FloatArray | None, list[FloatArray]]:
        """Returns distribution inputs [B, K], values [B] or None, and the new states [h, c], each [B, S].

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
        states = self._cell(x, [inputs["state_in_0"], inputs["state_in_1"]])
        outputs = values = states[0]
        for layer in self._outputs:
            outputs = layer(outputs)
        for layer in self._values or ():
            values = layer(values)
        return outputs, None if self._values is None else values[:, 0], states


class MemoryActor:
    """A chain of layers some of which are recurrent, in NumPy.

    Args:
        spec: `{"outputs": [layer, ...]}`, as a `rlframe.models.spec.Network` has them.
        weights: Float32 arrays by name, possibly views of a live model's memory.
        rng: Generator for noisy layers; None switches their noise off.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> None:
        layers = [layer_from_spec(layer) for layer in spec["outputs"]]
        self._steps: list[tuple[int, Any]] = [
            (layer.states, bind_cell(layer, weights)) if isinstance(layer, (GRU, LSTM))
            else (0, bind_layer(layer, weights, rng))
            for layer in layers
        ]  # fmt: skip
        self._mean_actor = self if rng is None else MemoryActor(spec, weights)

    @property
    def mean(self) -> MemoryActor:
        """The same actor on the same arrays with the noise of noisy layers switched off."""
        return self._mean_actor

    def step(self, obs: NDArray[Any], inputs: Mapping[str, NDArray[Any]]) -> tuple[FloatArray, None, list[FloatArray]]:
        """Returns distribution inputs [B, K], None (no values), and the new states, each [B, S].

        Args:
            obs: Observations. `[B, D]`.
            inputs: `state_in_0`, `state_in_1`, …: the recurrent layers' states in their order, float `[B, S]`.
        """
        x: FloatArray = as_rows(obs)
        after: list[FloatArray] = []
        for states, run in self._steps:
            if states:
                new = run(x, [inputs[f"{STATE_IN_PREFIX}{len(after) + index}"] for index in range(states)])
                x, after = new[0], after + new
            else:
                x = run(x)
        return x, None, after


def bind_cell(layer: Any, weights: Weights) -> Cell:
    """Returns the function of a recurrent layer from rows `[B, in]` and its states `[B, S]` to the new states.

    The first of these is what the layer gives.

    Args:
        layer: A `GRU` or an `LSTM` of `rlframe.models.spec`.
        weights: Float32 arrays by name, possibly views of a live model's memory.
    """
    of_input, of_state = (get_array(weights, f"{layer.name}.{name}", 2).T for name in ("weight_ih", "weight_hh"))
    if isinstance(layer, GRU):
        bias_ih, bias_hh = (get_array(weights, f"{layer.name}.{name}", 1) for name in ("bias_ih", "bias_hh"))
        return partial(_gru, of_input, of_state, bias_ih, bias_hh)
    return partial(_lstm, of_input, of_state, get_array(weights, f"{layer.name}.bias", 1))


def _gru(
    input_weights: FloatArray, state_weights: FloatArray, input_bias: FloatArray, state_bias: FloatArray,
    x: FloatArray, states: list[FloatArray],
) -> list[FloatArray]:  # fmt: skip
    (state,) = states
    size = state.shape[1]
    of_input = np.dot(x, input_weights)
    of_input += input_bias
    of_state = np.dot(state, state_weights)
    of_state += state_bias
    gates = of_input[:, : 2 * size] + of_state[:, : 2 * size]
    sigmoid(gates, gates)
    new = np.tanh(of_input[:, 2 * size :] + gates[:, :size] * of_state[:, 2 * size :])
    return [new + gates[:, size:] * (state - new)]


def _lstm(
    input_weights: FloatArray, state_weights: FloatArray, bias: FloatArray, x: FloatArray, states: list[FloatArray]
) -> list[FloatArray]:
    hidden, cell = states
    size = cell.shape[1]
    gates = np.dot(x, input_weights)
    gates += np.dot(hidden, state_weights)
    gates += bias
    squashed = np.empty_like(gates)
    sigmoid(gates, squashed)
    cell = squashed[:, size : 2 * size] * cell
    cell += squashed[:, :size] * np.tanh(gates[:, 2 * size : 3 * size])
    return [squashed[:, 3 * size :] * np.tanh(cell), cell]


def make_actor(spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> Any:
    """Returns the actor that a model's `actor_spec()` describes."""
    if "lstm" in spec:
        return LSTMActor(spec, weights, rng)
    recurrent = any(isinstance(layer_from_spec(layer), (GRU, LSTM)) for layer in spec["outputs"])
    return MemoryActor(spec, weights, rng) if recurrent else ChainActor(spec, weights, rng)
