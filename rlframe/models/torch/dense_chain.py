"""Stacks of dense layers forwards and backwards without autograd, for learner steps where its bookkeeping shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlframe.fast.dense_torch import dense_in_place, matmul
from rlframe.models.actor_layers import FloatArray, normalize_activation

#: By activation: the gradient of its input from that of its output y and y itself.
SLOPES: dict[str, Any] = {
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
            activation = normalize_activation(layer.get("activation"))
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
