"""What a loss computes with: functions of native tensors, the same in PyTorch and in TensorFlow.

A function looks at the type of its first tensor and has that framework compute, `torch_ops` or `tf_ops`; a framework
that no tensor comes from is never imported. What comes in and goes out are native tensors, so arithmetic, comparisons,
`~`, `&`, `|` and slices are written as in NumPy. No framework is "on": tensors of both may be worked on at a time, by
several threads, eagerly or while a graph is traced.

    def policy_gradient(logp, advantages):
        return -ops.mean(logp * ops.stop_gradient(advantages))

Functions of several tensors take those of one framework; a number may stand for any but the first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

#: A `torch.Tensor` or a `tf.Tensor`.
Tensor: TypeAlias = Any

#: Top-level packages whose types are tensors: the module here that computes with them.
_HOMES = {"torch": "torch_ops", "tensorflow": "tf_ops", "keras": "tf_ops"}
_NAMES = {"torch_ops": "PyTorch", "tf_ops": "TensorFlow"}
_CONVERT = "torch.as_tensor(x) or tf.convert_to_tensor(x)"


def _home_of(kind: type) -> str | None:
    """Returns which module computes with tensors of a type; None where there are no such tensors."""
    homes = (_HOMES.get(base.__module__.partition(".")[0]) for base in kind.__mro__)
    return next((home for home in homes if home is not None), None)


class _Backends(dict[type, Any]):
    """What computes with tensors of a type, `{type: module}`, found when the first one comes."""

    def __missing__(self, kind: type) -> Any:
        home = _home_of(kind)
        if home is None:
            raise TypeError(
                f"rlframe.tensor.ops: got {kind.__module__}.{kind.__name__} where a tensor was wanted; convert it: "
                f"{_CONVERT}"
            )
        self[kind] = importlib.import_module(f"rlframe.tensor.{home}")
        return self[kind]


_BACKENDS = _Backends()


def _common(first: Tensor, *others: Any) -> Any:
    """Returns what computes with tensors of one framework, numbers and arrays aside.

    Raises:
        TypeError: If the first is no tensor, or another one is of another framework.
    """
    kind = type(first)
    backend = _BACKENDS[kind]
    for other in others:
        if type(other) is not kind and type(other) is not float:
            _refuse_mixed(backend, other)
    return backend


def _refuse_mixed(backend: Any, other: Any) -> None:
    home, wanted = _home_of(type(other)), backend.__name__.rpartition(".")[2]
    if home is not None and home != wanted:
        raise TypeError(
            f"rlframe.tensor.ops: got a tensor of {_NAMES[wanted]} and one of {_NAMES[home]} "
            f"({type(other).__name__}) in one call; wanted tensors of one framework, so make both in the one that the "
            f"policy's config names: {_CONVERT}"
        )


# --- one value after the other --------------------------------------------------------------------------------------


def abs(x: Tensor) -> Tensor:
    """Returns |x|."""
    return _BACKENDS[type(x)].abs(x)


def exp(x: Tensor) -> Tensor:
    """Returns eˣ."""
    return _BACKENDS[type(x)].exp(x)


def log(x: Tensor) -> Tensor:
    """Returns the natural logarithm of x."""
    return _BACKENDS[type(x)].log(x)


def lgamma(x: Tensor) -> Tensor:
    """Returns log Γ(x)."""
    return _BACKENDS[type(x)].lgamma(x)


def digamma(x: Tensor) -> Tensor:
    """Returns ψ(x), the derivative of log Γ."""
    return _BACKENDS[type(x)].digamma(x)


def atanh(x: Tensor) -> Tensor:
    """Returns the inverse of tanh at x."""
    return _BACKENDS[type(x)].atanh(x)


def sqrt(x: Tensor) -> Tensor:
    """Returns √x."""
    return _BACKENDS[type(x)].sqrt(x)


def square(x: Tensor) -> Tensor:
    """Returns x²."""
    return _BACKENDS[type(x)].square(x)


def tanh(x: Tensor) -> Tensor:
    """Returns tanh x."""
    return _BACKENDS[type(x)].tanh(x)


def softplus(x: Tensor) -> Tensor:
    """Returns log(1 + eˣ)."""
    return _BACKENDS[type(x)].softplus(x)


def elu(x: Tensor) -> Tensor:
    """Returns x where x > 0, and eˣ − 1 elsewhere."""
    return _BACKENDS[type(x)].elu(x)


def huber(x: Tensor, delta: float = 1.0) -> Tensor:
    """Returns x²/2 where |x| ≤ delta, and delta · (|x| − delta/2) beyond."""
    return _BACKENDS[type(x)].huber(x, delta)


def minimum(x: Tensor, y: Tensor | float) -> Tensor:
    """Returns the smaller of two values each."""
    return _common(x, y).minimum(x, y)


def maximum(x: Tensor, y: Tensor | float) -> Tensor:
    """Returns the larger of two values each."""
    return _common(x, y).maximum(x, y)


def clip(x: Tensor, low: float, high: float) -> Tensor:
    """Returns `x` within two numbers."""
    return _BACKENDS[type(x)].clip(x, low, high)


def where(condition: Tensor, x: Tensor, y: Tensor | float) -> Tensor:
    """Returns `x` where `condition`, bool, is true, and `y` elsewhere; nothing of the other one, NaN included."""
    return _common(condition, x, y).where(condition, x, y)


# --- along an axis --------------------------------------------------------------------------------------------------


def sum(x: Tensor, axis: int | None = None) -> Tensor:
    """Returns the sum along an axis; of everything for None."""
    return _BACKENDS[type(x)].sum(x, axis)


def mean(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Returns the mean along an axis, which stays with length 1 for `keepdims`; of everything for None."""
    return _BACKENDS[type(x)].mean(x, axis, keepdims)


