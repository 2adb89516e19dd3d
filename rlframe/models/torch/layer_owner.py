"""Layers of `rlframe.models.spec` in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.fast.dense_torch import dense
from rlframe.models.actor_layers import BATCH_NORM_EPSILON, normalize_activation
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.spec import (
    GRU,
    LSTM,
    AppendBias,
    Atoms,
    BatchNorm,
    Convolutions,
    Dense,
    Dueling,
    Initial,
    Layer,
    LayerNorm,
    NoisyDense,
    Rescale,
    Sum,
)
from rlframe.models.torch import cells
from rlframe.models.torch.conv_stack import ConvStack
from rlframe.models.torch.misc import AppendBiasLayer, activation_function, normc_initializer, undrawn_linear
from rlframe.models.torch.noisy import NoisyLayer
from rlframe.models.torch.torch_modelv2 import TorchModelV2

#: Limits of batch renormalisation: how far its scale and its shift may go.
MOST_SCALE, MOST_SHIFT = 3.0, 5.0


class BoundLayer(NamedTuple):
    """A layer as it is run.

    Attributes:
        name: Of the submodule.
        activation: Its name.
        function: The activation; None for "linear".
        composite: The layer, where it has no submodule of its own.
        branches: Its branches.
    """

    name: str
    activation: str
    function: Callable[[Tensor], Tensor] | None
    composite: Dueling | Sum | Atoms | None = None
    branches: tuple[tuple[BoundLayer, ...], ...] = ()


class TorchLayerOwner(LayerOwner):
    """Has layers as submodules of their names, beside `nn.Module`; those in "<a>.<b>" stand in a list "<a>"."""

    def init_spec_owner(self) -> None:
        """Initialises `nn.Module` if nobody has."""
        if "_parameters" not in self.__dict__:
            nn.Module.__init__(self)  # type: ignore[arg-type]  # it is one

    def init_model_base(self, *arguments: Any, **options: Any) -> None:
        """Initialises `nn.Module` and `TorchModelV2`."""
        nn.Module.__init__(self)  # type: ignore[arg-type]  # it is one
        TorchModelV2.__init__(self, *arguments, **options)  # type: ignore[arg-type]  # and one of these

    def _add_spec_layer(self, layer: Layer, in_size: int, rng: np.random.Generator | None) -> None:
        """Adds the submodule of a layer."""
        owner: Any = self
        *outer, name = layer.name.split(".")
        for container in outer:
            if container not in owner._modules:
                owner.add_module(container, nn.ModuleList())
            owner = owner._modules[container]
        owner.add_module(name, _module(layer, in_size, rng))

    def _add_spec_constant(self, name: str, value: Any) -> None:
        """Registers a buffer that is no part of the state."""
        module: Any = self
        module.register_buffer(name, torch.as_tensor(value), persistent=False)

    def bind_spec(self, layers: Sequence[Layer]) -> tuple[BoundLayer, ...]:
        """Returns layers with their activations."""
        return tuple(self._bind_spec_layer(layer) for layer in layers)

    def _bind_spec_layer(self, layer: Layer) -> BoundLayer:
        if isinstance(layer, Dueling | Sum | Atoms):
            branches = () if isinstance(layer, Atoms) else layer.branches
            return BoundLayer(layer.name, "linear", None, layer, tuple(self.bind_spec(branch) for branch in branches))
        inside = isinstance(layer, Convolutions)  # which have their activations themselves
        activation = normalize_activation(None if inside else getattr(layer, "activation", None))
        return BoundLayer(layer.name, activation, activation_function(activation))

    def run_spec(
        self, layers: tuple[BoundLayer, ...], x: Tensor, *, training: bool = False, frozen: bool = False
    ) -> Tensor:
        """Returns what layers make of rows `[B, n]`."""
        # By name, not by reference: a replaced or deep-copied submodule is then the one that computes.
        owner: Any = self
        modules = owner._modules
        for name, activation, function, composite, branches in layers:
            if composite is not None:
                x = self._run_spec_composite(composite, branches, x, training=training, frozen=frozen)
                continue
            module = modules.get(name) or owner.get_submodule(name)
            if isinstance(module, BatchRenorm):
                x = module(x, training)
                x = x if function is None else function(x)
            else:
                x = dense(x, module, activation, function, frozen=frozen)
        return x

    def has_spec_layers(self, layers: Sequence[Layer]) -> bool:
        """Returns whether the submodules are of the kinds that the layers have."""
        owner: Any = self
        modules = owner._modules
        return all(
            isinstance(modules.get(layer.name) or owner.get_submodule(layer.name), _KINDS[layer.kind])
            for layer in layers
        )

    def get_spec_weight(self, layer: str, part: str) -> NDArray[np.float32]:
        """Returns a copy of a parameter or buffer."""
        array: NDArray[np.float32] = getattr(self._layer(layer), part).detach().cpu().numpy().copy()
        return array

    def _layer(self, name: str) -> Any:
        owner: Any = self
        return owner._modules.get(name) or owner.get_submodule(name)

    def set_spec_weight(self, layer: str, part: str, value: NDArray[np.float32]) -> None:
        """Sets a parameter or buffer in its place."""
        with torch.no_grad():
            getattr(self._layer(layer), part).copy_(torch.from_numpy(value))


class FixedDense(nn.Module):
    """A dense layer that no gradient changes: `weight [out, in]` and `bias [out]` are buffers."""

    weight: Tensor
    bias: Tensor

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(out_size, in_size))
        self.register_buffer("bias", torch.empty(out_size))

    def forward(self, x: Tensor) -> Tensor:
        """Returns x Wᵀ + b. `[B, in]` to `[B, out]`."""
        return nn.functional.linear(x, self.weight, self.bias)


class BatchRenorm(nn.Module):
    """Batch renormalisation; see `rlframe.models.spec.BatchNorm`."""

    running_mean: Tensor
    running_var: Tensor
    steps: Tensor

    def __init__(self, units: int, momentum: float, warmup: int) -> None:
        super().__init__()
        self.momentum, self.warmup = momentum, warmup
        self.weight, self.bias = nn.Parameter(torch.ones(units)), nn.Parameter(torch.zeros(units))
        self.register_buffer("running_mean", torch.zeros(units))
        self.register_buffer("running_var", torch.ones(units))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor, training: bool) -> Tensor:
        """Returns normalised rows `[B, n]`; in training by the batch's statistics, which the running ones follow."""
        running, running_var, steps = self.running_mean, self.running_var, self.steps
        running_std = torch.sqrt(running_var + BATCH_NORM_EPSILON)
        if not training:
            return (x - running) / running_std * self.weight + self.bias
        mean, variance = x.mean(0), x.var(0, unbiased=False)
        std = torch.sqrt(variance + BATCH_NORM_EPSILON)
        normal = (x - mean) / std
        with torch.no_grad():
            warm = (steps >= self.warmup).float()
            scale = 1.0 + warm * ((std / running_std).clamp(1.0 / MOST_SCALE, MOST_SCALE) - 1.0)
            shift = warm * ((mean - running) / running_std).clamp(-MOST_SHIFT, MOST_SHIFT)
            running.lerp_(mean, self.momentum)
            running_var.lerp_(variance, self.momentum)
            steps += 1.0
        return (normal * scale + shift) * self.weight + self.bias


