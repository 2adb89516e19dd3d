"""A dense layer for autograd, by NumPy's products or oneDNN's kernels where these are the faster ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlframe.fast import dense_torch as products


class _Dense(torch.autograd.Function):
    """A dense layer with its activation, forwards and backwards by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
        y = products.product(x, weight, bias, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight, y = ctx.saved_tensors
        # Gradients are on where gradients of gradients are wanted.
        times = functional.linear if torch.is_grad_enabled() else products.product
        slope = products.SLOPES[ctx.activation]
        if slope is not None:
            grad = slope(grad, y)
        by_x, by_weight, by_bias, _ = ctx.needs_input_grad
        return (
            times(grad, weight.t(), None) if by_x else None,
            times(grad.t(), x.t(), None) if by_weight else None,
            grad.sum(0) if by_bias else None,
            None,
        )


def dense(
    x: Tensor,
    layer: nn.Module,
    activation: str,
    function: Callable[[Tensor], Tensor] | None,
    *,
    frozen: bool = False,
) -> Tensor:
    """Returns what a layer and the activation behind it make of rows.

    Args:
        x: Float `[B, in]`.
        layer: A module; what is no plain `nn.Linear`, or has hooks, is called as it is.
        activation: The activation's name.
        function: The activation; None for "linear".
        frozen: Whether gradients pass, but do not reach the layer's weights: autograd computes those of a layer by
            oneDNN even where nobody asks for them.
    """
    if products.onednn is not None and type(layer) is nn.Linear and activation in products.SLOPES:
        weight, bias = layer.weight, layer.bias
        hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
        if not hooks and products.worth(x, weight, activation):
            return _fast(x, weight.detach() if frozen else weight, bias, activation)
    x = layer(x)
    return x if function is None else function(x)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Returns x Wᵀ + b by the faster way. `[B, in]` and `[out, in]` to `[B, out]`."""
    fast = products.onednn is not None and products.worth(x, weight, "linear")
    return _fast(x, weight, bias, "linear") if fast else functional.linear(x, weight, bias)


def _fast(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    if torch.is_grad_enabled() and (weight.requires_grad or x.requires_grad):
        bias = bias if weight.requires_grad else bias.detach()
        made: Tensor = _Dense.apply(x, weight, bias, activation)  # type: ignore[no-untyped-call]  # torch's own
        return made
    return products.product(x, weight, bias, activation)
