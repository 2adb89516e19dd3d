"""Stacks of dense layers forwards and backwards in NumPy, on arrays that share their memory with a network's weights.

On small batches, such as DQN's of 32 rows, PyTorch's bookkeeping around an operation takes longer than the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float32]

# 0-d arrays: a Python scalar is converted at every call, which costs as much as the operation.
_ZERO, _ONE, _HALF = (np.full((), number, np.float32) for number in (0.0, 1.0, 0.5))


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


class ArrayChain:
    """A stack of dense layers, as `rlframe.models.torch.dense_chain.DenseChain` has it for tensors.

    Args:
        layers: Its layers; none for a chain that changes nothing.
    """

    def __init__(self, layers: Sequence[ArrayLayer]) -> None:
        self._layers = [(layer, layer.weight.T, _ACTIVATIONS[layer.activation]) for layer in layers]

    def __bool__(self) -> bool:
        """Whether there are layers."""
        return bool(self._layers)

    def forward(self, x: FloatArray) -> list[FloatArray]:
        """Returns `x` `[B, in]` and every layer's outputs; the last are the chain's. `backward` takes the list."""
        kept = [x]
        for layer, transposed, activation in self._layers:
            x = np.dot(x, transposed)
            np.add(x, layer.bias, x)
            if activation is not None:
                activation[0](x)
            kept.append(x)
        return kept

    def backward(self, kept: list[FloatArray], grad: FloatArray, *, input_grad: bool) -> FloatArray | None:
        """Writes all parameters' gradients over what is there.

        Args:
            kept: What `forward` returned.
            grad: Gradient of the loss by the chain's outputs `[B, out]`.
            input_grad: Whether the gradient by the chain's inputs is wanted.

        Returns:
            The gradient by the inputs `[B, in]`, or None.
        """
        for index in range(len(self._layers) - 1, -1, -1):
            layer, _, activation = self._layers[index]
            if activation is not None:
                grad = activation[1](grad, kept[index + 1])
            np.dot(grad.T, kept[index], layer.weight_grad)
            np.add.reduce(grad, 0, out=layer.bias_grad)
            if index or input_grad:
                grad = np.dot(grad, layer.weight)
        return grad if input_grad else None


def _relu(y: FloatArray) -> None:
    np.maximum(y, _ZERO, out=y)


def _relu_slope(grad: FloatArray, y: FloatArray) -> FloatArray:
    return np.multiply(grad, np.greater(y, _ZERO))


def _tanh(y: FloatArray) -> None:
    np.tanh(y, y)


def _tanh_slope(grad: FloatArray, y: FloatArray) -> FloatArray:
    return grad * (_ONE - y * y)


def _sigmoid(y: FloatArray) -> None:
    # By way of tanh, which cannot overflow as exp(-x) does.
    np.multiply(y, _HALF, y)
    np.tanh(y, y)
    np.multiply(y, _HALF, y)
    np.add(y, _HALF, y)


def _sigmoid_slope(grad: FloatArray, y: FloatArray) -> FloatArray:
    return grad * (y * (_ONE - y))


_Function: TypeAlias = Callable[..., Any]
#: By activation: what replaces numbers by its outputs, and the gradient of its input from that of its output and this.
_ACTIVATIONS: dict[str, tuple[_Function, _Function] | None] = {
    "linear": None,
    "relu": (_relu, _relu_slope),
    "tanh": (_tanh, _tanh_slope),
    "sigmoid": (_sigmoid, _sigmoid_slope),
}