class _Rescale(nn.Module):
    """An affine map without weights, from [−1, 1] to bounds."""

    half_range: Tensor
    centre: Tensor

    def __init__(self, low: tuple[float, ...], high: tuple[float, ...]) -> None:
        super().__init__()
        low_, high_ = torch.tensor(low), torch.tensor(high)
        self.register_buffer("half_range", (high_ - low_) / 2, persistent=False)
        self.register_buffer("centre", (high_ + low_) / 2, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns rows `[B, n]` within the bounds."""
        return x * self.half_range + self.centre


#: What a layer may be for the NumPy actor to stand in for it.
_KINDS: dict[str, Any] = {
    "dense": nn.Linear | FixedDense,
    "noisy_dense": NoisyLayer,
    "layer_norm": nn.LayerNorm,
    "batch_norm": BatchRenorm,
    "gru": cells.GRU,
    "lstm": cells.LSTM,
    "append_bias": AppendBiasLayer,
    "rescale": _Rescale,
    "convolutions": ConvStack,
}


def _module(layer: Layer, in_size: int, rng: np.random.Generator | None) -> nn.Module:
    """Returns the module of a layer."""
    units = int(layer.units or 0)
    if isinstance(layer, Dense):
        made = undrawn_linear(in_size, units) if layer.trainable else FixedDense(in_size, units)
        with torch.no_grad():
            _fill(made.weight, made.bias, layer.initial, rng)
        return made
    if isinstance(layer, NoisyDense):
        return NoisyLayer(in_size, units, layer.sigma0, activation=None)
    if isinstance(layer, LayerNorm):
        return nn.LayerNorm(units)
    if isinstance(layer, BatchNorm):
        return BatchRenorm(units, layer.momentum, layer.warmup)
    if isinstance(layer, Convolutions):
        return ConvStack(layer.shape, layer.filters, layer.activation, reduce=layer.reduce)
    if isinstance(layer, GRU | LSTM):
        return (cells.GRU if isinstance(layer, GRU) else cells.LSTM)(in_size, units)
    if isinstance(layer, AppendBias):
        return AppendBiasLayer(units, layer.start)
    assert isinstance(layer, Rescale)  # none else is left
    return _Rescale(layer.low, layer.high)


def _fill(weight: Tensor, bias: Tensor, initial: Initial, rng: np.random.Generator | None) -> None:
    """Draws weights `[out, in]` and biases `[out]` of a dense layer; from PyTorch's own stream without `rng`."""
    if rng is None and initial.kind in _DRAWN:
        bias.zero_()
        _DRAWN[initial.kind](weight, bias, initial.scale)
    else:
        arrays = initial.draw(rng or np.random.default_rng(int(torch.randint(2**62, ()))), *weight.shape)
        weight.copy_(torch.from_numpy(arrays[0]))
        bias.copy_(torch.from_numpy(arrays[1]))


def _draw_fan_in(weight: Tensor, bias: Tensor, scale: float) -> None:
    del scale
    nn.init.kaiming_uniform_(weight, a=5**0.5)  # ±1/√in
    bound = 1.0 / weight.shape[1] ** 0.5
    bias.uniform_(-bound, bound)


#: Kinds of initial weights that PyTorch's own stream gives.
_DRAWN: dict[str, Callable[[Tensor, Tensor, float], Any]] = {
    "normc": lambda weight, _, scale: normc_initializer(scale)(weight),
    "xavier": lambda weight, _, __: nn.init.xavier_uniform_(weight),
    "fan_in": _draw_fan_in,
    "ones": lambda weight, _, __: weight.fill_(1.0),
}
