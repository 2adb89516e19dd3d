"""Attention behind any model: the Gated Transformer-XL, in TensorFlow."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import tensorflow as tf

from rlframe.models.action_encoding import action_encoding, encoded_size
from rlframe.models.attention_positions import sinusoids
from rlframe.models.past_views import PREV_N_ACTIONS, PREV_N_REWARDS, encode_steps, previous_steps_views
from rlframe.models.recurrent_actor import heads_config
from rlframe.models.tf.fcnet import MemoryHeads
from rlframe.models.tf.misc import flat_rows, initial_rng
from rlframe.models.tf.recurrent_net import as_sequences
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.models.tf.variables import VariableOwner

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


class AttentionWrapper(_Layers, TFModelV2):
    """Any model without memory, a Gated Transformer-XL behind it, and heads for outputs and values behind that.

    The state of a unit is its inputs of the last `attention_memory_inference` steps, zeros before the episode. Each
    step sees that many steps back, in training as when acting.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs.
        model_config: The keys `attention_*`.
        name: Name of the model.
        inner: The model before the attention; its outputs are features.

    Source: Parisotto et al. 2020, "Stabilizing Transformers for Reinforcement Learning".
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        *,
        inner: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.inner = inner
        self.width = int(model_config["attention_dim"])
        self.memory_size = int(model_config["attention_memory_inference"])
        self.memory_training = int(model_config["attention_memory_training"])
        self.past_actions = int(model_config["attention_use_n_prev_actions"])
        self.past_rewards = int(model_config["attention_use_n_prev_rewards"])
        self._encoding = action_encoding(self.action_space)
        self.view_requirements.update(inner.view_requirements)
        self.view_requirements.update(previous_steps_views(self.past_actions, self.past_rewards, self.action_space))
        in_size = inner.num_outputs + self.past_actions * encoded_size(self._encoding) + self.past_rewards
        self.add_linear("embedding", in_size, self.width)
        units = range(int(model_config["attention_num_transformer_units"]))
        self.units = [GTrXLUnit(model_config) for _ in units]
        features = gymnasium.spaces.Box(-np.inf, np.inf, (self.width,), np.float32)
        self.heads = MemoryHeads(features, action_space, num_outputs, heads_config(model_config), "heads")

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs, float `[num_seqs · T, num_outputs]`, and the units' memories behind every sequence."""
        if seq_lens is None:
            raise ValueError("the attention needs seq_lens, the lengths of the sequences; got None")
        features, _ = self.inner.forward(input_dict, [], None)
        parts = [flat_rows(features)]
        if self.past_actions:
            parts.append(encode_steps(input_dict[PREV_N_ACTIONS], self._encoding, self.past_actions))
        if self.past_rewards:
            parts.append(tf.reshape(tf.cast(input_dict[PREV_N_REWARDS], tf.float32), [-1, self.past_rewards]))
        rows = self.dense("embedding", parts[0] if len(parts) == 1 else tf.concat(parts, axis=1))
        x = as_sequences(rows, seq_lens)
        kept = self.memory_training if input_dict["is_training"] else self.memory_size
        new_state = []
        for unit, memory in zip(self.units, state, strict=True):
            new_state.append(tf.concat([memory, x], axis=1)[:, tf.shape(x)[1] :])
            x = unit(x, memory[:, max(self.memory_size - kept, 0) :])
        return self.heads.forward({"obs_flat": tf.reshape(x, [-1, self.width])}, [], None)[0], new_state

    def get_initial_state(self) -> list[Any]:
        """Returns zeros, float32 `[memory, D]` for each unit."""
        return [np.zeros((self.memory_size, self.width), np.float32) for _ in self.units]

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass. Float `[num_seqs · T]`."""
        return self.heads.value_function()


__all__ = ["AttentionWrapper", "GRUGate", "GTrXLUnit", "RelativeAttention"]
