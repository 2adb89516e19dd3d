"""Networks in NumPy, for acting on named weight arrays without a framework.

A model is described by a *spec*, plain data that survives JSON:

    {"outputs": [layer, ...], "values": [layer, ...] or None, "shared": n}

`outputs` leads from observations to distribution inputs. `values` leads to one value per row; it starts from what the
first `shared` layers of `outputs` gave (0: from the observations). A layer is one of `rlframe.models.spec`, or what its
`to_spec()` gives. Weights are named `"<layer name>.<array>"`, as in both frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.models.actor_layers import (
    ACTIVATIONS,
    FLOAT32,
    LAYER_BINDERS,
    ZERO,
    FloatArray,
    Step,
    Weights,
    get_array,
    normalize_activation,
)
from rlframe.models.spec import (
    Dense,
    Dueling,
    Layer,
    Sum,
    layer_from_spec,
)


def _bind_dense(layer: Dense, weights: Weights, rng: np.random.Generator | None) -> Step:
    del rng
    transposed = get_array(weights, f"{layer.name}.weight", 2).T
    bias = get_array(weights, f"{layer.name}.bias", 1)
    name = normalize_activation(layer.activation)
    dot, add, maximum, activation = np.dot, np.add, np.maximum, ACTIVATIONS[name]
    if activation is None:

        def linear(x: FloatArray) -> FloatArray:
            y: FloatArray = dot(x, transposed)
            add(y, bias, y)
            return y

        return linear

    if name == "relu":

        def rectified(x: FloatArray) -> FloatArray:
            y: FloatArray = dot(x, transposed)
            add(y, bias, y)
            maximum(y, ZERO, out=y)
            return y

        return rectified

    def step(x: FloatArray) -> FloatArray:
        y: FloatArray = dot(x, transposed)
        add(y, bias, y)
        activation(y, out=y)
        return y

    return step


def _bind_dueling(layer: Dueling, weights: Weights, rng: np.random.Generator | None) -> Step:
    advantage, state_value = (bind_chain(branch, weights, rng) for branch in (layer.advantage, layer.state_value))
    atoms = layer.atoms

    def step(x: FloatArray) -> FloatArray:
        scores = value = x
        for inner in advantage:
            scores = inner(scores)
        for inner in state_value:
            value = inner(value)
        by_atom = scores
        if atoms > 1:
            by_atom, value = scores.reshape(len(scores), -1, atoms), value[:, None, :]
        by_atom -= by_atom.mean(axis=1, keepdims=True)
        by_atom += value
        return scores

    return step


def _bind_sum(layer: Sum, weights: Weights, rng: np.random.Generator | None) -> Step:
    left, right = (bind_chain(branch, weights, rng) for branch in layer.branches)

    def step(x: FloatArray) -> FloatArray:
        one = other = x
        for inner in left:
            one = inner(one)
        for inner in right:
            other = inner(other)
        return one + other

    return step


_BINDERS: dict[str, Callable[..., Step]] = {
    "dense": _bind_dense,
    "dueling": _bind_dueling,
    "sum": _bind_sum,
    **LAYER_BINDERS,
}


def bind_layer(layer: Mapping[str, Any] | Layer, weights: Weights, rng: np.random.Generator | None) -> Step:
    """Returns a function from `[B, in]` to a new `[B, out]` that computes a layer on the live arrays."""
    described = layer_from_spec(layer)
    if described.kind not in _BINDERS:
        raise ValueError(f"NumPy cannot act with a {described.kind!r} layer; choose one of {sorted(_BINDERS)}.")
    return _BINDERS[described.kind](described, weights, rng)


def bind_chain(
    layers: Sequence[Mapping[str, Any] | Layer], weights: Weights, rng: np.random.Generator | None = None
) -> tuple[Step, ...]:
    """Returns one function per layer, each reading the live arrays of `weights`.

    Args:
        layers: Layers or their specs, in the order in which data passes.
        weights: Float32 arrays by name. They may be views of memory that training writes to; nothing is cached.
        rng: Generator for noisy layers; None switches their noise off.

    Raises:
        ValueError: If an array is missing or has another rank or dtype.
    """
    return tuple(bind_layer(layer, weights, rng) for layer in layers)


class ChainActor:
    """Maps observations to distribution inputs and values with NumPy alone.

    Args:
        spec: `{"outputs": [...], "values": [...] or None, "shared": n}`, see the module's docstring.
        weights: Float32 arrays by name, possibly views of a live model's memory: what is written there acts at once.
        rng: Generator for noisy layers; None switches their noise off.

    Raises:
        ValueError: If the spec or an array does not fit.
    """

    def __init__(self, spec: Mapping[str, Any], weights: Weights, rng: np.random.Generator | None = None) -> None:
        self.spec = dict(spec)
        self.weights = weights
        shared = int(spec.get("shared", 0))
        outputs, values = spec["outputs"], spec.get("values")
        if not 0 <= shared <= len(outputs):
            raise ValueError(f"`shared` is {shared}; wanted 0 to {len(outputs)}, the number of layers in `outputs`.")
        steps = bind_chain(outputs, weights, rng)
        self._outputs = steps
        self._trunk = steps[:shared]
        self._head = steps[shared:]
        self._values = None if values is None else bind_chain(values, weights, rng)
        self._mean_actor = self if rng is None else ChainActor(spec, weights)

    @property
    def mean(self) -> ChainActor:
        """The same actor on the same arrays with the noise of noisy layers switched off."""
        return self._mean_actor

    def forward(self, obs: NDArray[Any]) -> FloatArray:
        """Returns distribution inputs.

        Args:
            obs: Observations. `[B, D]` float32; other dtypes and further dimensions are converted and flattened.

        Returns:
            Float32 `[B, K]`, a new array.
        """
        x = obs if obs.dtype is FLOAT32 and obs.ndim == 2 else as_rows(obs)
        for step in self._outputs:
            x = step(x)
        return x

    def forward_with_values(self, obs: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns distribution inputs, float32 `[B, K]`, and values, float32 `[B]`, of `obs [B, D]`.

        Raises:
            ValueError: If the spec has no `values`.
        """
        steps = self._value_steps()
        x = obs if obs.dtype is FLOAT32 and obs.ndim == 2 else as_rows(obs)
        for step in self._trunk:
            x = step(x)
        value = x
        for step in steps:
            value = step(value)
        for step in self._head:
            x = step(x)
        return x, value[:, 0]

    def values(self, obs: NDArray[Any]) -> FloatArray:
        """Returns values, float32 `[B]`, of `obs [B, D]`.

        Raises:
            ValueError: If the spec has no `values`.
        """
        steps = self._value_steps()
        x = obs if obs.dtype is FLOAT32 and obs.ndim == 2 else as_rows(obs)
        for step in self._trunk:
            x = step(x)
        for step in steps:
            x = step(x)
        return x[:, 0]

    def _value_steps(self) -> tuple[Step, ...]:
        if self._values is None:
            raise ValueError("This actor has no value function: its spec has `values` None.")
        return self._values


def as_rows(obs: NDArray[Any]) -> FloatArray:
    """Returns `obs [B, ...]` as float32 `[B, D]`, copying only where the dtype asks for it."""
    rows = obs.reshape(len(obs), -1) if obs.ndim != 2 else obs
    return rows.astype(np.float32, copy=False)
