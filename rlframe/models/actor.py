"""Acting in NumPy: a chain of dense layers on named weight arrays, with no framework and no scratch memory.

A model is described by a *spec*, plain data that survives JSON:

    {"outputs": [layer, ...], "values": [layer, ...] or None, "shared": n}

`outputs` leads from observations to distribution inputs. `values` leads to one value per row; it starts from what the
first `shared` layers of `outputs` gave (0: from the observations). A layer is one of `rlframe.models.spec`, or what its
`to_spec()` gives. Weights are named `"<layer name>.<array>"`, as in both frameworks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.models.spec import (
    AppendBias,
    Atoms,
    BatchNorm,
    Dense,
    Dueling,
    Layer,
    LayerNorm,
    NoisyDense,
    Rescale,
    Sum,
    layer_from_spec,
)

FloatArray: TypeAlias = NDArray[np.float32]
Weights: TypeAlias = Mapping[str, FloatArray]
Step: TypeAlias = Callable[[FloatArray], FloatArray]
Activation: TypeAlias = Callable[[FloatArray, FloatArray], object]

_FLOAT32 = np.dtype(np.float32)
# 0-d arrays: a Python scalar is converted at every call, which costs as much as the operation.
_ZERO = np.zeros((), np.float32)
_HALF = np.full((), 0.5, np.float32)
_SELU_ALPHA, _SELU_SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)
_SQRT_HALF = np.float64(0.5) ** 0.5
_ERF_P, _ERF_COEFFICIENTS = 0.3275911, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)

#: Slope of `leaky_relu` below 0, TensorFlow's in both frameworks: PyTorch's own default is 0.01.
LEAKY_SLOPE = 0.2
#: What batch normalisation adds to variances.
BATCH_NORM_EPSILON = 1e-3


def _relu(x: FloatArray, out: FloatArray) -> None:
    np.maximum(x, _ZERO, out=out)


def sigmoid(x: FloatArray, out: FloatArray) -> None:
    """Writes 1 / (1 + exp(-x)) into `out`."""
    # By way of tanh, which cannot overflow as exp(-x) does.
    np.multiply(x, _HALF, out)
    np.tanh(out, out)
    np.multiply(out, _HALF, out)
    np.add(out, _HALF, out)


def _swish(x: FloatArray, out: FloatArray) -> None:
    gate = np.empty_like(x)
    sigmoid(x, gate)
    np.multiply(x, gate, out)


def _elu(x: FloatArray, out: FloatArray) -> None:
    negative = np.minimum(x, _ZERO)
    np.expm1(negative, negative)
    np.maximum(x, _ZERO, out=out)
    np.add(out, negative, out)


def _selu(x: FloatArray, out: FloatArray) -> None:
    negative = np.minimum(x, _ZERO)
    np.expm1(negative, negative)
    np.multiply(negative, _SELU_ALPHA, negative)
    np.maximum(x, _ZERO, out=out)
    np.add(out, negative, out)
    np.multiply(out, _SELU_SCALE, out)


def _leaky_relu(x: FloatArray, out: FloatArray) -> None:
    np.maximum(x, np.multiply(x, LEAKY_SLOPE), out=out)


def _gelu(x: FloatArray, out: FloatArray) -> None:
    """Writes x Φ(x), Φ the normal distribution's, by Abramowitz and Stegun's 7.1.26: to 1.5e-7."""
    size = np.abs(x) * _SQRT_HALF
    t = 1.0 / (1.0 + _ERF_P * size)
    tail = np.polyval(_ERF_COEFFICIENTS, t) * np.exp(-size * size)  # 1 − erf(size)
    out[...] = x * np.where(x < 0, 0.5 * tail, 1.0 - 0.5 * tail)


def _softplus(x: FloatArray, out: FloatArray) -> None:
    np.logaddexp(x, _ZERO, out=out)


def _softsign(x: FloatArray, out: FloatArray) -> None:
    np.divide(x, np.abs(x) + np.float32(1), out)


def _relu6(x: FloatArray, out: FloatArray) -> None:
    np.clip(x, _ZERO, np.float32(6), out=out)


#: Activation name -> function (x, out); None leaves the values alone. The torch models accept the same names.
ACTIVATIONS: dict[str, Activation | None] = {
    "tanh": np.tanh,
    "relu": _relu,
    "elu": _elu,
    "swish": _swish,
    "silu": _swish,
    "sigmoid": sigmoid,
    "selu": _selu,
    "gelu": _gelu,
    "leaky_relu": _leaky_relu,
    "softplus": _softplus,
    "softsign": _softsign,
    "relu6": _relu6,
    "linear": None,
}


def normalize_activation(name: str | None) -> str:
    """Returns the lower-case activation name; None means "linear".

    Raises:
        ValueError: If there is no such activation.
    """
    key = "linear" if name is None else str(name).lower()
    if key not in ACTIVATIONS:
        raise ValueError(f"Unknown activation {name!r}; choose one of {sorted(ACTIVATIONS)}.")
    return key


def get_array(weights: Weights, name: str, ndim: int) -> FloatArray:
    """Returns one array after checking its presence, rank and dtype."""
    if name not in weights:
        raise ValueError(f"The actor needs the weights {name!r}; there are {sorted(weights)}.")
    array = weights[name]
    if array.ndim != ndim or array.dtype != _FLOAT32:
        raise ValueError(
            f"Weights {name!r} are {array.dtype}{list(array.shape)}; wanted float32 with {ndim} dimension(s)."
        )
    return array


def _bind_dense(layer: Dense, weights: Weights, rng: np.random.Generator | None) -> Step:
    del rng
    transposed = get_array(weights, f"{layer.name}.weight", 2).T
    bias = get_array(weights, f"{layer.name}.bias", 1)
    dot, add, activation = np.dot, np.add, ACTIVATIONS[normalize_activation(layer.activation)]
    if activation is None:

        def linear(x: FloatArray) -> FloatArray:
            y: FloatArray = dot(x, transposed)
            add(y, bias, y)
            return y

        return linear

    def step(x: FloatArray) -> FloatArray:
        y: FloatArray = dot(x, transposed)
        add(y, bias, y)
        activation(y, y)
        return y

    return step


def _bind_noisy(layer: NoisyDense, weights: Weights, rng: np.random.Generator | None) -> Step:
    mean = _bind_dense(Dense(layer.name), weights, None)
    sigma = get_array(weights, f"{layer.name}.weight_sigma", 2).T
    bias_sigma = get_array(weights, f"{layer.name}.bias_sigma", 1)
    activation = ACTIVATIONS[normalize_activation(layer.activation)]
    in_size, out_size = sigma.shape

    def step(x: FloatArray) -> FloatArray:
        y = mean(x)
        if rng is not None:
            noise = rng.standard_normal(in_size + out_size, np.float32)
            noise = np.sign(noise) * np.sqrt(np.abs(noise))
            # (x·ε_in) σᵀ · ε_out is x (σ∘ε_out ε_inᵀ)ᵀ without forming the noisy matrix.
            y += (np.dot(x * noise[:in_size], sigma) + bias_sigma) * noise[in_size:]
        if activation is not None:
            activation(y, y)
        return y

    return step


def _bind_layer_norm(layer: LayerNorm, weights: Weights, rng: np.random.Generator | None) -> Step:
    del rng
    scale = get_array(weights, f"{layer.name}.weight", 1)
    bias = get_array(weights, f"{layer.name}.bias", 1)
    activation = ACTIVATIONS[normalize_activation(layer.activation)]
    epsilon = np.float32(1e-5)

    def step(x: FloatArray) -> FloatArray:
        y: FloatArray = x - x.mean(axis=1, keepdims=True)
        y /= np.sqrt(np.mean(np.square(y), axis=1, keepdims=True) + epsilon)
        y *= scale
        y += bias
        if activation is not None:
            activation(y, y)
        return y

    return step


def _bind_batch_norm(layer: BatchNorm, weights: Weights, rng: np.random.Generator | None) -> Step:
    del rng
    scale, bias = (get_array(weights, f"{layer.name}.{array}", 1) for array in ("weight", "bias"))
    mean, variance = (get_array(weights, f"{layer.name}.running_{array}", 1) for array in ("mean", "var"))
    activation = ACTIVATIONS[normalize_activation(layer.activation)]
    epsilon = np.float32(BATCH_NORM_EPSILON)

    def step(x: FloatArray) -> FloatArray:
        y: Any = (x - mean) / np.sqrt(variance + epsilon) * scale + bias
        if activation is not None:
            activation(y, y)
        return y  # type: ignore[no-any-return]  # an array

    return step


def _bind_append_bias(layer: AppendBias, weights: Weights, rng: np.random.Generator | None) -> Step:
    del rng
    log_std = get_array(weights, f"{layer.name}.log_std", 1)
    added = len(log_std)

    def step(x: FloatArray) -> FloatArray:
        return np.concatenate([x, np.broadcast_to(log_std, (len(x), added))], axis=1)

    return step


def _bind_rescale(layer: Rescale, weights: Weights, rng: np.random.Generator | None) -> Step:
    del weights, rng
    low, high = (np.asarray(bound, np.float32) for bound in (layer.low, layer.high))
    half, centre = ((high + sign * low) * np.float32(0.5) for sign in (np.float32(-1), np.float32(1)))

    def step(x: FloatArray) -> FloatArray:
        return x * half + centre

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


def _bind_atoms(layer: Atoms, weights: Weights, rng: np.random.Generator | None) -> Step:
    del weights, rng
    support, atoms = layer.support, layer.atoms

    def step(x: FloatArray) -> FloatArray:
        logits = x.reshape(len(x), -1, atoms)
        probs = np.exp(logits - logits.max(axis=2, keepdims=True))
        probs /= probs.sum(axis=2, keepdims=True)
        result: FloatArray = probs @ support
        return result

    return step


_BINDERS: dict[str, Callable[..., Step]] = {
    "dense": _bind_dense,
    "noisy_dense": _bind_noisy,
    "layer_norm": _bind_layer_norm,
    "batch_norm": _bind_batch_norm,
    "append_bias": _bind_append_bias,
    "rescale": _bind_rescale,
    "dueling": _bind_dueling,
    "sum": _bind_sum,
    "atoms": _bind_atoms,
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


def run_chain(
    layers: Sequence[Mapping[str, Any] | Layer],
    weights: Weights,
    x: FloatArray,
    rng: np.random.Generator | None = None,
) -> FloatArray:
    """Returns what `layers` make of `x`; binds anew at each call, see `bind_chain` for hot paths.

    Args:
        layers: Layers or their specs, in the order in which data passes.
        weights: Float32 arrays by name.
        x: Inputs. Float32 `[B, D]`.
        rng: Generator for noisy layers; None switches their noise off.
    """
    for step in bind_chain(layers, weights, rng):
        x = step(x)
    return x


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
    def has_values(self) -> bool:
        """Whether the actor can tell values."""
        return self._values is not None

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
        x = obs if obs.dtype is _FLOAT32 and obs.ndim == 2 else as_rows(obs)
        for step in self._outputs:
            x = step(x)
        return x

    def forward_with_values(self, obs: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns distribution inputs, float32 `[B, K]`, and values, float32 `[B]`, of `obs [B, D]`.

        Raises:
            ValueError: If the spec has no `values`.
        """
        steps = self._value_steps()
        x = obs if obs.dtype is _FLOAT32 and obs.ndim == 2 else as_rows(obs)
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
        x = obs if obs.dtype is _FLOAT32 and obs.ndim == 2 else as_rows(obs)
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
