"""Small pieces that models are built from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
from torch import nn

from rlframe.fast.dense_layer_torch import linear
from rlframe.models.actor_layers import LEAKY_SLOPE, normalize_activation
from rlframe.models.conv_sizes import Size2D, pair, same_padding, valid_size

Initializer: TypeAlias = Callable[[torch.Tensor], Any]

__all__ = [
    "ACTIVATION_FUNCTIONS",
    "AppendBiasLayer",
    "Initializer",
    "Size2D",
    "SlimConv2d",
    "SlimFC",
    "activation_function",
    "activation_module",
    "normc_initializer",
    "same_padding",
    "torch_dtype",
    "valid_size",
]

#: Activation functions by the names of `rlframe.models.actor_layers.ACTIVATIONS`.
ACTIVATION_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor] | None] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": F.elu,
    "swish": F.silu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "selu": F.selu,
    "gelu": F.gelu,
    "leaky_relu": functools.partial(F.leaky_relu, negative_slope=LEAKY_SLOPE),
    "softplus": F.softplus,
    "softsign": F.softsign,
    "relu6": F.relu6,
    "linear": None,
}
_ACTIVATION_MODULES: dict[str, Callable[[], nn.Module] | None] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "swish": nn.SiLU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "leaky_relu": functools.partial(nn.LeakyReLU, LEAKY_SLOPE),
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "relu6": nn.ReLU6,
    "linear": None,
}


def activation_function(name: str | None) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Returns the activation called `name`; None for "linear" and None.

    Raises:
        ValueError: If there is no such activation.
    """
    return ACTIVATION_FUNCTIONS[normalize_activation(name)]


def activation_module(activation: Any) -> nn.Module | None:
    """Returns an activation as a module.

    Args:
        activation: A name, a module class (or other maker of a module), or None for no activation.

    Raises:
        ValueError: If there is no activation of that name.
    """
    if activation is None or isinstance(activation, str):
        module_class = _ACTIVATION_MODULES[normalize_activation(activation)]
        return None if module_class is None else module_class()
    module: nn.Module = activation()
    return module


def normc_initializer(std: float = 1.0) -> Initializer:
    """Returns an initialiser that draws normal weights and scales every output's row to the norm `std`."""

    def initialize(tensor: torch.Tensor) -> None:
        with torch.no_grad():
            tensor.normal_(0.0, 1.0)
            tensor.mul_(std / tensor.square().sum(dim=1, keepdim=True).sqrt())

    return initialize


class _Undrawn(nn.Linear):
    def reset_parameters(self) -> None:
        """Draws nothing."""


def undrawn_linear(in_size: int, out_size: int) -> nn.Linear:
    """Returns a linear layer with undefined weights: nn.Linear would draw numbers that are thrown away.

    `torch.nn.utils.skip_init` does that, too, by way of the meta device, whose first use imports 480 modules.
    """
    layer: nn.Linear = _Undrawn(in_size, out_size)
    layer.__class__ = nn.Linear
    return layer


class SlimFC(nn.Module):
    """A linear layer, its initialiser and its activation.

    Args:
        in_size: Width of the inputs.
        out_size: Width of the outputs.
        initializer: Function that fills the weights; None is Xavier-uniform.
        activation_fn: Name, module class or None.
        use_bias: Whether there is a bias.
        bias_init: Initial value of the bias.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        initializer: Initializer | None = None,
        activation_fn: Any = None,
        use_bias: bool = True,
        bias_init: float = 0.0,
    ) -> None:
        super().__init__()
        linear = nn.Linear(in_size, out_size, bias=use_bias)
        (initializer or nn.init.xavier_uniform_)(linear.weight)
        if use_bias:
            nn.init.constant_(linear.bias, bias_init)
        activation = activation_module(activation_fn)
        self._model = nn.Sequential(linear) if activation is None else nn.Sequential(linear, activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the activated outputs. Float `[..., in]` to `[..., out]`."""
        result: torch.Tensor = self._model(x)
        return result


class ImageConv2d(nn.Conv2d):
    """A convolution of maps of any dtype: bytes become floats behind the padding, which moves a quarter of the memory.

    Attributes:
        covers_input: Whether the filter is as large as the maps. It is then computed as the dense product that it is:
            a convolution brings its weights, millions perhaps, into an order of its own first, at each call.
    """

    covers_input = False

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Returns the convolved maps. `[B, in, H, W]` to float `[B, out, H', W']`."""
        maps = maps.to(self.weight.dtype)
        if not self.covers_input:
            return super().forward(maps)
        return linear(maps.flatten(1), self.weight.flatten(1), self.bias)[:, :, None, None]  # type: ignore[arg-type]


class SlimConv2d(nn.Module):
    """Padding, convolution, initialiser and activation.

    Args:
        in_channels: Channels of the inputs.
        out_channels: Channels of the outputs.
        kernel: Height and width of the filter, or one number for both.
        stride: Vertical and horizontal stride, or one number for both.
        padding: (left, right, top, bottom) as `same_padding` gives it, one number for all, or None for none.
        initializer: Function that fills the weights; "default" is Xavier-uniform, None keeps PyTorch's.
        activation_fn: Name, module class or None; "default" is ReLU.
        bias_init: Initial value of the bias.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the signature users' models call
        self,
        in_channels: int,
        out_channels: int,
        kernel: Size2D,
        stride: Size2D,
        padding: int | Sequence[int] | None,
        initializer: Any = "default",
        activation_fn: Any = "default",
        bias_init: float = 0.0,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if padding:
            layers.append(nn.ZeroPad2d(padding if isinstance(padding, int) else tuple(padding)))  # type: ignore[arg-type]
        conv = ImageConv2d(in_channels, out_channels, pair(kernel), pair(stride))
        if initializer is not None:
            (nn.init.xavier_uniform_ if initializer == "default" else initializer)(conv.weight)
        nn.init.constant_(conv.bias, bias_init)  # type: ignore[arg-type]
        layers.append(conv)
        activation = activation_module("relu" if activation_fn == "default" else activation_fn)
        if activation is not None:
            layers.append(activation)
        self._model = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the activated maps. Float `[B, in, H, W]` to `[B, out, H', W']`."""
        result: torch.Tensor = self._model(x)
        return result


class AppendBiasLayer(nn.Module):
    """Appends a learned vector that does not depend on the inputs.

    Args:
        num_bias_vars: Length of the vector.
        start: What its numbers begin with.
    """

    def __init__(self, num_bias_vars: int, start: float = 0.0) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.full((num_bias_vars,), float(start)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns `x [B, k]` with the vector behind every row. Float `[B, k + n]`."""
        return torch.cat([x, self.log_std.expand(x.shape[0], -1)], dim=1)


def torch_dtype(dtype: Any) -> torch.dtype:
    """Returns the torch dtype for arrays of the NumPy `dtype`; unsigned types beyond 8 bits become int64."""
    name = np.dtype(dtype).name
    if name in ("uint16", "uint32", "uint64"):
        return torch.int64
    result: torch.dtype = getattr(torch, name)
    return result
