"""Networks as plain data: named layers, from which PyTorch, TensorFlow and NumPy each build the same network.

    Network({"obs": 3, "actions": 1}, (*dense_layers([256, 256], "relu"), Dense("output", "linear", 1)))

What makes and runs layers is `rlframe.models.torch.layer_owner`, `rlframe.models.tf.layer_owner` and, for acting,
`rlframe.models.actor`. Weights have the same names and shapes in all three: `"<layer>.weight"` is `[out, in]`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.models.conv_sizes import plan_convs
from rlframe.utils.errors import ConfigError

#: Width of the features that an encoder makes of observations which are no vectors.
ENCODER_WIDTH = 256


@dataclass(frozen=True)
class Initial:
    """How the weights of a dense layer begin.

    Attributes:
        kind: "normc": normal, every output's row with the norm `scale`, biases 0; "xavier": uniform in
            ±√(6 / (in + out)), biases 0; "orthogonal": rows or columns orthogonal and of the length `scale`, biases 0
            (Saxe et al. 2014); "fan_in": uniform in ±1/√in, biases too (PyTorch's own); "uniform": uniform in ±scale,
            biases too; "ones": weights 1, biases 0.
        scale: What the kind says.
    """

    kind: str = "fan_in"
    scale: float = 1.0

    def draw(self, rng: np.random.Generator, out_size: int, in_size: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns weights, float32 `[out, in]`, and biases, float32 `[out]`.

        Raises:
            ValueError: If there is no such kind.
        """
        shape = (out_size, in_size)
        if self.kind == "normc":
            weights = rng.standard_normal(shape, np.float32)
            weights *= np.float32(self.scale) / np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
            return weights, np.zeros(out_size, np.float32)
        if self.kind == "xavier":
            bound = math.sqrt(6.0 / (in_size + out_size))
            return rng.uniform(-bound, bound, shape).astype(np.float32), np.zeros(out_size, np.float32)
        if self.kind == "orthogonal":
            return self.scale * _orthogonal(rng, out_size, in_size), np.zeros(out_size, np.float32)
        if self.kind == "ones":
            return np.ones(shape, np.float32), np.zeros(out_size, np.float32)
        if self.kind not in ("fan_in", "uniform"):
            kinds = "'normc', 'xavier', 'orthogonal', 'fan_in', 'uniform' or 'ones'"
            raise ValueError(f"Initial: got kind={self.kind!r}, wanted {kinds}")
        bound = self.scale if self.kind == "uniform" else 1.0 / math.sqrt(in_size)
        drawn = rng.uniform(-bound, bound, (out_size, in_size + 1)).astype(np.float32)
        return np.ascontiguousarray(drawn[:, :-1]), np.ascontiguousarray(drawn[:, -1])


def _orthogonal(rng: np.random.Generator, out_size: int, in_size: int) -> NDArray[np.float32]:
    """Returns a matrix `[out, in]`, uniform among those whose rows, or columns if these are fewer, are orthonormal."""
    q, r = np.linalg.qr(rng.standard_normal((max(out_size, in_size), min(out_size, in_size))))
    q = q * np.sign(np.diag(r))  # without which the factor's own signs would make it less than uniform
    return np.ascontiguousarray(q if out_size >= in_size else q.T, np.float32)


class _Described:
    """What all layers have: their description as plain data."""

    kind: ClassVar[str]

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data, which survives JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]  # each of them is a dataclass

    def width_behind(self, in_size: int) -> int:
        """Returns the width of the output for inputs of `in_size`."""
        del in_size
        return int(self.units or 0)  # type: ignore[attr-defined]  # each of them has it

    def prefixed(self, prefix: str) -> Any:
        """Returns the layer with "<prefix>." before its name."""
        return replace(self, name=f"{prefix}.{self.name}")  # type: ignore[type-var, attr-defined]


