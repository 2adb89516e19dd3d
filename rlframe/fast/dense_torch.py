"""Dense layers in PyTorch by NumPy's products or oneDNN's kernels, on processors where PyTorch's own are slow.

PyTorch multiplies matrices by MKL, which is slow on AMD's processors: on one it reached half of what oneDNN does (256 ×
256 × 256 in 330 µs instead of 155), on another it was as fast with square matrices, but took 140 µs for the gradient of
400 × 4 weights where NumPy's BLAS takes 32. NumPy's was the fastest there in all shapes of a learner step, so it is
taken where one thread computes, and oneDNN, which is part of PyTorch's own builds, where several do. PyTorch's tanh
takes 2.2 ns per number, NumPy's 0.17.

Which way is taken depends on the processor's make, the threads and the sizes alone, so the same seed gives the same
run. `RLFRAME_FAST_DENSE=0` in the environment switches it off, `1` on, whatever the processor.
`benchmarks/fast_dense.py` shows the difference.
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

#: Width below which MKL is slow on AMD's processors, and multiplications from which on NumPy is worth its call there.
NARROW, WORTH_NARROW = 16, 1 << 18
#: Multiplications from which on NumPy or oneDNN, whose call takes 12 µs more, is worth its call.
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


def _switched_on() -> bool:
    """Returns whether other ways than PyTorch's own are taken."""
    said = os.environ.get("RLFRAME_FAST_DENSE", "")
    return said != "0" and (said == "1" or _is_amd())


def _operation() -> Any:
    """Returns oneDNN's dense layer; None where it is not to be used, or not there."""
    if not _switched_on() or not torch.backends.mkldnn.is_available():
        return None
    found = getattr(getattr(torch.ops, "mkldnn", None), "_linear_pointwise", None)
    return None if found is None else found.default


_onednn = _operation()
#: Whether NumPy multiplies where one thread computes.
_arrays = _switched_on()


def _by_numpy(x: Tensor, work: int) -> bool:
    """Returns whether NumPy multiplies `x`; other threads than one are for PyTorch to share the work among."""
    return _arrays and work >= WORTH and x.dtype == torch.float32 and x.is_cpu and torch.get_num_threads() == 1


def _worth(x: Tensor, weight: Tensor, activation: str) -> bool:
    """Returns whether oneDNN is the faster way for rows `x` and weights `[out, in]`."""
    if torch._C._get_tracing_state() is not None:  # sizes are tensors then
        return False
    rows, out_size = x.shape[0], weight.shape[0]
    work = rows * weight.numel() + (TANH_COUNTS * rows * out_size if activation == "tanh" else 0)
    return work >= WORTH and rows >= ROWS and x.dim() == 2 and x.is_cpu and x.dtype == torch.float32


def product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "linear") -> Tensor:
    """Returns activation(x Wᵀ + b) by NumPy or oneDNN, without autograd. `[B, in]` and `[out, in]` to `[B, out]`."""
    if _by_numpy(x, x.shape[0] * weight.numel()):
        return _product_of_arrays(x.detach(), weight.detach(), None if bias is None else bias.detach(), activation)
    made: Tensor = _onednn(x, weight, bias, _NAMES.get(activation, activation), [], "")
    return made


def _product_of_arrays(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    y = torch.from_numpy(np.dot(x.numpy(), weight.numpy().T))
    return _activate_(y if bias is None else y.add_(bias), activation)


def _activate_(y: Tensor, activation: str) -> Tensor:
    """Replaces numbers by what an activation makes of them, and returns them."""
    if activation == "relu":
        y.relu_()
    elif activation == "tanh":
        tanh_(y)
    elif activation == "sigmoid":
        y.sigmoid_()
    return y


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
    if _by_numpy(x, x.shape[0] * weight.numel()):
        return _product_of_arrays(x, weight, bias, activation)
    if _onednn is not None and _worth(x, weight, activation):
        return product(x, weight, bias, activation)
    return _activate_(torch.addmm(bias, x, weight.t()), activation)


def tanh_(y: Tensor) -> None:
    """Replaces numbers by their tanh, in place and without autograd."""
    if _onednn is not None and y.numel() >= MANY and y.is_cpu and y.dtype == torch.float32:
        array: Any = y.numpy()
        np.tanh(array, array)
    else:
        y.tanh_()


def matmul(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns a · b without autograd, by the faster way; into `out` where it is given. `[n, k]`, `[k, m]`."""
    work = a.shape[0] * b.numel()
    narrow = work >= WORTH_NARROW and min(*a.shape, *b.shape) < NARROW
    if _by_numpy(a, WORTH if narrow else work):
        if out is None:
            return torch.from_numpy(np.dot(a.numpy(), b.numpy()))
        np.dot(a.numpy(), b.numpy(), out.numpy())
        return out
    # oneDNN's result is a new tensor, and a copy of it takes what twice as many multiplications win.
    if _onednn is not None and work >= WORTH * (1 if out is None else 2):
        turned = b.t()
        if _worth(a, turned, "linear"):
            made = product(a, turned, None)
            return made if out is None else out.copy_(made)
    return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
