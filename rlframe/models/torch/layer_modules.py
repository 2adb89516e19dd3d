"""Layers of `rlframe.models.spec` as PyTorch's modules, and their initial weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlframe.models.actor_layers import BATCH_NORM_EPSILON
from rlframe.models.spec import (
    GRU,
    LSTM,
    AppendBias,
    BatchNorm,
    Convolutions,
    Dense,
    Initial,
    Layer,
    LayerNorm,
    NoisyDense,
    Rescale,
)
from rlframe.models.torch import cells
from rlframe.models.torch.conv_stack import ConvStack
from rlframe.models.torch.misc import AppendBiasLayer, normc_initializer, undrawn_linear
from rlframe.models.torch.noisy import NoisyLayer

#: Limits of batch renormalisation: how far its scale and its shift may go.
MOST_SCALE, MOST_SHIFT = 3.0, 5.0


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
KINDS: dict[str, Any] = {
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


def make_module(layer: Layer, in_size: int, rng: np.random.Generator | None) -> nn.Module:
    """Returns the module of a layer, with its initial weights.

    Args:
        layer: One that has weights or state of its own: not a composite.
        in_size: Width of what it gets.
        rng: Where initial weights are drawn from; None is PyTorch's own stream.
    """
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
