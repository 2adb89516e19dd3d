"""Layers of `rlframe.models.spec` and the built-in models as operations of a `Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.models.actor_layers import BATCH_NORM_EPSILON, LEAKY_SLOPE, normalize_activation
from rlframe.models.conv_sizes import plan_convs
from rlframe.models.spec import (
    GRU,
    LSTM,
    AppendBias,
    Atoms,
    BatchNorm,
    Convolutions,
    Dense,
    Dueling,
    LayerNorm,
    NoisyDense,
    Rescale,
    Sum,
    layer_from_spec,
)
from rlframe.serving.export.program import Program

Weights: TypeAlias = Mapping[str, NDArray[Any]]

_PLAIN = {
    "tanh": "Tanh", "relu": "Relu", "elu": "Elu", "selu": "Selu", "sigmoid": "Sigmoid", "softplus": "Softplus",
    "softsign": "Softsign",
}  # fmt: skip
_LAYER_NORM_EPSILON = 1e-5
#: Stands for an activation where what a layer gives is its memory.
MEMORY = "memory"


def activated(program: Program, x: str, name: str | None) -> str:
    """Adds an activation of `rlframe.models.actor_layers.ACTIVATIONS`."""
    name = normalize_activation(name)
    if name in _PLAIN:
        return program.add(_PLAIN[name], [x])
    if name in ("swish", "silu"):
        return program.add("Mul", [x, program.add("Sigmoid", [x])])
    if name == "leaky_relu":
        return program.add("LeakyRelu", [x], alpha=LEAKY_SLOPE)
    if name == "relu6":
        return program.clip(x, 0.0, 6.0)
    if name == "gelu":
        share = program.math("Add", program.add("Erf", [program.math("Mul", x, 0.5**0.5)]), 1.0)
        return program.add("Mul", [program.math("Mul", x, 0.5), share])
    return x


class Layers:
    """Writes layers into a program.

    Args:
        program: Where they are written.
        weights: Float32 arrays by name, as `Policy.get_weights` gives them.
        states: Names of the memory's inputs, in the order in which layers with memory take them.
    """

    def __init__(self, program: Program, weights: Weights, states: Sequence[str] = ()) -> None:
        self.program, self.weights = program, weights
        self.states = list(states)
        #: Names of the states behind the step, in the same order.
        self.after: list[str] = []

    def chain(self, x: str, layers: Sequence[Any], prefix: str = "") -> str:
        """Returns what layers, or their specs, make of rows `[B, D]`; `prefix` stands before the weights' names."""
        for layer in layers:
            described = layer_from_spec(layer)
            x = getattr(self, f"_{described.kind}")(x, described, prefix)
        return x

    def _array(self, name: str) -> NDArray[Any]:
        return np.asarray(self.weights[name])

    def linear(self, x: str, weight: str, bias: str) -> str:
        """Returns `x @ weight.T + bias` for weights by name."""
        program = self.program
        return program.math("Add", program.math("MatMul", x, self._array(weight).T), self._array(bias))

    def _dense(self, x: str, layer: Dense, prefix: str) -> str:
        name = prefix + layer.name
        made = activated(self.program, self.linear(x, f"{name}.weight", f"{name}.bias"), layer.activation)
        return self.noted(name, layer.activation, made)

    def noted(self, name: str, activation: str | None, made: str) -> str:
        """Notes what a layer with units gives, and returns it."""
        self.program.layers.append((name, normalize_activation(activation), made))
        return made

    def _noisy_dense(self, x: str, layer: NoisyDense, prefix: str) -> str:
        return self._dense(x, Dense(layer.name, layer.activation), prefix)  # no noise where nothing explores

    def _layer_norm(self, x: str, layer: LayerNorm, prefix: str) -> str:
        return activated(self.program, self.normalized(x, prefix + layer.name, 1), layer.activation)

    def normalized(self, x: str, name: str, axis: int) -> str:
        """Returns a layer norm over the last axis, which is the one with number `axis`."""
        program, axes = self.program, self.program.constant([axis], np.int64)
        centred = program.add("Sub", [x, program.add("ReduceMean", [x, axes])])
        variance = program.add("ReduceMean", [program.add("Mul", [centred, centred]), axes])
        std = program.add("Sqrt", [program.math("Add", variance, _LAYER_NORM_EPSILON)])
        scaled = program.math("Mul", program.add("Div", [centred, std]), self._array(f"{name}.weight"))
        return program.math("Add", scaled, self._array(f"{name}.bias"))

    def _batch_norm(self, x: str, layer: BatchNorm, prefix: str) -> str:
        scale, bias, mean, variance = (
            self._array(f"{prefix}{layer.name}.{part}") for part in ("weight", "bias", "running_mean", "running_var")
        )
        std = np.sqrt(variance + np.float32(BATCH_NORM_EPSILON))
        scaled = self.program.math("Div", self.program.math("Sub", x, mean), std)
        made = self.program.math("Add", self.program.math("Mul", scaled, scale), bias)
        return activated(self.program, made, layer.activation)

    def _append_bias(self, x: str, layer: AppendBias, prefix: str) -> str:
        zero = self.program.math("Mul", self.program.columns(x, 0, 1), 0.0)  # for as many rows as there are
        return self.program.beside([x, self.program.math("Add", zero, self._array(f"{prefix}{layer.name}.log_std"))])

    def _rescale(self, x: str, layer: Rescale, prefix: str) -> str:
        del prefix
        low, high = (np.asarray(bound, np.float32) for bound in (layer.low, layer.high))
        return self.program.math("Add", self.program.math("Mul", x, (high - low) * 0.5), (high + low) * 0.5)

    def _dueling(self, x: str, layer: Dueling, prefix: str) -> str:
        program = self.program
        scores, value = (self.chain(x, branch, prefix) for branch in (layer.advantage, layer.state_value))
        by_atom = self._by_atom(scores, layer.atoms)
        mean = program.add("ReduceMean", [by_atom, program.constant([1], np.int64)])
        made = program.add("Add", [program.add("Sub", [by_atom, mean]), self._by_atom(value, layer.atoms)])
        return program.add("Reshape", [made, program.constant([0, -1], np.int64)])

    def _by_atom(self, x: str, atoms: int) -> str:
        """Returns `[B, A·Z]` as `[B, A, Z]`."""
        return self.program.add("Reshape", [x, self.program.constant([0, -1, atoms], np.int64)])

    def _sum(self, x: str, layer: Sum, prefix: str) -> str:
        return self.program.add("Add", [self.chain(x, branch, prefix) for branch in layer.branches])

    def _atoms(self, x: str, layer: Atoms, prefix: str) -> str:
        del prefix
        probs = self.program.add("Softmax", [self._by_atom(x, layer.atoms)], axis=2)
        values = self.program.math("MatMul", probs, layer.support[:, None])
        return self.program.add("Reshape", [values, self.program.constant([0, -1], np.int64)])

    def _convolutions(self, x: str, layer: Convolutions, prefix: str) -> str:
        program, (height, width, channels) = self.program, layer.shape
        x = program.rows(program.cast(x, np.float32), height, width, channels)
        x = program.add("Transpose", [x], perm=[0, 3, 1, 2])
        plans, features = plan_convs(layer.shape, layer.filters, reduce=layer.reduce)
        for index, plan in enumerate(plans):
            left, right, top, bottom = plan.padding or (0, 0, 0, 0)
            name = f"{prefix}{layer.name}.convs.{index}._model.{int(plan.padding is not None)}"
            arrays = [program.constant(self._array(f"{name}.{part}")) for part in ("weight", "bias")]
            x = program.add("Conv", [x, *arrays], strides=list(plan.stride), pads=[top, left, bottom, right])
            x = self.noted(f"{prefix}{layer.name}.{index}", layer.activation, activated(program, x, layer.activation))
        return program.rows(x, features)

    # --- memory ------------------------------------------------------------------------------------------------

    def _lstm(self, x: str, layer: LSTM, prefix: str) -> str:
        program, name = self.program, prefix + layer.name
        hidden, cell = self.states.pop(0), self.states.pop(0)
        of_state = program.math("MatMul", hidden, self._array(f"{name}.weight_hh").T)
        of_input = program.math("MatMul", x, self._array(f"{name}.weight_ih").T)
        bias = self._array(f"{name}.bias")
        gates = program.math("Add", program.add("Add", [of_input, of_state]), bias)
        size = len(bias) // 4
        i, f, g, o = (program.columns(gates, start, start + size) for start in range(0, 4 * size, size))
        kept = program.add("Mul", [program.add("Sigmoid", [f]), cell])
        added = program.add("Mul", [program.add("Sigmoid", [i]), program.add("Tanh", [g])])
        cell = program.add("Add", [kept, added])
        hidden = program.add("Mul", [program.add("Sigmoid", [o]), program.add("Tanh", [cell])])
        self.after += [hidden, cell]
        program.layers.append((name, MEMORY, hidden))
        return hidden

    def _gru(self, x: str, layer: GRU, prefix: str) -> str:
        program, name, state = self.program, prefix + layer.name, self.states.pop(0)
        of_input = self.linear(x, f"{name}.weight_ih", f"{name}.bias_ih")
        of_state = self.linear(state, f"{name}.weight_hh", f"{name}.bias_hh")
        size = len(self._array(f"{name}.bias_ih")) // 3

        def gate(start: int) -> str:
            both = [program.columns(part, start, start + size) for part in (of_input, of_state)]
            return program.add("Sigmoid", [program.add("Add", both)])

        reset, update = gate(0), gate(size)
        remembered = program.add("Mul", [reset, program.columns(of_state, 2 * size, 3 * size)])
        new = program.add(
            "Tanh", [program.add("Add", [program.columns(of_input, 2 * size, 3 * size), remembered])]
        )  # fmt: skip
        made = program.add("Add", [new, program.add("Mul", [update, program.add("Sub", [state, new])])])
        self.after.append(made)
        program.layers.append((name, MEMORY, made))
        return made
