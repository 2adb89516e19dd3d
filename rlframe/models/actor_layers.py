"""What a NumPy actor is made of: activations, and functions that compute one layer on live weight arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.models.spec import AppendBias, Atoms, BatchNorm, LayerNorm, NoisyDense, Rescale

FloatArray: TypeAlias = NDArray[np.float32]
Weights: TypeAlias = Mapping[str, FloatArray]
Step: TypeAlias = Callable[[FloatArray], FloatArray]
Activation: TypeAlias = Callable[..., object]  # activation(x, out=y)
FLOAT32 = np.dtype(np.float32)

# 0-d arrays: a Python scalar is converted at every call, which costs as much as the operation.
ZERO, ONE = np.zeros((), np.float32), np.ones((), np.float32)
_HALF = np.full((), 0.5, np.float32)
_SELU_ALPHA, _SELU_SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)
_SQRT_HALF = np.float64(0.5) ** 0.5
_ERF_P, _ERF_COEFFICIENTS = 0.3275911, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)
#: Slope of `leaky_relu` below 0, TensorFlow's in both frameworks: PyTorch's own default is 0.01.
LEAKY_SLOPE = 0.2
#: What batch normalisation adds to variances.
BATCH_NORM_EPSILON = 1e-3


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
    negative = np.minimum(x, ZERO)
    np.expm1(negative, negative)
    np.maximum(x, ZERO, out=out)
    np.add(out, negative, out)


def _selu(x: FloatArray, out: FloatArray) -> None:
    negative = np.minimum(x, ZERO)
    np.expm1(negative, negative)
    np.multiply(negative, _SELU_ALPHA, negative)
    np.maximum(x, ZERO, out=out)
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
    np.logaddexp(x, ZERO, out=out)


def _softsign(x: FloatArray, out: FloatArray) -> None:
    np.divide(x, np.abs(x) + np.float32(1), out)


def _relu6(x: FloatArray, out: FloatArray) -> None:
    np.clip(x, ZERO, np.float32(6), out=out)


#: Activation name -> function (x, out); None leaves the values alone. The torch models accept the same names.
ACTIVATIONS: dict[str, Activation | None] = {
    "tanh": np.tanh,
    "relu": partial(np.maximum, ZERO),
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
    if array.ndim != ndim or array.dtype != FLOAT32:
        raise ValueError(
            f"Weights {name!r} are {array.dtype}{list(array.shape)}; wanted float32 with {ndim} dimension(s)."
        )
    return array


def _bind_noisy(layer: NoisyDense, weights: Weights, rng: np.random.Generator | None) -> Step:
    mean = get_array(weights, f"{layer.name}.weight", 2).T
    mean_bias = get_array(weights, f"{layer.name}.bias", 1)
    sigma = get_array(weights, f"{layer.name}.weight_sigma", 2).T
    bias_sigma = get_array(weights, f"{layer.name}.bias_sigma", 1)
    activation = ACTIVATIONS[normalize_activation(layer.activation)]
    in_size, out_size = sigma.shape

    def step(x: FloatArray) -> FloatArray:
        y: FloatArray = np.dot(x, mean)
        np.add(y, mean_bias, y)
        if rng is not None:
            noise = rng.standard_normal(in_size + out_size, np.float32)
            noise = np.sign(noise) * np.sqrt(np.abs(noise))
            # (x·ε_in) σᵀ · ε_out is x (σ∘ε_out ε_inᵀ)ᵀ without forming the noisy matrix.
            y += (np.dot(x * noise[:in_size], sigma) + bias_sigma) * noise[in_size:]
        if activation is not None:
            activation(y, out=y)
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
            activation(y, out=y)
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
            activation(y, out=y)
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


#: What binds a layer of each kind, `fn(layer, weights, rng) -> step`; `actor` has those that most networks are made of.
LAYER_BINDERS: dict[str, Callable[..., Step]] = {
    "noisy_dense": _bind_noisy,
    "layer_norm": _bind_layer_norm,
    "batch_norm": _bind_batch_norm,
    "append_bias": _bind_append_bias,
    "rescale": _bind_rescale,
    "atoms": _bind_atoms,
}
