"""Dense layers in PyTorch by oneDNN's kernels, and tanh by NumPy's, on processors where PyTorch's own are slow.

PyTorch multiplies matrices by MKL, which on AMD's processors reaches half of what oneDNN does: measured on one core,
256 × 256 × 256 in 155 µs instead of 330. Its tanh takes 2.2 ns per number there, NumPy's 0.17. oneDNN is part of
PyTorch's own builds; what is called is the operation that its compiler uses for dense layers.

Which way is taken depends on the processor's make and the sizes alone, so the same seed gives the same run.
`RLFRAME_FAST_DENSE=0` in the environment switches it off, `1` on, whatever the processor. `benchmarks/fast_dense.py`
shows the difference.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

#: Multiplications from which on oneDNN is worth its call, which takes 12 µs more.
WORTH = 1 << 21
#: Rows from which on it is: oneDNN orders the weights anew at each call, which costs as much as some rows. Measured
#: within learner steps, where optimiser and targets have driven the weights from the cache.
ROWS = 64
#: By how many multiplications one number's tanh counts.
TANH_COUNTS = 60
#: Numbers from which on NumPy's tanh is worth its call.
MANY = 512

#: Activations that oneDNN computes in the same pass, with the gradient of their input by output and its gradient.
_FUSED: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "linear": None,
    "relu": lambda grad, y: torch.ops.aten.threshold_backward(grad, y, 0),
    "tanh": torch.ops.aten.tanh_backward,
    "sigmoid": torch.ops.aten.sigmoid_backward,
}
_NAMES = {"linear": "none"}


def _is_amd() -> bool:
    """Returns whether the processor is AMD's."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")[:4096]
    except OSError:  # no Linux
        return "AuthenticAMD" in platform.processor()


def _operation() -> Any:
    """Returns oneDNN's dense layer; None where it is not to be used, or not there."""
    said = os.environ.get("RLFRAME_FAST_DENSE", "")
    if said == "0" or not torch.backends.mkldnn.is_available() or not (said == "1" or _is_amd()):
        return None
    found = getattr(getattr(torch.ops, "mkldnn", None), "_linear_pointwise", None)
    return None if found is None else found.default


_onednn = _operation()


def _worth(x: Tensor, weight: Tensor, activation: str) -> bool:
    """Returns whether oneDNN is the faster way for rows `x` and weights `[out, in]`."""
    if torch._C._get_tracing_state() is not None:  # sizes are tensors then
        return False
    rows, out_size = x.shape[0], weight.shape[0]
    work = rows * weight.numel() + (TANH_COUNTS * rows * out_size if activation == "tanh" else 0)
    return work >= WORTH and rows >= ROWS and x.dim() == 2 and x.is_cpu and x.dtype == torch.float32


def product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "linear") -> Tensor:
    """Returns activation(x Wᵀ + b) by oneDNN, without autograd. `[B, in]` and `[out, in]` to `[B, out]`."""
    made: Tensor = _onednn(x, weight, bias, _NAMES.get(activation, activation), [], "")
    return made


class _Dense(torch.autograd.Function):
    """A dense layer with its activation, forwards and backwards by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
        y = product(x, weight, bias, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight, y = ctx.saved_tensors
        # Gradients are on where gradients of gradients are wanted.
        times = functional.linear if torch.is_grad_enabled() else product
        slope = _FUSED[ctx.activation]
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
    if _onednn is not None and type(layer) is nn.Linear and activation in _FUSED:
        weight, bias = layer.weight, layer.bias
        hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
        if not hooks and _worth(x, weight, activation):
            return _fast(x, weight.detach() if frozen else weight, bias, activation)
    x = layer(x)
    return x if function is None else function(x)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Returns x Wᵀ + b by the faster way. `[B, in]` and `[out, in]` to `[B, out]`."""
    fast = _onednn is not None and _worth(x, weight, "linear")
    return _fast(x, weight, bias, "linear") if fast else functional.linear(x, weight, bias)


def _fast(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    if torch.is_grad_enabled() and (weight.requires_grad or x.requires_grad):
        bias = bias if weight.requires_grad else bias.detach()
        made: Tensor = _Dense.apply(x, weight, bias, activation)  # type: ignore[no-untyped-call]  # torch's own
        return made
    return product(x, weight, bias, activation)


def dense_in_place(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    """Returns activation(x Wᵀ + b) as a new tensor, without autograd, by the fastest way there is here.

    Args:
        x: Float `[B, in]`.
        weight: Float `[out, in]`.
        bias: Float `[out]`.
        activation: "linear", "relu", "tanh" or "sigmoid".
    """
    if _onednn is not None and _worth(x, weight, activation):
        return product(x, weight, bias, activation)
    y = torch.addmm(bias, x, weight.t())
    if activation == "relu":
        y.relu_()
    elif activation == "tanh":
        tanh_(y)
    elif activation == "sigmoid":
        y.sigmoid_()
    return y


def tanh_(y: Tensor) -> None:
    """Replaces numbers by their tanh, in place and without autograd."""
    if _onednn is not None and y.numel() >= MANY and y.is_cpu and y.dtype == torch.float32:
        array: Any = y.numpy()
        np.tanh(array, array)
    else:
        y.tanh_()


def matmul(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns a · b without autograd, by the faster way; into `out` where it is given. `[n, k]`, `[k, m]`."""
    # oneDNN's result is a new tensor, and a copy of it takes what twice as many multiplications win.
    if _onednn is not None and a.shape[0] * b.numel() >= WORTH * (1 if out is None else 2):
        turned = b.t()
        if _worth(a, turned, "linear"):
            made = product(a, turned, None)
            return made if out is None else out.copy_(made)
    return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
