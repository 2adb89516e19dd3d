"""Dense layers without autograd, forwards and backwards, by the products that are fastest on this processor.

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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FloatArray: TypeAlias = NDArray[np.float32]

VARIANCE = partial(torch.var, unbiased=False)

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

#: By activation, which oneDNN computes in the same pass: the gradient of its input from that of its output y, and y.
SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "relu": lambda grad, y: torch.ops.aten.threshold_backward(grad, y, 0),
    "tanh": torch.ops.aten.tanh_backward,
    "sigmoid": torch.ops.aten.sigmoid_backward,
    "linear": None,
}
#: The same, written over the gradient of the output: what no longer fits the cache is touched once less.
_SLOPES_IN_PLACE: dict[str, Any] = {
    "relu": lambda grad, y: torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=grad),
    "tanh": lambda grad, y: torch.ops.aten.tanh_backward.grad_input(grad, y, grad_input=grad),
    "sigmoid": lambda grad, y: torch.ops.aten.sigmoid_backward.grad_input(grad, y, grad_input=grad),
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


onednn = _operation()
#: Whether NumPy multiplies where one thread computes.
_arrays = _switched_on()


def _by_numpy(x: Tensor, work: int) -> bool:
    """Returns whether NumPy multiplies `x`; other threads than one are for PyTorch to share the work among."""
    return _arrays and work >= WORTH and x.dtype == torch.float32 and x.is_cpu and torch.get_num_threads() == 1


def worth(x: Tensor, weight: Tensor, activation: str) -> bool:
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
    made: Tensor = onednn(x, weight, bias, _NAMES.get(activation, activation), [], "")
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
    if onednn is not None and worth(x, weight, activation):
        return product(x, weight, bias, activation)
    return _activate_(torch.addmm(bias, x, weight.t()), activation)


def tanh_(y: Tensor) -> None:
    """Replaces numbers by their tanh, in place and without autograd."""
    if onednn is not None and y.numel() >= MANY and y.is_cpu and y.dtype == torch.float32:
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
    if onednn is not None and work >= WORTH * (1 if out is None else 2):
        turned = b.t()
        if worth(a, turned, "linear"):
            made = product(a, turned, None)
            return made if out is None else out.copy_(made)
    return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)


def as_rows(obs: Tensor) -> Tensor:
    """Returns observations of any shape and dtype as float32 rows `[B, n]`: what a chain reads."""
    if obs.dtype == torch.float32 and obs.dim() == 2:
        return obs
    return obs.float().flatten(1) if obs.dim() > 1 else obs.float()[:, None]


class ArrayLayer(NamedTuple):
    """A dense layer: `activation(x @ weight.T + bias)`.

    Attributes:
        weight: Float32 `[out, in]`.
        bias: Float32 `[out]`.
        weight_grad, bias_grad: Where gradients go; None in a frozen network.
        activation: "linear", "relu", "tanh" or "sigmoid".
    """

    weight: FloatArray
    bias: FloatArray
    weight_grad: FloatArray | None
    bias_grad: FloatArray | None
    activation: str


class DenseChain:
    """A stack of dense layers that reads live parameters and writes their gradients itself.

        y_i = f_i(y_{i−1} W_iᵀ + b_i);   ∂W_i = δ_iᵀ y_{i−1},   ∂b_i = Σ_rows δ_i,   δ_{i−1} = (δ_i W_i) ∘ f'_{i−1}

    Gradients are written over `parameter.grad`, which must exist (see `FlatParameters`); they are not added to it. A
    frozen network needs none, and has no `backward`.

    Args:
        model: The `nn.Module` that has the layers as submodules.
        layers: Specs of dense layers, see `rlframe.models.actor`; empty for a chain that changes nothing.
        frozen: Whether there is no `backward` of parameters, also where these have gradients.

    Raises:
        ValueError: If a layer is not dense, has an activation whose gradient needs its input, or no gradient buffer.
    """

    def __init__(self, model: Any, layers: Sequence[Mapping[str, Any]], *, frozen: bool = False) -> None:
        self._layers: list[tuple[Tensor, Tensor, Tensor | None, Tensor | None, str, Any]] = []
        for layer in layers:
            activation = str(layer.get("activation") or "linear").lower()
            if layer["kind"] != "dense" or activation not in SLOPES:
                raise ValueError(f"a chain without autograd cannot have the layer {dict(layer)}")
            module = model.get_submodule(layer["name"])
            weight, bias = module.weight, module.bias
            if not frozen and weight.requires_grad and (weight.grad is None or bias.grad is None):
                raise ValueError(f"the parameters of {layer['name']} have no gradient buffer")
            slope = SLOPES[activation]
            self._layers.append((weight.detach(), bias.detach(), weight.grad, bias.grad, activation, slope))

    def __bool__(self) -> bool:
        """Whether there are layers."""
        return bool(self._layers)

    def arrays(self) -> list[ArrayLayer]:
        """Returns the layers in arrays that share their memory with weights and gradients, which are on the CPU."""
        return [
            ArrayLayer(
                weight.numpy(),
                bias.numpy(),
                None if weight_grad is None else weight_grad.numpy(),
                None if bias_grad is None else bias_grad.numpy(),
                activation,
            )
            for weight, bias, weight_grad, bias_grad, activation, _ in self._layers
        ]

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the outputs [B, out] of `x` [B, in]."""
        for weight, bias, _, _, activation, _ in self._layers:
            x = dense_in_place(x, weight, bias, activation)
        return x

    def forward(self, x: Tensor) -> list[Tensor]:
        """Returns `x` and every layer's outputs; the last are the chain's. `backward` takes the list."""
        kept = [x]
        for weight, bias, _, _, activation, _ in self._layers:
            x = dense_in_place(x, weight, bias, activation)
            kept.append(x)
        return kept

    def backward(self, kept: list[Tensor], grad: Tensor, *, input_grad: bool, add: bool = False) -> Tensor | None:
        """Writes all parameters' gradients.

        Args:
            kept: What `forward` returned.
            grad: Gradient of the loss by the chain's outputs [B, out].
            input_grad: Whether the gradient by the chain's inputs is wanted.
            add: Whether gradients are added to those that are there: of rows that come piece by piece.

        Returns:
            The gradient by the inputs [B, in], or None.
        """
        for index in range(len(self._layers) - 1, -1, -1):
            weight, _, weight_grad, bias_grad, _, _ = self._layers[index]
            grad = self._before_activation(index, kept, grad)
            if add:
                assert weight_grad is not None
                assert bias_grad is not None
                weight_grad.add_(matmul(grad.t(), kept[index]))
                bias_grad.add_(grad.sum(0))
            else:
                matmul(grad.t(), kept[index], out=weight_grad)
                torch.sum(grad, 0, out=bias_grad)
            if index or input_grad:
                grad = matmul(grad, weight)
        return grad if input_grad else None

    def input_gradient(self, kept: list[Tensor], grad: Tensor) -> Tensor:
        """Returns the gradient by the chain's inputs [B, in], and writes none of the parameters'.

        Args:
            kept: What `forward` returned.
            grad: Gradient of the loss by the chain's outputs [B, out].
        """
        for index in range(len(self._layers) - 1, -1, -1):
            weight = self._layers[index][0]
            grad = matmul(self._before_activation(index, kept, grad), weight)
        return grad

    def _before_activation(self, index: int, kept: list[Tensor], grad: Tensor) -> Tensor:
        """Returns the gradient by what a layer's activation took, from that by its outputs; the caller's stays."""
        activation, slope = self._layers[index][4:]
        if slope is None:
            return grad
        last = index == len(self._layers) - 1
        made: Tensor = (slope if last else _SLOPES_IN_PLACE[activation])(grad, kept[index + 1])
        return made

    def add_decay(self, coefficient: float) -> None:
        """Adds the gradient of ½ coefficient · Σ w² over all weights but biases."""
        for weight, _, weight_grad, _, _, _ in self._layers:
            assert weight_grad is not None
            weight_grad.add_(weight, alpha=coefficient)


