"""Small functions on arrays that programs import: activations, layers, conversion from framework tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

FLOAT_MIN = -3.4e38
"""Stands for minus infinity in masks of logits and values; finite, so that 0 · FLOAT_MIN is 0."""
FLOAT_MAX = 3.4e38
SMALL_NUMBER = 1e-6
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT = -5
MAX_LOG_NN_OUTPUT = 2


def convert_to_numpy(x: Any, reduce_type: bool = False, reduce_floats: bool | None = None) -> Any:
    """Returns `x` with every tensor in it as an array.

    Args:
        x: An array, a torch or TensorFlow tensor, a number, or a dict, tuple or list of such, nested to any depth.
        reduce_type: Whether float64 becomes float32 and int64 becomes int32.
        reduce_floats: Old name of `reduce_type`.

    Returns:
        The same structure of arrays; arrays and plain objects are not copied. Torch tensors on the CPU share memory;
        those without dimension become numbers.
    """
    reduce_type = reduce_type if reduce_floats is None else reduce_floats
    if isinstance(x, np.ndarray):
        return _reduced(x) if reduce_type else x
    if isinstance(x, Mapping):
        return {key: convert_to_numpy(value, reduce_type) for key, value in x.items()}
    if isinstance(x, tuple):
        parts = [convert_to_numpy(value, reduce_type) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if isinstance(x, list):
        return [convert_to_numpy(value, reduce_type) for value in x]
    array = _tensor_to_array(x)
    return _reduced(array) if reduce_type and isinstance(array, np.ndarray) else array


def _tensor_to_array(x: Any) -> Any:
    if hasattr(x, "detach"):  # torch
        return x.item() if x.ndim == 0 else x.detach().cpu().numpy()
    return x.numpy() if hasattr(x, "numpy") else x  # TensorFlow, or no tensor at all


def _reduced(array: Array) -> Array:
    smaller = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}.get(array.dtype)
    return array if smaller is None else array.astype(smaller)


def sigmoid(x: Array, derivative: bool = False) -> Array:
    """Returns 1 / (1 + e⁻ˣ); with `derivative`, s · (1 − s) for an `x` that is already a sigmoid's value s."""
    if derivative:
        return np.asarray(x * (1 - x))
    # The form that does not overflow differs for the two signs.
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(np.asarray(x) >= 0, 1.0, decay) / (1.0 + decay))


def softmax(x: Array, axis: int = -1, epsilon: float | None = None) -> Array:
    """Returns eˣ / Σ eˣ along `axis`; with `epsilon`, no entry is smaller than that (the sum may then exceed 1)."""
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True))
    shares: Array = powers / powers.sum(axis=axis, keepdims=True)
    return shares if epsilon is None else np.maximum(shares, epsilon)


def relu(x: Array, alpha: float = 0.0) -> Array:
    """Returns x where it is positive, alpha · x elsewhere."""
    return np.maximum(x, x * alpha)


def one_hot(x: Any, depth: int = 0, on_value: float = 1.0, off_value: float = 0.0) -> Array:
    """Returns one-hot codes.

    Args:
        x: Integers `[...]` in [0, depth).
        depth: Number of classes; 0 means the largest entry plus one.
        on_value: What stands at the class.
        off_value: What stands elsewhere.

    Returns:
        Float32 `[..., depth]`.

    Raises:
        ValueError: If an entry is outside [0, depth).
    """
    index = np.asarray(convert_to_numpy(x)).astype(np.int64)
    depth = depth or (int(index.max()) + 1 if index.size else 0)
    if index.size and (index.min() < 0 or index.max() >= depth):
        raise ValueError(f"one_hot: entries reach from {index.min()} to {index.max()}; wanted [0, {depth}).")
    codes = np.full((*index.shape, depth), off_value, np.float32)
    np.put_along_axis(codes, index[..., None], on_value, axis=-1)
    return codes


def fc(x: Any, weights: Any, biases: Any = None, framework: str | None = None) -> Array:
    """Returns x · W + b.

    Args:
        x: Inputs `[B, D]`.
        weights: `[D, K]`, or `[K, D]` where the framework is torch, which keeps them that way.
        biases: `[K]`, or None for none.
        framework: "torch" for weights in torch's layout.

    Returns:
        `[B, K]`.
    """
    x, weights, biases = convert_to_numpy((x, weights, biases))
    product = np.matmul(x, weights.T if framework == "torch" else weights)
    return np.asarray(product if biases is None else product + biases)