def max(x: Tensor, axis: int | None = None) -> Tensor:
    """Returns the largest value along an axis; of everything for None."""
    return _BACKENDS[type(x)].max(x, axis)


def min(x: Tensor, axis: int | None = None) -> Tensor:
    """Returns the smallest value along an axis; of everything for None."""
    return _BACKENDS[type(x)].min(x, axis)


def argmax(x: Tensor, axis: int) -> Tensor:
    """Returns the place of the largest value along an axis, an integer; of the first of several."""
    return _BACKENDS[type(x)].argmax(x, axis)


def variance(x: Tensor) -> Tensor:
    """Returns the mean squared distance of all values from their mean, a scalar."""
    return _BACKENDS[type(x)].variance(x)


def sort(x: Tensor) -> Tensor:
    """Returns the values along the last axis, the smallest first."""
    return _BACKENDS[type(x)].sort(x)


def softmax(x: Tensor) -> Tensor:
    """Returns probabilities of logits along the last axis."""
    return _BACKENDS[type(x)].softmax(x)


def log_softmax(x: Tensor) -> Tensor:
    """Returns logarithms of the probabilities of logits along the last axis."""
    return _BACKENDS[type(x)].log_softmax(x)


# --- gradients ------------------------------------------------------------------------------------------------------


def stop_gradient(x: Tensor) -> Tensor:
    """Returns `x` as a constant: no gradient flows through it."""
    return _BACKENDS[type(x)].stop_gradient(x)


def without_gradient(function: Callable[..., Any], x: Tensor) -> Any:
    """Returns `function(x)`, a tensor or a tuple of tensors and None, as constants.

    PyTorch then builds no graph of it, which takes less time than to cut one off.
    """
    return _BACKENDS[type(x)].without_gradient(function, x)


def gradients(function: Callable[[], Tensor], weights: Sequence[Tensor]) -> list[Tensor | None]:
    """Returns the gradient of `function()`, a scalar, by each of some weights; None where it does not depend on one.

    Args:
        function: Computes the scalar of the weights as they are.
        weights: Parameters of PyTorch or variables of TensorFlow that require gradients; at least one.
    """
    return list(_BACKENDS[type(weights[0])].gradients(function, weights))


# --- kinds and shapes -----------------------------------------------------------------------------------------------


def zeros_like(x: Tensor) -> Tensor:
    """Returns zeros of the shape and dtype of `x`."""
    return _BACKENDS[type(x)].zeros_like(x)


def ones_like(x: Tensor) -> Tensor:
    """Returns ones of the shape and dtype of `x`."""
    return _BACKENDS[type(x)].ones_like(x)


def cast_like(x: Tensor, like: Tensor) -> Tensor:
    """Returns the values of `x` in the dtype of `like`."""
    return _common(x, like).cast_like(x, like)


def to_float(x: Tensor) -> Tensor:
    """Returns the values of `x` in float32."""
    return _BACKENDS[type(x)].to_float(x)


def tensor_like(values: Any, like: Tensor) -> Tensor:
    """Returns an array, or a tensor, as a tensor where `like` is: on its device, in its framework, in its own dtype."""
    return _common(like, values).tensor_like(values, like)


def to_int(x: Tensor, bits: int = 64) -> Tensor:
    """Returns the values of `x` as integers of 32 or 64 bits."""
    return _BACKENDS[type(x)].to_int(x, bits)


def reshape(x: Tensor, shape: Any) -> Tensor:
    """Returns the values of `x` in another shape; −1 stands for what is left."""
    return _BACKENDS[type(x)].reshape(x, shape)