class DenseActorCritic:
    """An actor and its values made of dense layers, behind layers that both share or without such.

    Args:
        model: The `nn.Module` that has the layers as submodules.
        spec: What `ModelV2.actor_spec` gives.
        free_log_std: Whether an `append_bias` at the actor's end holds log deviations that no observation moves.
        left_out: Name of a layer of the values that is not a part of these.

    Raises:
        ValueError: If the layers are not dense ones, or there are no values.
    """

    def __init__(self, model: Any, spec: Any, *, free_log_std: bool = False, left_out: str = "") -> None:
        if spec is None or "lstm" in spec or spec["values"] is None:
            raise ValueError("not a network of dense layers with values")
        shared = spec["shared"]
        self._trunk = DenseChain(model, spec["outputs"][:shared])
        head = list(spec["outputs"][shared:])
        #: Log deviations that are free of the observation, `[1, A]`, and their gradient `[A]`.
        self.free: tuple[Tensor, Tensor] | None = None
        if free_log_std and head and head[-1]["kind"] == "append_bias":
            log_std = model.get_submodule(head.pop()["name"]).log_std
            if log_std.grad is None:
                raise ValueError("the log deviations have no gradient buffer")
            self.free = log_std.detach().unsqueeze(0), log_std.grad
        self._head = DenseChain(model, head)
        self._values = DenseChain(model, [layer for layer in spec["values"] if layer["name"] != left_out])

    def forward(self, obs: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Returns what shared layers, the actor's and the values' give, layer by layer; `backward` takes it."""
        trunk = self._trunk.forward(as_rows(obs))
        return trunk, self._head.forward(trunk[-1]), self._values.forward(trunk[-1])

    def backward(
        self, kept: tuple[list[Tensor], list[Tensor], list[Tensor]], by_outputs: Tensor, by_values: Tensor
    ) -> None:
        """Fills the gradients from those by distribution inputs [B, K] and by the values [B, 1]."""
        trunk, head, values = kept
        if self.free is not None:
            size = len(self.free[1])
            torch.sum(by_outputs[:, size:], 0, out=self.free[1])
            by_outputs = by_outputs[:, :size]
        shares = bool(self._trunk)
        by_features = self._head.backward(head, by_outputs, input_grad=shares)
        by_value_features = self._values.backward(values, by_values, input_grad=shares)
        if shares:
            assert by_features is not None
            assert by_value_features is not None
            self._trunk.backward(trunk, by_features + by_value_features, input_grad=False)


def explained_variance(targets: Tensor, values: Tensor, var: Callable[[Tensor], Tensor] = VARIANCE) -> Tensor:
    """Returns 1 − Var(R − V) / Var(R), a scalar in [−1, 1]; −1 for targets without variance.

    Args:
        targets: R, float `[B]`.
        values: V, float `[B]`.
        var: Takes the variance of floats `[B]` over the rows that count.
    """
    variance = var(targets)
    explained = 1.0 - var(targets - values) / variance.clamp(min=1e-12)
    return torch.where(variance > 0, explained, -1.0).clamp(min=-1.0)


class Choices:
    """Choices by logits z `[B, K]`, π = softmax(z), with one-hot actions e_a and entropy H.

        ∂ log π(a|s) / ∂z = e_a − π,    ∂H / ∂z = −π ∘ (log π + H),    ∂ KL(π_old‖π) / ∂z = π − π_old

    Args:
        logits: z.
        actions: a, integers `[B]`.
        old: Logits of π_old `[B, K]`; None where its divergence is not asked for.

    Attributes:
        probs, log_probs: π and its logarithm `[B, K]`.
        logp, entropy, kl: Float `[B]`.
    """

    def __init__(self, logits: Tensor, actions: Tensor, old: Tensor | None) -> None:
        self.log_probs = torch.log_softmax(logits, 1)
        self.probs = self.log_probs.exp()
        self._index = actions.long().reshape(-1, 1)
        self.logp = self.log_probs.gather(1, self._index).squeeze(1)
        self.entropy = -(self.probs * self.log_probs).sum(1)
        if old is not None:
            old_log_probs = torch.log_softmax(old, 1)
            self._old_probs = old_log_probs.exp()
            self.kl = (self._old_probs * (old_log_probs - self.log_probs)).sum(1)

    def gradient(self, by_logp: Tensor, by_entropy: float, by_kl: float) -> Tensor:
        """Returns the gradient by the logits `[B, K]`, of the gradients by what was made of them."""
        grad = self.probs * -by_logp.unsqueeze(1)
        grad.scatter_add_(1, self._index, by_logp.unsqueeze(1))
        if by_entropy:
            grad.addcmul_(self.probs, self.log_probs + self.entropy.unsqueeze(1), value=-by_entropy)
        if by_kl:
            grad.add_(self.probs - self._old_probs, alpha=by_kl)
        return grad
