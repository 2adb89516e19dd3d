"""Attention behind any model: the Gated Transformer-XL, in TensorFlow."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from rlframe.models.attention_positions import sinusoids
from rlframe.models.memory_models import AttentionBehind
from rlframe.models.tf.fcnet import MemoryHeads
from rlframe.models.tf.layer_owner import TFLayerOwner
from rlframe.models.tf.misc import initial_rng
from rlframe.models.tf.recurrent_net import RecurrentNetwork
from rlframe.models.tf.variables import VariableOwner
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class _Layers(VariableOwner):
    """Dense layers and layer norms, applied at every step of `[B, T, D]`."""

    def add_linear(self, name: str, in_size: int, out_size: int, *, bias: bool = True) -> None:
        """Makes `<name>.weight [out, in]` and, with `bias`, `<name>.bias [out]`, drawn as in PyTorch's `nn.Linear`."""
        rng, bound = initial_rng(), 1.0 / math.sqrt(in_size)
        self.add_weight(f"{name}.weight", rng.uniform(-bound, bound, (out_size, in_size)).astype(np.float32))
        if bias:
            self.add_weight(f"{name}.bias", rng.uniform(-bound, bound, out_size).astype(np.float32))

    def linear(self, name: str, x: Tensor) -> Tensor:
        """Returns x Wᵀ + b at each step."""
        y = self.dense(name, tf.reshape(x, [-1, x.shape[-1]]))
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [y.shape[-1]]], axis=0))

    def add_norm(self, name: str, width: int) -> None:
        """Makes `<name>.weight [D]`, ones, and `<name>.bias [D]`, zeros."""
        self.add_weight(f"{name}.weight", np.ones(width, np.float32))
        self.add_weight(f"{name}.bias", np.zeros(width, np.float32))

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Returns the layer normalisation of `x` (ε 1e-5)."""
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        scaled = (x - mean) * tf.math.rsqrt(variance + 1e-5)
        return scaled * self.get_weight(f"{name}.weight") + self.get_weight(f"{name}.bias")


class GRUGate(_Layers):
    """Mixes a layer's input x with its output y, as a GRU cell would.

        r = σ(W_r y + U_r x),  z = σ(W_z y + U_z x − b),  h = tanh(W_g y + U_g (r ∘ x)),  out = (1 − z) ∘ x + z ∘ h

    A positive b makes the layer begin near the identity.

    Source: Parisotto et al. 2020, "Stabilizing Transformers for Reinforcement Learning", section 3.2.
    """

    def __init__(self, width: int, bias: float) -> None:
        for name in ("w_r", "u_r", "w_z", "u_z", "w_g", "u_g"):
            self.add_linear(name, width, width, bias=False)
        self.add_weight("bias", np.full(width, bias, np.float32))

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns what is between x and y, `[B, T, D]` like both."""
        r = tf.sigmoid(self.linear("w_r", y) + self.linear("u_r", x))
        z = tf.sigmoid(self.linear("w_z", y) + self.linear("u_z", x) - self.get_weight("bias"))
        h = tf.tanh(self.linear("w_g", y) + self.linear("u_g", r * x))
        return (1.0 - z) * x + z * h


class RelativeAttention(_Layers):
    """Multi-head attention that knows how far back a step lies, not where.

        score_ij = ((q_i + u) · k_j + (q_i + v) · W_R R_{i−j}) / √d

    Args:
        width: Size of the embeddings, D.
        heads: Number of heads, H.
        head_size: Size of a head, d.
        window: Steps back that are seen.

    Source: Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", section 3.3.
    """

    def __init__(self, width: int, heads: int, head_size: int, window: int) -> None:
        self.heads, self.head_size, self.window = heads, head_size, window
        for name in ("query", "key", "value", "position"):
            self.add_linear(name, width, heads * head_size, bias=False)
        self.add_linear("project", heads * head_size, width, bias=False)
        self.add_weight("content_bias", np.zeros((heads, head_size), np.float32))
        self.add_weight("position_bias", np.zeros((heads, head_size), np.float32))
        self._encodings = sinusoids(window + 1, width)

    def __call__(self, x: Tensor, context: Tensor) -> Tensor:
        """Returns what the steps `x` `[B, T, D]` gather from `context` `[B, M + T, D]`, of which they are the last."""
        steps, total = tf.shape(x)[1], tf.shape(context)[1]
        query = self._split(self.linear("query", x))
        key, value = self._split(self.linear("key", context)), self._split(self.linear("value", context))
        distance = (total - steps + tf.range(steps))[:, None] - tf.range(total)[None]
        seen = (distance >= 0) & (distance <= self.window)
        position = self.linear("position", tf.constant(self._encodings))
        position = tf.reshape(position, [self.window + 1, self.heads, self.head_size])
        between = tf.gather(position, tf.clip_by_value(distance, 0, self.window))
        scores = tf.einsum("bihd,bjhd->bhij", query + self.get_weight("content_bias"), key)
        scores += tf.einsum("bihd,ijhd->bhij", query + self.get_weight("position_bias"), between)
        scores = tf.where(seen, scores / math.sqrt(self.head_size), tf.constant(-np.inf, tf.float32))
        gathered = tf.einsum("bhij,bjhd->bihd", tf.nn.softmax(scores), value)
        flat = tf.reshape(gathered, [tf.shape(x)[0], steps, self.heads * self.head_size])
        return self.linear("project", flat)

    def _split(self, x: Tensor) -> Tensor:
        shape = tf.shape(x)
        return tf.reshape(x, [shape[0], shape[1], self.heads, self.head_size])


class GTrXLUnit(_Layers):
    """One layer: attention over memory and steps, then a network at each step, each behind a norm and a gate."""

    def __init__(self, model_config: dict[str, Any]) -> None:
        width, mlp = int(model_config["attention_dim"]), int(model_config["attention_position_wise_mlp_dim"])
        bias = float(model_config["attention_init_gru_gate_bias"])
        self.add_norm("norm_1", width)
        self.add_norm("norm_2", width)
        self.attention = RelativeAttention(
            width,
            int(model_config["attention_num_heads"]),
            int(model_config["attention_head_dim"]),
            int(model_config["attention_memory_inference"]),
        )
        self.gate_1, self.gate_2 = GRUGate(width, bias), GRUGate(width, bias)
        self.add_linear("mlp_0", width, mlp)
        self.add_linear("mlp_1", mlp, width)

    def __call__(self, x: Tensor, memory: Tensor) -> Tensor:
        """Returns the layer's outputs `[B, T, D]` for inputs `x` `[B, T, D]` and what came before, `[B, M, D]`."""
        context = self.norm("norm_1", tf.concat([tf.stop_gradient(memory), x], axis=1))
        x = self.gate_1(x, tf.nn.relu(self.attention(context[:, memory.shape[1] :], context)))
        inner = self.linear("mlp_1", tf.nn.relu(self.linear("mlp_0", self.norm("norm_2", x))))
        return self.gate_2(x, tf.nn.relu(inner))


class AttentionWrapper(AttentionBehind, TFLayerOwner, RecurrentNetwork):
    """Any model without memory, a Gated Transformer-XL behind it, and heads behind that; see `AttentionBehind`."""

    heads_class = MemoryHeads

    def _make_units(self, count: int) -> list[GTrXLUnit]:
        return [GTrXLUnit(self.model_config) for _ in range(count)]


__all__ = ["AttentionWrapper", "GRUGate", "GTrXLUnit", "RelativeAttention"]