@dataclass(frozen=True)
class Dense(_Described):
    """`activation(x @ weight.T + bias)`; has `<name>.weight [out, in]` and `<name>.bias [out]`.

    Attributes:
        name: Prefix of the weights.
        activation: One of `rlframe.models.actor_layers.ACTIVATIONS`.
        units: Width of the output.
        initial: How weights begin.
        trainable: Whether gradients change them.
    """

    kind: ClassVar[str] = "dense"
    name: str
    activation: str = "linear"
    units: int | None = None
    initial: Initial = field(default_factory=Initial)
    trainable: bool = True

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data; how its weights begin and change is no part of it."""
        return {"kind": self.kind, "name": self.name, "activation": self.activation, "units": self.units}


@dataclass(frozen=True)
class NoisyDense(_Described):
    """A dense layer with factorised Gaussian noise on its weights; one draw per call, shared by the rows.

    Has the weights of `Dense` (the means) and `<name>.weight_sigma [out, in]`, `<name>.bias_sigma [out]`.

    Attributes:
        name: Prefix of the weights.
        activation: One of `rlframe.models.actor_layers.ACTIVATIONS`.
        units: Width of the output.
        sigma0: Initial size of the noise.

    Source: Fortunato et al. 2018, "Noisy Networks for Exploration", eqs. 9 to 11.
    """

    kind: ClassVar[str] = "noisy_dense"
    name: str
    activation: str = "linear"
    units: int | None = None
    sigma0: float = 0.5


@dataclass(frozen=True)
class LayerNorm(_Described):
    """Layer normalisation (ε 1e-5), then the activation; has `<name>.weight [n]` and `<name>.bias [n]`."""

    kind: ClassVar[str] = "layer_norm"
    name: str
    activation: str = "linear"
    units: int | None = None


@dataclass(frozen=True)
class BatchNorm(_Described):
    """Batch renormalisation, then the activation.

        y = weight · (r (x − μ_B) / σ_B + d) + bias,  r = clip(σ_B / σ, 1/3, 3),  d = clip((μ_B − μ) / σ, −5, 5)

    μ_B, σ_B are the batch's mean and deviation, μ, σ running ones, by which alone it normalises outside of training;
    during the first `warmup` batches r = 1 and d = 0, which is batch normalisation. Has `<name>.weight [n]`,
    `<name>.bias [n]` and, unmoved by gradients, `<name>.running_mean [n]`, `<name>.running_var [n]`, `<name>.steps []`.

    Attributes:
        name: Prefix of the weights.
        activation: One of `rlframe.models.actor_layers.ACTIVATIONS`.
        momentum: Share of a batch in the running statistics.
        warmup: Batches of plain batch normalisation.

    Source: Ioffe 2017, "Batch Renormalization", algorithm 1; the numbers are those of Bhatt et al. 2024 (CrossQ).
    """

    kind: ClassVar[str] = "batch_norm"
    name: str
    activation: str = "linear"
    units: int | None = None
    momentum: float = 0.01
    warmup: int = 100_000


@dataclass(frozen=True)
class GRU(_Described):
    """Gated recurrent units, with the reset gate behind the product as in cuDNN; one state, h `[S]`.

        r, z = sigmoid(W x + V h),   n = tanh(W_n x + r · V_n h),   h' = (1 − z) n + z h

    Has `<name>.weight_ih [3S, in]`, `<name>.weight_hh [3S, S]`, `<name>.bias_ih [3S]` and `<name>.bias_hh [3S]`, gates
    in the order reset, update, new; drawn from ±1/√S.

    Source: Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", section 2.3.
    """

    kind: ClassVar[str] = "gru"
    #: How many state arrays `[S]` it carries from step to step.
    states: ClassVar[int] = 1
    name: str
    units: int | None = None


@dataclass(frozen=True)
class LSTM(_Described):
    """Long short-term memory; two states, h and c `[S]`.

        c' = sigmoid(f) c + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(c'),   (i, f, g, o) = W x + V h + b

    Has `<name>.weight_ih [4S, in]`, `<name>.weight_hh [4S, S]` and `<name>.bias [4S]`. Weights are drawn from ±1/√S,
    the forget gates' biases begin at 1 (Jozefowicz et al. 2015).

    Source: Hochreiter and Schmidhuber 1997; with the forget gate of Gers et al. 2000.
    """

    kind: ClassVar[str] = "lstm"
    states: ClassVar[int] = 2
    name: str
    units: int | None = None


@dataclass(frozen=True)
class AppendBias(_Described):
    """Appends the learned, observation-independent vector `<name>.log_std [n]` to every row (`free_log_std`).

    Attributes:
        name: Prefix of the vector.
        units: Its length.
        start: What its numbers begin with.
    """

    kind: ClassVar[str] = "append_bias"
    name: str
    units: int | None = None
    start: float = 0.0

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data; how its vector begins is no part of it."""
        return {"kind": self.kind, "name": self.name, "units": self.units}

    def width_behind(self, in_size: int) -> int:
        """Returns the width of rows and vector together."""
        return in_size + int(self.units or 0)


