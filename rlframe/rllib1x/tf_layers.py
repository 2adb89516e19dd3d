"""RLlib's Keras layers: attention, gates, skip connections."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.utils.quiet_tf import tf


class GRUGate(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow has no types
    """Mixes a layer's input x with its output y, as a GRU cell would.

        r = σ(y W_r + x U_r),  z = σ(y W_z + x U_z − b),  h = tanh(y W_h + (r ∘ x) U_h),  out = (1 − z) ∘ x + z ∘ h

    Args:
        init_bias: b at the beginning; a positive one makes the gate begin near x.
        **kwargs: Of `Layer`.

    Source: Parisotto et al. 2020, "Stabilizing Transformers for Reinforcement Learning", section 3.2.
    """

    def __init__(self, init_bias: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._init_bias = init_bias

    def build(self, input_shape: Any) -> None:
        """Makes the weights for inputs (x, y) of these shapes.

        Raises:
            ValueError: If x and y have other widths.
        """
        x, y = (shape[-1] for shape in input_shape)
        if x != y:
            raise ValueError(f"GRUGate got inputs of the widths {x} and {y}; wanted the same.")
        names = ("w_r", "w_z", "w_h", "u_r", "u_z", "u_h")
        self._gates = {name: self.add_weight(shape=(x, x), name=name) for name in names}
        bias = tf.keras.initializers.Constant(self._init_bias)
        self._bias_z = self.add_weight(shape=(x,), initializer=bias, name="bias_z")

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Returns what is between x and y, for `inputs` (x, y) `[..., D]` each."""
        del kwargs
        x, y = inputs

        def gate(letter: str, carried: Any) -> Any:
            mixed = tf.tensordot(y, self._gates[f"w_{letter}"], 1)
            return mixed + tf.tensordot(carried, self._gates[f"u_{letter}"], 1)

        r, z = tf.sigmoid(gate("r", x)), tf.sigmoid(gate("z", x) - self._bias_z)
        return x + z * (tf.tanh(gate("h", r * x)) - x)


