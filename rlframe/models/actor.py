"""Acting in NumPy: a chain of dense layers on named weight arrays, with no framework and no scratch memory.

A model is described by a *spec*, plain data that survives JSON:

    {"outputs": [layer, ...], "values": [layer, ...] or None, "shared": n}

`outputs` leads from observations to distribution inputs. `values` leads to one value per row; it starts from what the
first `shared` layers of `outputs` gave (0: from the observations). A layer is `Dense(...).to_spec()` and the like.
Weights are named `"<layer name>.<array>"`, the names that the torch sibling's `named_parameters()` has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class Dense:
    """`activation(x @ weight.T + bias)`; reads `<name>.weight [out, in]` and `<name>.bias [out]`.

    Attributes:
        name: Prefix of the weight arrays.
        activation: One of `ACTIVATIONS`.
        units: Rows of the weight matrix, for whoever builds the arrays from the spec; not needed for acting.
    """

    kind: ClassVar[str] = "dense"
    name: str
    activation: str = "linear"
    units: int | None = None

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data."""
        return {"kind": self.kind, **asdict(self)}

    def bind(self, weights: Weights, rng: np.random.Generator | None) -> Step:  # noqa: ARG002 - one signature for all layers
        """Returns a function from `[B, in]` to a new `[B, out]` that reads the live arrays."""
        transposed = get_array(weights, f"{self.name}.weight", 2).T
        bias = get_array(weights, f"{self.name}.bias", 1)
        dot, add, activation = np.dot, np.add, ACTIVATIONS[normalize_activation(self.activation)]
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


@dataclass(frozen=True)
class NoisyDense:
    """A dense layer with factorised Gaussian noise on its weights; one draw per call, shared by the rows.

    Reads the arrays of `Dense` (the means) and `<name>.weight_sigma [out, in]`, `<name>.bias_sigma [out]`. Without a
    generator the means act alone.

    Source: Fortunato et al. 2018, "Noisy Networks for Exploration", eqs. 9 to 11.
    """

    kind: ClassVar[str] = "noisy_dense"
    name: str
    activation: str = "linear"
    units: int | None = None

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data."""
        return {"kind": self.kind, **asdict(self)}

    def bind(self, weights: Weights, rng: np.random.Generator | None) -> Step:
        """Returns a function from `[B, in]` to a new `[B, out]` that reads the live arrays."""
        mean = Dense(self.name, "linear").bind(weights, None)
        sigma = get_array(weights, f"{self.name}.weight_sigma", 2).T
        bias_sigma = get_array(weights, f"{self.name}.bias_sigma", 1)
        activation = ACTIVATIONS[normalize_activation(self.activation)]
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


@dataclass(frozen=True)
class LayerNorm:
    """Layer normalisation (ε 1e-5), then the activation; reads `<name>.weight [n]` and `<name>.bias [n]`."""

    kind: ClassVar[str] = "layer_norm"
    name: str
    activation: str = "linear"
    units: int | None = None

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data."""
        return {"kind": self.kind, **asdict(self)}

    def bind(self, weights: Weights, rng: np.random.Generator | None) -> Step:  # noqa: ARG002 - one signature for all layers
        """Returns a function from `[B, n]` to a new `[B, n]` that reads the live arrays."""
        scale = get_array(weights, f"{self.name}.weight", 1)
        bias = get_array(weights, f"{self.name}.bias", 1)
        activation = ACTIVATIONS[normalize_activation(self.activation)]
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


@dataclass(frozen=True)
class AppendBias:
    """Appends the learned, observation-independent vector `<name>.log_std [n]` to every row (`free_log_std`)."""

    kind: ClassVar[str] = "append_bias"
    name: str
    units: int | None = None

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data."""
        return {"kind": self.kind, **asdict(self)}

    def bind(self, weights: Weights, rng: np.random.Generator | None) -> Step:  # noqa: ARG002 - one signature for all layers
        """Returns a function from `[B, k]` to a new `[B, k + n]` that reads the live array."""
        log_std = get_array(weights, f"{self.name}.log_std", 1)
        added = len(log_std)

        def step(x: FloatArray) -> FloatArray:
            return np.concatenate([x, np.broadcast_to(log_std, (len(x), added))], axis=1)

        return step


Layer: TypeAlias = Dense | NoisyDense | LayerNorm | AppendBias
_KINDS: dict[str, type[Any]] = {layer.kind: layer for layer in (Dense, NoisyDense, LayerNorm, AppendBias)}


def layer_from_spec(spec: Mapping[str, Any] | Layer) -> Layer:
    """Returns the layer that `spec` (the result of `to_spec`, or a layer) describes.

    Raises:
        ValueError: If the kind is unknown or the fields do not fit it.
    """
    if not isinstance(spec, Mapping):
        return spec
    fields = dict(spec)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"Unknown layer kind {kind!r}; choose one of {sorted(_KINDS)}.")
    unknown = fields.keys() - _KINDS[kind].__dataclass_fields__.keys()
    if unknown or "name" not in fields:
        raise ValueError(
            f"A {kind!r} layer is described by a name and {sorted(_KINDS[kind].__dataclass_fields__)}; got {spec}."
        )
    layer: Layer = _KINDS[kind](**fields)
    return layer


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
    return tuple(layer_from_spec(layer).bind(weights, rng) for layer in layers)


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