def lstm(
    x: Any,
    weights: Any,
    biases: Any = None,
    initial_internal_states: Any = None,
    time_major: bool = False,
    forget_bias: float = 1.0,
) -> tuple[Array, tuple[Array, Array]]:
    """Runs a basic LSTM layer over sequences.

    Args:
        x: Inputs `[B, T, D]`, or `[T, B, D]` where time comes first.
        weights: `[D + S, 4·S]`, for inputs and hidden state side by side; gates in the order input, candidate,
            forget, output.
        biases: `[4·S]`, or None for none.
        initial_internal_states: Cell state and hidden state, both `[B, S]`; None means zeros.
        time_major: Whether time comes first, in `x` and in the result.
        forget_bias: Added to the forget gate before its sigmoid.

    Returns:
        The outputs (`[B, T, S]`, or `[T, B, S]`) and the last (cell state, hidden state), both `[B, S]`.
    """
    x, weights = convert_to_numpy((x, weights))
    steps = x if time_major else np.swapaxes(x, 0, 1)
    units = weights.shape[1] // 4
    bias = np.zeros(4 * units, x.dtype) if biases is None else convert_to_numpy(biases)
    if initial_internal_states is None:
        cell = hidden = np.zeros((steps.shape[1], units), x.dtype)
    else:
        cell, hidden = convert_to_numpy(tuple(initial_internal_states))
    outputs = np.empty((steps.shape[0], steps.shape[1], units), x.dtype)
    for t, inputs in enumerate(steps):
        gates = np.matmul(np.concatenate([inputs, hidden], axis=1), weights) + bias
        into, candidate, forget, out = np.split(gates, 4, axis=1)
        cell = cell * sigmoid(forget + forget_bias) + sigmoid(into) * np.tanh(candidate)
        hidden = sigmoid(out) * np.tanh(cell)
        outputs[t] = hidden
    return (outputs if time_major else np.swapaxes(outputs, 0, 1)), (cell, hidden)


def huber_loss(x: Array, delta: float = 1.0) -> Array:
    """Returns x²/2 where |x| < delta, delta · (|x| − delta/2) elsewhere."""
    size = np.abs(x)
    return np.where(size < delta, 0.5 * np.square(x), delta * (size - 0.5 * delta))


def l2_loss(x: Array) -> Any:
    """Returns Σ x² / 2."""
    return np.sum(np.square(x)) / 2.0


def make_action_immutable(obj: Any) -> Any:
    """Returns `obj` with every array in it set to read-only, so that an environment cannot change what is stored."""
    if isinstance(obj, np.ndarray):
        obj.setflags(write=False)
    elif isinstance(obj, Mapping):
        for value in obj.values():
            make_action_immutable(value)
    elif isinstance(obj, (tuple, list)):
        for value in obj:
            make_action_immutable(value)
    return obj


def aligned_array(size: int, dtype: Any, align: int = 64) -> Array:
    """Returns an uninitialised array `[size]` whose memory begins at a multiple of `align` bytes."""
    wanted = np.dtype(dtype)
    length = size * wanted.itemsize
    block = np.empty(length + align, np.uint8)
    offset = -block.ctypes.data % align
    return block[offset : offset + length].view(wanted)


def concat_aligned(items: list[Any], time_major: bool | None = None) -> Array:
    """Returns arrays joined in memory that begins at a multiple of 64 bytes.

    Args:
        items: Arrays of one dtype and equal shapes but for the joined dimension.
        time_major: Whether to join along dimension 1, because time comes first; otherwise along dimension 0.
    """
    if not items:
        return np.empty(0)
    axis = 1 if time_major else 0
    first = np.asarray(items[0])
    if first.dtype == object or any(np.asarray(item).dtype != first.dtype for item in items):
        return np.concatenate(items, axis=axis)
    shape = list(first.shape)
    shape[axis] = sum(np.shape(item)[axis] for item in items)
    joined = aligned_array(int(np.prod(shape)), first.dtype).reshape(shape)
    np.concatenate(items, axis=axis, out=joined)
    return joined