@dataclass(frozen=True)
class Rescale(_Described):
    """Maps [−1, 1] onto `[low, high]`, number by number; has no weights.

    Attributes:
        name: Its name.
        low: Lower bounds `[n]`.
        high: Upper bounds `[n]`.
    """

    kind: ClassVar[str] = "rescale"
    name: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def units(self) -> int:
        """Width of the output."""
        return len(self.low)


@dataclass(frozen=True)
class Convolutions(_Described):
    """Convolutions of images `[B, H, W, C]`, or of such in flat rows; gives flat features, channel by channel.

    Has `<name>.convs.<i>._model.<j>.weight [out, in, height, width]` and `….bias [out]`, j being 1 behind padding and 0
    without. NumPy does not act with them.

    Attributes:
        name: Prefix of the weights.
        shape: Height, width and channels.
        filters: [out_channels, kernel, stride] of every convolution, and the padding where it is named.
        activation: Behind every convolution.
        reduce: Whether the last convolution must leave 1×1.

    Raises:
        ConfigError: If it must and does not, or a filter is larger than its input.
    """

    kind: ClassVar[str] = "convolutions"
    name: str
    shape: tuple[int, ...] = ()
    filters: Sequence[Sequence[Any]] = ()
    activation: str = "relu"
    reduce: bool = True

    @property
    def units(self) -> int:
        """Number of features."""
        return plan_convs(self.shape, self.filters, reduce=self.reduce)[1]