class SkipConnection(tf.keras.layers.Layer):  # type: ignore[misc]
    """A layer whose input goes around it.

    Args:
        layer: The layer.
        fan_in_layer: Joins (input, output) of the layer, such as `GRUGate`; None adds them.
        **kwargs: Of `Layer`.
    """

    def __init__(self, layer: Any, fan_in_layer: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._layer, self._fan_in_layer = layer, fan_in_layer

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Returns input and output joined; `kwargs` are for the layer."""
        outputs = self._layer(inputs, **kwargs)
        return inputs + outputs if self._fan_in_layer is None else self._fan_in_layer((inputs, outputs))


class PositionwiseFeedforward(tf.keras.layers.Layer):  # type: ignore[misc]
    """Two dense layers at each step.

    Args:
        out_dim: Width of the outputs.
        hidden_dim: Width between the layers, where ReLU is the activation.
        output_activation: Activation behind the outputs.
        **kwargs: Of `Layer`.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.3.
    """

    def __init__(self, out_dim: int, hidden_dim: int, output_activation: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._hidden_layer = tf.keras.layers.Dense(hidden_dim, activation="relu")
        self._output_layer = tf.keras.layers.Dense(out_dim, activation=output_activation)

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Returns outputs `[..., out]` of `inputs` `[..., in]`."""
        del kwargs
        return self._output_layer(self._hidden_layer(inputs))


class MultiHeadAttention(tf.keras.layers.Layer):  # type: ignore[misc]
    """Attention of each step to itself and those before it.

    Args:
        out_dim: Width of the outputs.
        num_heads: Number of heads, H.
        head_dim: Width of a head, d.
        **kwargs: Of `Layer`.

    Source: Vaswani et al. 2017, section 3.2.
    """

    def __init__(self, out_dim: int, num_heads: int, head_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._num_heads, self._head_dim = num_heads, head_dim
        self._qkv_layer = tf.keras.layers.Dense(3 * num_heads * head_dim, use_bias=False)
        self._linear_layer = tf.keras.layers.Dense(out_dim, use_bias=False)

    def call(self, inputs: Any) -> Any:
        """Returns outputs `[B, T, out]` of `inputs` `[B, T, in]`."""
        query, key, value = _heads(self._qkv_layer(inputs), 3, self._num_heads, self._head_dim)
        return self._linear_layer(_gathered(tf.einsum("bihd,bjhd->bijh", query, key), value))


class PositionalEmbedding(tf.keras.layers.Layer):  # type: ignore[misc]
    """Sinusoids that stand for distances in time, the largest first.

    Args:
        out_dim: Width of the encodings.
        **kwargs: Of `Layer`.

    Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", appendix B.
    """

    def __init__(self, out_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inverse_freq = tf.constant(10000.0 ** -(np.arange(0, out_dim, 2) / out_dim), tf.float32)

    def call(self, seq_length: Any) -> Any:
        """Returns the encodings of the distances `seq_length` - 1 to 0, float `[seq_length, out]`."""
        distances = tf.cast(tf.range(seq_length)[::-1], tf.float32)
        angles = distances[:, None] * self.inverse_freq
        return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


class RelativeMultiHeadAttention(tf.keras.layers.Layer):  # type: ignore[misc]
    """Attention of each step to a memory, itself and those before it, by content and by distance.

        score_ij = ((q_i + u) · k_j + (q_i + v) · W_R R_{i−j}) / √d

    Args:
        out_dim: Width of the outputs, and of the encodings of distances.
        num_heads: Number of heads, H.
        head_dim: Width of a head, d.
        input_layernorm: Whether memory and inputs are normalised first.
        output_activation: Activation behind the outputs.
        **kwargs: Of `Layer`.

    Source: Dai et al. 2019, section 3.3.
    """

    def __init__(
        self,
        out_dim: int,
        num_heads: int,
        head_dim: int,
        input_layernorm: bool = False,
        output_activation: Callable[[Any], Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        layers, size = tf.keras.layers, num_heads * head_dim
        self._num_heads, self._head_dim = num_heads, head_dim
        self._qkv_layer = layers.Dense(3 * size, use_bias=False)
        self._linear_layer = layers.Dense(out_dim, use_bias=False, activation=output_activation)
        self._uvar = self.add_weight(shape=(num_heads, head_dim), name="uvar")
        self._vvar = self.add_weight(shape=(num_heads, head_dim), name="vvar")
        self._pos_embedding = PositionalEmbedding(out_dim)
        self._pos_proj = layers.Dense(size, use_bias=False)
        self._input_layernorm = layers.LayerNormalization() if input_layernorm else None

    def call(self, inputs: Any, memory: Any = None) -> Any:
        """Returns outputs `[B, T, out]` of `inputs` `[B, T, in]` after a `memory` `[B, M, in]`, without gradient."""
        steps = tf.shape(inputs)[1]
        context = inputs if memory is None else tf.concat([tf.stop_gradient(memory), inputs], axis=1)
        if self._input_layernorm is not None:
            context = self._input_layernorm(context)
        total = tf.shape(context)[1]
        query, key, value = _heads(self._qkv_layer(context), 3, self._num_heads, self._head_dim)
        query = query[:, total - steps :]
        encoded = self._pos_proj(self._pos_embedding(total))
        distances = tf.reshape(encoded, [total, self._num_heads, self._head_dim])
        scores = tf.einsum("bihd,bjhd->bijh", query + self._uvar, key)
        scores += self.rel_shift(tf.einsum("bihd,jhd->bijh", query + self._vvar, distances))
        return self._linear_layer(_gathered(scores, value))

    @staticmethod
    def rel_shift(x: Any) -> Any:
        """Returns scores by step and distance as scores by step and earlier step. `[B, T, M + T, H]` to the same.

        Column j of row i is what was in column j + T − 1 − i; what is later than the row means nothing.
        """
        batch, rows, columns, heads = tf.unstack(tf.shape(x))
        padded = tf.pad(x, [[0, 0], [0, 0], [1, 0], [0, 0]])
        return tf.reshape(tf.reshape(padded, [batch, columns + 1, rows, heads])[:, 1:], tf.shape(x))


def _heads(joined: Any, parts: int, heads: int, size: int) -> list[Any]:
    """Returns `[B, T, parts · H · d]` as that many tensors `[B, T, H, d]`."""
    shape = tf.shape(joined)
    split: list[Any] = tf.unstack(tf.reshape(joined, [shape[0], shape[1], parts, heads, size]), axis=2)
    return split


def _gathered(scores: Any, value: Any) -> Any:
    """Returns what the last T of the steps gather `[B, T, H · d]`, for scores `[B, T, M + T, H]` and values."""
    shape, (heads, size) = tf.shape(scores), value.shape[2:]
    steps, total = shape[1], shape[2]
    seen = tf.range(total)[None] <= (tf.range(steps) + total - steps)[:, None]
    scores = tf.where(seen[None, :, :, None], scores / math.sqrt(size), -np.inf)
    gathered = tf.einsum("bijh,bjhd->bihd", tf.nn.softmax(scores, axis=2), value)
    return tf.reshape(gathered, [shape[0], steps, heads * size])


class NoisyLayer(tf.keras.layers.Layer):  # type: ignore[misc]
    """A dense layer with factorised Gaussian noise on its weights, drawn anew at every call.

    Args:
        prefix: Begins the names of the variables.
        out_size: Width of the outputs.
        sigma0: Initial size of the noise; σ starts as sigma0 / √in.
        activation: Name of the activation, or None.

    Source: Fortunato et al. 2018, "Noisy Networks for Exploration", eqs. 9 to 11 and section 3.2.
    """

    def __init__(self, prefix: str, out_size: int, sigma0: float, activation: str | None = "relu") -> None:
        super().__init__()
        self.prefix, self.out_size, self.sigma0 = prefix, out_size, sigma0
        self.activation = tf.keras.activations.get(activation)

    def build(self, input_shape: Any) -> None:
        """Makes means and sizes of the noise for inputs of this shape `[B, in]`."""
        size, bound = int(input_shape[-1]), 1.0 / math.sqrt(int(input_shape[-1]))
        initializers = tf.keras.initializers
        noise, mean = initializers.Constant(self.sigma0 * bound), initializers.RandomUniform(-bound, bound)
        self.w = self.add_weight(shape=(size, self.out_size), initializer=mean, name=f"{self.prefix}_fc_w")
        self.b = self.add_weight(shape=(self.out_size,), initializer=mean, name=f"{self.prefix}_fc_b")
        self.sigma_w = self.add_weight(shape=(size, self.out_size), initializer=noise, name=f"{self.prefix}_sigma_w")
        self.sigma_b = self.add_weight(shape=(self.out_size,), initializer=noise, name=f"{self.prefix}_sigma_b")

    def call(self, inputs: Any) -> Any:
        """Returns the activated outputs; one draw of noise serves all rows. Float `[B, in]` to `[B, out]`."""
        drawn = tf.random.normal([inputs.shape[-1] + self.out_size])
        drawn = tf.sign(drawn) * tf.sqrt(tf.abs(drawn))
        given, made = drawn[: inputs.shape[-1]], drawn[inputs.shape[-1] :]
        noise = (tf.matmul(inputs * given, self.sigma_w) + self.sigma_b) * made
        return self.activation(tf.matmul(inputs, self.w) + self.b + noise)


def flatten(x: Any) -> Any:
    """Returns the rows of a tensor `[B, ...]` as `[B, D]`."""
    return tf.reshape(x, [-1, math.prod(x.shape[1:])])
