"""Small pieces that models are built from."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.models.actor_layers import LEAKY_SLOPE, normalize_activation
from rlframe.utils.quiet_tf import tf

FloatArray: TypeAlias = NDArray[np.float32]
Activation: TypeAlias = Callable[[Any], Any]

#: Activation functions by the names of `rlframe.models.actor_layers.ACTIVATIONS`.
ACTIVATION_FUNCTIONS: dict[str, Activation | None] = {
    "tanh": tf.tanh,
    "relu": tf.nn.relu,
    "elu": tf.nn.elu,
    "swish": tf.nn.silu,
    "silu": tf.nn.silu,
    "sigmoid": tf.sigmoid,
    "selu": tf.nn.selu,
    "gelu": tf.nn.gelu,
    "leaky_relu": functools.partial(tf.nn.leaky_relu, alpha=LEAKY_SLOPE),
    "softplus": tf.nn.softplus,
    "softsign": tf.nn.softsign,
    "relu6": tf.nn.relu6,
    "linear": None,
}

_INITIAL_RNG: ContextVar[np.random.Generator | None] = ContextVar("initial_rng", default=None)


def activation_function(name: str | None) -> Activation | None:
    """Returns the activation called `name`; None for "linear" and None.

    Raises:
        ValueError: If there is no such activation.
    """
    return ACTIVATION_FUNCTIONS[normalize_activation(name)]


def keras_activation(name: str | None) -> str:
    """Returns Keras' own name of an activation, with which Keras reads its files."""
    known = normalize_activation(name)
    return {"swish": "silu"}.get(known, known)


def initial_rng() -> np.random.Generator:
    """Returns the generator that initial weights are drawn from.

    It is that of the innermost `seeded_initial_weights`; outside of one, a new generator with fresh entropy.
    """
    return _INITIAL_RNG.get() or np.random.default_rng()


@contextlib.contextmanager
def seeded_initial_weights(seed: int | None) -> Iterator[np.random.Generator]:
    """Models made in this context draw their initial weights from one generator: the same seed, the same weights.

    Args:
        seed: Seed of the generator; None takes fresh entropy.
    """
    rng = np.random.default_rng(seed)
    token = _INITIAL_RNG.set(rng)
    try:
        yield rng
    finally:
        _INITIAL_RNG.reset(token)


def normc(rng: np.random.Generator, out_size: int, in_size: int, std: float) -> FloatArray:
    """Returns normal weights whose rows are scaled to the norm `std`. Float32 `[out, in]`."""
    weights = rng.standard_normal((out_size, in_size), np.float32)
    weights *= np.float32(std) / np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
    return weights


def xavier_uniform(rng: np.random.Generator, shape: Sequence[int]) -> FloatArray:
    """Returns weights uniform in ±√(6 / (fan in + fan out)). Float32 `shape`: `[out, in]` or `[out, in, h, w]`."""
    field = math.prod(shape[2:])
    bound = math.sqrt(6.0 / (field * (shape[0] + shape[1])))
    return rng.uniform(-bound, bound, tuple(shape)).astype(np.float32)


def normc_initializer(std: float = 1.0) -> Callable[..., Any]:
    """Returns a Keras initialiser of normal kernels `[in, out]` whose every output's column has the norm `std`."""

    def initialize(shape: Sequence[int], dtype: Any = None, **_: Any) -> Any:
        *leading, out_size = (int(n) for n in shape)
        weights = normc(initial_rng(), out_size, math.prod(leading), std)
        return tf.constant(weights.T.reshape(*leading, out_size), dtype or tf.float32)

    return initialize


def reshape(tensor: Any, shape: Sequence[int | None]) -> Any:
    """Returns `tensor` in another shape, None standing for a size known only when the graph runs.

    Args:
        tensor: Tensor of any dtype.
        shape: Sizes. More than one None stand for the sizes that `tensor` has in the same places.
    """
    unknown = shape.count(None) if isinstance(shape, tuple | list) else 0
    if unknown <= 1:
        return tf.reshape(tensor, [-1 if size is None else size for size in shape])
    sizes = tf.shape(tensor)
    return tf.reshape(tensor, [sizes[index] if size is None else size for index, size in enumerate(shape)])


def flat_rows(tensor: Any) -> Any:
    """Returns the rows of `tensor [B, ...]` as float32 `[B, D]`."""
    rows = tf.convert_to_tensor(tensor)
    if rows.shape.rank != 2:
        # The product, not -1: it also serves an empty batch.
        rows = tf.reshape(rows, [-1, math.prod(rows.shape[1:])])
    return tf.cast(rows, tf.float32)


def tf_dtype(dtype: Any) -> Any:
    """Returns the TensorFlow dtype for arrays of the NumPy `dtype`; unsigned types beyond 8 bits become int64."""
    name = np.dtype(dtype).name
    return tf.int64 if name in ("uint16", "uint32", "uint64") else tf.as_dtype(name)
