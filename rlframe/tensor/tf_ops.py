"""`rlframe.tensor.ops` in TensorFlow; what the functions do is said there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any

abs, exp, sqrt, square, tanh = tf.abs, tf.exp, tf.sqrt, tf.square, tf.tanh
log, lgamma, digamma, atanh = tf.math.log, tf.math.lgamma, tf.math.digamma, tf.atanh
minimum, maximum, where, clip = tf.minimum, tf.maximum, tf.where, tf.clip_by_value
sum, max, min, argmax = tf.reduce_sum, tf.reduce_max, tf.reduce_min, tf.argmax
variance, softmax, log_softmax = tf.math.reduce_variance, tf.nn.softmax, tf.nn.log_softmax
stop_gradient, zeros_like, ones_like = tf.stop_gradient, tf.zeros_like, tf.ones_like
concat, boolean_mask, reshape = tf.concat, tf.boolean_mask, tf.reshape
softplus, sort, elu = tf.nn.softplus, tf.sort, tf.nn.elu


def huber(x: Tensor, delta: float) -> Tensor:
    size = tf.abs(x)
    # The quadratic part of |x| is min(|x|, delta); one formula then serves both sides, without a branch.
    quadratic = tf.minimum(size, delta)
    return quadratic * (size - 0.5 * quadratic)


def mean(x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    return tf.reduce_mean(x, axis, keepdims)


def without_gradient(function: Callable[..., Any], x: Tensor) -> Any:
    return tf.nest.map_structure(lambda made: None if made is None else tf.stop_gradient(made), function(x))


def gradients(function: Callable[[], Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor | None]:
    with tf.GradientTape() as tape:
        made = function()
    found: list[Tensor | None] = tape.gradient(made, list(weights))
    return found


def cast_like(x: Tensor, like: Tensor) -> Tensor:
    return tf.cast(x, like.dtype)


def to_float(x: Tensor) -> Tensor:
    return tf.cast(x, tf.float32)


def to_int(x: Tensor, bits: int) -> Tensor:
    return tf.cast(x, tf.int32 if bits == 32 else tf.int64)


def split(x: Tensor, sizes: Any) -> Any:
    return tf.split(x, sizes, axis=-1)


def tensor_like(values: Any, like: Tensor) -> Tensor:
    del like
    return tf.convert_to_tensor(values)


def row_count(x: Tensor) -> Any:
    return tf.shape(x)[0]


def row_size(x: Tensor) -> Any:
    known = x.shape[1:].num_elements()
    return tf.cast(tf.reduce_prod(tf.shape(x)[1:]), x.dtype) if known is None else known


def flat_rows(x: Tensor) -> Tensor:
    # Not -1 for the sizes of a row: it also serves an empty batch.
    rows = x if x.shape.rank == 2 else tf.reshape(x, [-1, x.shape[1:].num_elements()])
    return tf.cast(rows, tf.float32)


def one_hot(x: Tensor, size: int) -> Tensor:
    return tf.one_hot(tf.cast(x, tf.int64), size)


def expand_like(mask: Tensor, like: Tensor) -> Tensor:
    return mask if like.shape.rank == 1 else tf.reshape(mask, [-1, *[1] * (like.shape.rank - 1)])


def _sizes(x: Tensor) -> list[Any]:
    """Returns the lengths of the axes: numbers where a trace knows them, so that it knows them behind a reshape."""
    return [tf.shape(x)[axis] if size is None else size for axis, size in enumerate(x.shape)]


def split_last(x: Tensor, count: int) -> Tensor:
    return tf.reshape(x, [*_sizes(x)[:-1], count, x.shape[-1] // count])


def merge_last(x: Tensor) -> Tensor:
    return tf.reshape(x, [*_sizes(x)[:-2], x.shape[-2] * x.shape[-1]])


def swap_axes(x: Tensor, one: int, other: int) -> Tensor:
    order = list(range(x.shape.rank))
    order[one], order[other] = other, one
    return tf.transpose(x, order)


def roll(x: Tensor, shift: int) -> Tensor:
    return tf.roll(x, shift, axis=0)


def batched_index(x: Tensor, index: Tensor) -> Tensor:
    # A sum in which all entries but one are 0: the gradient of tf.gather takes longer than a small network's.
    axis = index.shape.rank
    chosen = tf.one_hot(index, x.shape[axis], on_value=True, off_value=False)
    chosen = chosen if x.shape.rank == axis + 1 else chosen[..., None]
    return tf.reduce_sum(tf.where(chosen, x, tf.zeros_like(x)), axis=axis)


def split_sequences(x: Tensor, seq_lens: Tensor) -> Tensor:
    sequences = tf.shape(seq_lens)[0]
    steps = tf.shape(x)[0] // tf.maximum(sequences, 1)
    return tf.reshape(x, [sequences, steps, *_sizes(x)[1:]])


def flatten_sequences(x: Tensor) -> Tensor:
    return tf.reshape(x, [-1, *_sizes(x)[2:]])


def linear_scatter(values: Tensor, places: Tensor, size: int) -> Tensor:
    # Place k gets the share 1 − distance of every value less than one away from it.
    numbers = tf.range(size, dtype=places.dtype)
    share = tf.maximum(1.0 - tf.abs(tf.stop_gradient(places)[:, :, None] - numbers), 0.0)
    return tf.einsum("bn,bnk->bk", values, share)


def reverse_scan(terms: Tensor, decays: Tensor) -> Tensor:
    rows = tf.shape(terms)[0]
    # The last decay is 0, so that what comes round from the front is multiplied by 0.
    decays = tf.where(expand_like(tf.range(rows) == rows - 1, decays), tf.zeros_like(decays), decays)

    def goes_on(reach: Tensor, summed: Tensor, product: Tensor) -> Tensor:
        del summed
        return (reach < rows) & tf.reduce_any(product != 0)

    def doubled(reach: Tensor, summed: Tensor, product: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        summed = summed + product * tf.roll(summed, -reach, axis=0)
        return 2 * reach, summed, product * tf.roll(product, -reach, axis=0)

    return tf.while_loop(goes_on, doubled, (tf.constant(1), terms, decays))[1]