@dataclass(frozen=True)
class Dueling(_Described):
    """Advantages and state values of the same features, together Q-values: V + A − mean A, for each atom by itself.

    Attributes:
        name: Its name; the weights have those of the branches' layers.
        advantage: Layers that lead to A·Z numbers.
        state_value: Layers that lead to Z numbers.
        atoms: Z.

    Source: Wang et al. 2016, "Dueling Network Architectures for Deep Reinforcement Learning", eq. 9.
    """

    kind: ClassVar[str] = "dueling"
    name: str
    advantage: tuple[Any, ...] = ()
    state_value: tuple[Any, ...] = ()
    atoms: int = 1

    @property
    def units(self) -> int:
        """Width of the output, A·Z."""
        return int(self.advantage[-1].units)

    @property
    def branches(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Both chains, of layers or of their specs."""
        return self.advantage, self.state_value

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data."""
        branches = {"advantage": self.advantage, "state_value": self.state_value}
        described = {name: [layer.to_spec() for layer in layers] for name, layers in branches.items()}
        return {"kind": self.kind, "name": self.name, **described, "atoms": self.atoms}

    def prefixed(self, prefix: str) -> Dueling:
        """Returns the layer with "<prefix>." before its name and those of the branches' layers."""
        advantage, state_value = (
            tuple(layer.prefixed(prefix) for layer in branch) for branch in (self.advantage, self.state_value)
        )
        return Dueling(f"{prefix}.{self.name}", advantage, state_value, self.atoms)


@dataclass(frozen=True)
class Sum(_Described):
    """Two chains of layers of the same inputs, added; an empty one is the inputs themselves, as in residual blocks.

    Attributes:
        name: Its name; the weights have those of the branches' layers.
        left: One chain.
        right: The other one; of the same width as the first.

    Source: He et al. 2016, "Deep Residual Learning for Image Recognition", eqs. 1 and 2.
    """

    kind: ClassVar[str] = "sum"
    name: str
    left: tuple[Any, ...] = ()
    right: tuple[Any, ...] = ()

    @property
    def units(self) -> int:
        """Width of the output."""
        return int((self.right or self.left)[-1].units)

    @property
    def branches(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Both chains, of layers or of their specs."""
        return self.left, self.right

    def to_spec(self) -> dict[str, Any]:
        """Returns the layer as plain data."""
        left, right = ([layer.to_spec() for layer in branch] for branch in self.branches)
        return {"kind": self.kind, "name": self.name, "left": left, "right": right}

    def prefixed(self, prefix: str) -> Sum:
        """Returns the layer with "<prefix>." before its name and those of the branches' layers."""
        left, right = (tuple(layer.prefixed(prefix) for layer in branch) for branch in self.branches)
        return Sum(f"{prefix}.{self.name}", left, right)


@dataclass(frozen=True)
class Atoms(_Described):
    """Expected values of distributions over atoms: of A·Z logits, A numbers.

    Attributes:
        name: Its name; it has no weights.
        units: A.
        atoms: Z, as many as lie evenly between `low` and `high`.
        low: Smallest atom.
        high: Largest atom.

    Source: Bellemare et al. 2017, "A Distributional Perspective on Reinforcement Learning", section 4.
    """

    kind: ClassVar[str] = "atoms"
    name: str
    units: int | None = None
    atoms: int = 1
    low: float = -10.0
    high: float = 10.0

    @property
    def support(self) -> NDArray[np.float32]:
        """The atoms, float32 `[Z]`."""
        return np.linspace(self.low, self.high, self.atoms, dtype=np.float32)


Layer: TypeAlias = (
    Dense | NoisyDense | LayerNorm | BatchNorm | GRU | LSTM | AppendBias | Rescale | Convolutions | Dueling | Sum
    | Atoms
)  # fmt: skip
KINDS: dict[str, type[Any]] = {
    layer.kind: layer
    for layer in (
        *(Dense, NoisyDense, LayerNorm, BatchNorm, GRU, LSTM, AppendBias, Rescale),
        *(Convolutions, Dueling, Sum, Atoms),
    )
}


def layer_from_spec(spec: Mapping[str, Any] | Layer) -> Layer:
    """Returns the layer that `spec` (the result of `to_spec`, or a layer) describes.

    Raises:
        ValueError: If the kind is unknown or the fields do not fit it.
    """
    if not isinstance(spec, Mapping):
        return spec
    fields = dict(spec)
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"Unknown layer kind {kind!r}; choose one of {sorted(KINDS)}.")
    unknown = fields.keys() - KINDS[kind].__dataclass_fields__.keys()
    if unknown or "name" not in fields:
        raise ValueError(
            f"A {kind!r} layer is described by a name and {sorted(KINDS[kind].__dataclass_fields__)}; got {spec}."
        )
    branches = {name: tuple(map(layer_from_spec, value)) for name, value in fields.items() if _is_chain(value)}
    layer: Layer = KINDS[kind](**{**fields, **branches})
    return layer


def _is_chain(value: Any) -> bool:
    """Returns whether a field of a layer's spec is a chain of layers."""
    return isinstance(value, (list, tuple)) and any(isinstance(part, Mapping) for part in value)


@dataclass(frozen=True)
class Network:
    """A network of layers behind inputs that stand side by side.

    Attributes:
        inputs: Width of each input by its name, in the order in which the network is called with them.
        layers: The layers.

    Raises:
        ConfigError: If it cannot be built: no layers, a layer without a width, two of one name, no input.
    """

    inputs: Mapping[str, int]
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        names = [layer.name for layer in self.layers]
        if not self.inputs or not names:
            raise ConfigError(f"a network needs inputs and layers; got the inputs {dict(self.inputs)}, layers {names}")
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ConfigError(f"a network's layers need names of their own; got {repeated} more than once in {names}")
        without = [layer.name for layer in self.layers if not isinstance(layer, Rescale) and not layer.units]
        if without:
            raise ConfigError(f"layers {without} have no width; wanted units=n with n ≥ 1 for each of them")

    @property
    def in_size(self) -> int:
        """Width of all inputs together."""
        return sum(self.inputs.values())

    @property
    def out_size(self) -> int:
        """Width of the output."""
        width = self.in_size
        for layer in self.layers:
            width = layer.width_behind(width)
        return width

    def initial_states(self) -> list[NDArray[np.float32]]:
        """Returns what its recurrent layers begin a sequence with: zeros, float32 `[S]` each; none without any."""
        recurrent = [layer for layer in self.layers if isinstance(layer, (GRU, LSTM))]
        return [np.zeros(int(layer.units or 0), np.float32) for layer in recurrent for _ in range(layer.states)]

    def prefixed(self, prefix: str) -> list[dict[str, Any]]:
        """Returns its layers as plain data whose names begin with "<prefix>."."""
        return [layer.prefixed(prefix).to_spec() for layer in self.layers]


@dataclass(frozen=True)
class CustomNetwork:
    """A network that the model catalog builds from a `model` section of the config: a user's own `ModelV2`.

    Attributes:
        inputs: Width of each input by its name; the model gets them side by side as `obs`.
        out_size: Width of the output.
        config: The `model` section.
        obs_space: Preprocessed space of what it sees; None for a Box of the inputs.
        action_space: Space of actions that it is told; None for a Box of the outputs.
    """

    inputs: Mapping[str, int]
    out_size: int
    config: Mapping[str, Any]
    obs_space: Any = None
    action_space: Any = None

    def spaces(self) -> tuple[Any, Any]:
        """Returns the spaces that the model is built for."""
        obs = gym.spaces.Box(-np.inf, np.inf, (sum(self.inputs.values()),), np.float32)
        actions = gym.spaces.Box(-1.0, 1.0, (self.out_size,), np.float32)
        return self.obs_space or obs, self.action_space or actions

    def check(self, model: Any) -> None:
        """Raises a ConfigError where the model wants more than its inputs and its own states."""
        past = [key for key in model.view_requirements if key != "obs" and not key.startswith("state_")]
        if past:
            raise ConfigError(
                "model: a policy's networks compute with their inputs and states; got a network that wants "
                f"{past[0]!r} (an environment wrapper can put it into the observations)"
            )


@dataclass(frozen=True)
class Variable:
    """A learned array beside the networks, such as a temperature.

    Attributes:
        value: What it begins with, a number or nested lists of numbers.
    """

    value: Any


Part: TypeAlias = Network | CustomNetwork | Variable


@dataclass(frozen=True)
class ModelLayers:
    """A model of layers: outputs, and values that begin with some of the same layers.

    Attributes:
        outputs: From inputs to outputs.
        values: From what the first `shared` layers of `outputs` give to values; None where there are none.
        shared: How many layers both have; 0: values begin with the inputs.
    """

    outputs: tuple[Layer, ...]
    values: tuple[Layer, ...] | None
    shared: int

    def to_spec(self) -> dict[str, Any]:
        """Returns the model as plain data, which survives JSON; see `rlframe.models.actor`."""
        values = None if self.values is None else [layer.to_spec() for layer in self.values]
        return {"outputs": [layer.to_spec() for layer in self.outputs], "values": values, "shared": self.shared}


class ActingView(Protocol):
    """How an acting network is used where one flat observation holds what several agents see."""

    def act(self, network: Any, obs: Any, states: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
        """Returns distribution inputs `[B, K]` of rows `[B, D]`, padded sequences, and the states behind each sequence.

        Args:
            network: The acting network, with `unroll`.
            obs: Tensor of flat observations.
            states: States before each sequence, `[S, ...]` each.
            seq_lens: Lengths of the sequences, `[S]`; None for sequences of one step.
        """

    def states(self, initial: list[Any]) -> list[Any]:
        """Returns what an episode begins with, of what the network begins a sequence with."""


def dense_layers(
    hiddens: Sequence[int],
    activation: str,
    *,
    initial: Initial | None = None,
    layer_norm: bool = False,
    batch_norm: bool = False,
) -> tuple[Layer, ...]:
    """Returns hidden layers "hidden_0", "hidden_1", …; normalised ones have "hidden_0_norm", … behind them."""
    layers: list[Layer] = []
    initial = initial or Initial()
    for index, units in enumerate(hiddens):
        name, width = f"hidden_{index}", int(units)
        if layer_norm:
            layers += [Dense(name, "linear", width, initial), LayerNorm(f"{name}_norm", activation, width)]
        elif batch_norm:
            layers += [Dense(name, activation, width, initial), BatchNorm(f"{name}_norm", "linear", width)]
        else:
            layers.append(Dense(name, activation, width, initial))
    return tuple(layers)