def row_count(x: Tensor) -> Any:
    """Returns how many rows `x [B, ...]` has: a number, or, where only the graph knows, a scalar."""
    return _BACKENDS[type(x)].row_count(x)


def row_size(x: Tensor) -> Any:
    """Returns how many values a row of `x [B, ...]` has: a number, or, where only the graph knows, a scalar."""
    return _BACKENDS[type(x)].row_size(x)


def expand_like(mask: Tensor, like: Tensor) -> Tensor:
    """Returns `mask [B]` as `[B, 1, ...]` with as many axes as `like [B, ...]`."""
    return _common(mask, like).expand_like(mask, like)


def flat_rows(x: Tensor) -> Tensor:
    """Returns `x [B, ...]` of any dtype as float32 `[B, D]`; the tensor itself where it is."""
    return _BACKENDS[type(x)].flat_rows(x)


def one_hot(x: Tensor, size: int) -> Tensor:
    """Returns integers in `[0, size)` as float32 rows of one 1 and zeros: `[..., size]`."""
    return _BACKENDS[type(x)].one_hot(x, size)


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Returns tensors side by side along an axis."""
    return _common(*tensors).concat(tensors, axis)


def split_last(x: Tensor, count: int) -> Tensor:
    """Returns `x [..., n · k]` as `[..., n, k]`, n being `count`."""
    return _BACKENDS[type(x)].split_last(x, count)


def merge_last(x: Tensor) -> Tensor:
    """Returns `x [..., n, k]` as `[..., n · k]`."""
    return _BACKENDS[type(x)].merge_last(x)


def swap_axes(x: Tensor, one: int, other: int) -> Tensor:
    """Returns `x` with two axes, counted from 0, in each other's place."""
    return _BACKENDS[type(x)].swap_axes(x, one, other)


def split(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Returns the parts of `x` along its last axis, each as wide as `sizes` says."""
    parts: list[Tensor] = list(_BACKENDS[type(x)].split(x, list(sizes)))
    return parts


# --- rows -----------------------------------------------------------------------------------------------------------


def roll(x: Tensor, shift: int) -> Tensor:
    """Returns `x [B, ...]` with each row `shift` rows further down; what leaves at one end comes in at the other."""
    return _BACKENDS[type(x)].roll(x, shift)


def boolean_mask(x: Tensor, mask: Tensor) -> Tensor:
    """Returns the rows of `x [B, ...]` where `mask`, bool `[B]`, is true: `[rows, ...]`."""
    return _common(x, mask).boolean_mask(x, mask)


def batched_index(x: Tensor, index: Tensor) -> Tensor:
    """Returns the entry of each row that its index names.

    Args:
        x: `[B, A]` or `[B, A, Z]`; B may be several axes, those that the index has.
        index: Integer `[B]`, each in `[0, A)`.

    Returns:
        `[B]` or `[B, Z]`.
    """
    return _common(x, index).batched_index(x, index)


def split_sequences(x: Tensor, seq_lens: Tensor) -> Tensor:
    """Returns padded rows `[S · T, ...]` by sequence, `[S, T, ...]`; `seq_lens [S]` tells how many there are."""
    return _common(x, seq_lens).split_sequences(x, seq_lens)


def flatten_sequences(x: Tensor) -> Tensor:
    """Returns `x [S, T, ...]` as rows `[S · T, ...]`."""
    return _BACKENDS[type(x)].flatten_sequences(x)


def linear_scatter(values: Tensor, places: Tensor, size: int) -> Tensor:
    """Returns rows in which each value was shared between the two whole places beside its own, by distance.

    A value at place 1.25 adds three quarters of itself to place 1, and one quarter to place 2. NaN as a place makes
    something in its row NaN. No gradient flows through `places`.

    Args:
        values: Float `[B, N]`.
        places: Float `[B, N]`, each in `[0, size − 1]`.
        size: Number of places, at least 1.

    Returns:
        Float `[B, size]`; the sum of each row is that of its values.
    """
    return _common(values, places).linear_scatter(values, places, size)


def reverse_scan(terms: Tensor, decays: Tensor) -> Tensor:
    """Returns x with x_t = terms_t + decays_t · x_{t+1}, and x_t = terms_t where decays_t is 0 or t is the last row.

    By recursive doubling: after k rounds each row has summed the 2ᵏ rows from itself on, and knows the product of their
    decays. A trajectory of T rows is done after ⌈log2 T⌉ rounds, however many of them there are.

    Args:
        terms: Float `[B, ...]`.
        decays: Of the same shape; 0 where the next row is of another trajectory.

    Returns:
        Float `[B, ...]`.
    """
    return _common(terms, decays).reverse_scan(terms, decays)
