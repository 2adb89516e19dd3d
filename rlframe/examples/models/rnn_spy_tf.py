"""An example model with memory in TensorFlow that keeps the batches which it learned from, to be looked at."""

from __future__ import annotations

import math
import pickle
from typing import Any, TypeAlias

import numpy as np
import ray
from ray.experimental.internal_kv import _internal_kv_put

from rlframe.models.tf.recurrent_net import RecurrentNetwork
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class SpyLayer(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow has no types
    """A dense layer that also keeps what comes by, whenever it runs in a traced step: see `spy`."""

    #: What `spy` returns.
    output = np.array(0, np.int64)

    def __init__(self, num_outputs: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True  # outputs of padding are passed over, as everywhere
        self.dense = tf.keras.layers.Dense(num_outputs)

    def build(self, input_shape: Any) -> None:
        """Makes the weights for the second of the inputs' shapes."""
        self.dense.build(input_shape[1])

    def call(self, inputs: Any, **kwargs: Any) -> Tensor:
        """Returns outputs of the second of the inputs; the others are for `spy`."""
        del kwargs
        sequences, features, *rest = inputs
        seen = tf.numpy_function(self.spy, [sequences, *rest], tf.int64)
        with tf.control_dependencies([seen]):
            return self.dense(features)

    @staticmethod
    def spy(inputs: Any, seq_lens: Any, h_in: Any, c_in: Any, h_out: Any, c_out: Any) -> Any:
        """Pickles what a batch was into Ray's store of keys, as `rnn_spy_in_<n>`: n counts from 0.

        Args:
            inputs: Padded sequences `[B, T, ...]`.
            seq_lens: Their lengths `[B]`.
            h_in: First part of the states at their beginnings `[B, S]`.
            c_in: Second part.
            h_out: First part of the states at their ends.
            c_out: Second part.
        """
        seen = {"sequences": inputs, "seq_lens": seq_lens, "state_in": [h_in, c_in], "state_out": [h_out, c_out]}
        _internal_kv_put(f"rnn_spy_in_{RNNSpyModel.capture_index}", pickle.dumps(seen), overwrite=True)
        RNNSpyModel.capture_index += 1
        return SpyLayer.output


class RNNSpyModel(RecurrentNetwork):
    """An LSTM that keeps the batches that it learned from, numbered from 0 for each new model: see `SpyLayer`.

    Raises:
        RuntimeError: If Ray is not running.
    """

    #: Number of the next batch that is kept.
    capture_index = 0
    cell_size = 3

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        if not ray.is_initialized():
            raise RuntimeError("RNNSpyModel keeps batches in Ray's store, and Ray does not run; call ray.init() first.")
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        layers, size = tf.keras.layers, int(math.prod(obs_space.shape))
        self.lstm = layers.LSTM(self.cell_size, return_sequences=True, return_state=True)
        self.spy_layer, self.value_layer = SpyLayer(num_outputs), layers.Dense(1)
        state = (None, self.cell_size)
        self.lstm.build((None, None, size))
        self.spy_layer.build([(None, None, size), (None, None, self.cell_size), (None,), state, state, state, state])
        self.value_layer.build((None, None, self.cell_size))
        self._value_out: Tensor = None
        self._learns = False
        RNNSpyModel.capture_index = 0

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns what `forward_rnn` makes of rows, as rows."""
        self._learns = bool(input_dict["is_training"])
        return super().forward(input_dict, state, seq_lens)

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs of padded sequences, and the states at their ends."""
        mask = tf.sequence_mask(seq_lens, tf.shape(inputs)[1])
        features, hidden, cell = self.lstm(inputs, mask=mask, initial_state=list(state))
        self._value_out = self.value_layer(features)
        if not self._learns:
            return self.spy_layer.dense(features), [hidden, cell]
        return self.spy_layer([inputs, features, seq_lens, *state, hidden, cell]), [hidden, cell]

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._value_out, [-1])

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for both parts of the LSTM's state."""
        return [np.zeros(self.cell_size, np.float32) for _ in range(2)]
