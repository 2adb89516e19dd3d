"""Example models with memory in TensorFlow: a plain Keras model, and one that sees images."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from rlframe.models.tf.recurrent_net import RecurrentNetwork, as_sequences
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class RNNModel(tf.keras.Model):  # type: ignore[misc]  # TensorFlow has no types
    """A dense layer and an LSTM as a plain Keras model, which is called with a batch.

    Args:
        input_space: Observation space.
        action_space: Action space.
        num_outputs: Width of the outputs.
        name: Name of the model.
        hiddens_size: Width of the dense layer.
        cell_size: Size of the LSTM's state.
    """

    def __init__(
        self, input_space: Any, action_space: Any, num_outputs: int, *, name: str = "", hiddens_size: int = 256,
        cell_size: int = 64,
    ) -> None:  # fmt: skip
        del input_space, action_space
        super().__init__(name=name or None)
        layers = tf.keras.layers
        self.cell_size = cell_size
        self.dense = layers.Dense(hiddens_size, activation="relu")
        self.lstm = layers.LSTM(cell_size, return_sequences=True, return_state=True)
        self.logits, self.values = layers.Dense(num_outputs), layers.Dense(1)

    def call(self, sample_batch: Any) -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
        """Returns outputs `[B · T, num_outputs]`, the new states `[B, cell_size]`, and `vf_preds` `[B · T]`.

        Args:
            sample_batch: `obs` `[B · T, D]`, `seq_lens` `[B]`, and the states `state_in_0` and `state_in_1`.
        """
        lengths = sample_batch["seq_lens"]
        sequences = as_sequences(self.dense(sample_batch["obs"]), lengths)
        mask = tf.sequence_mask(lengths, tf.shape(sequences)[1])
        states = [sample_batch["state_in_0"], sample_batch["state_in_1"]]
        features, hidden, cell = self.lstm(sequences, mask=mask, initial_state=states)
        rows = tf.reshape(features, [-1, self.cell_size])
        return self.logits(rows), [hidden, cell], {"vf_preds": tf.reshape(self.values(rows), [-1])}

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for both parts of the LSTM's state."""
        return [np.zeros(self.cell_size, np.float32) for _ in range(2)]


class MobileV2PlusRNNModel(RecurrentNetwork):
    """Keras' MobileNetV2 without trained weights, an LSTM behind it.

    Args:
        obs_space: Images.
        action_space: Action space.
        num_outputs: Width of the outputs.
        model_config: The `model` section of the config.
        name: Name of the model.
        cnn_shape: Height, width and channels of the images.

    Source: Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks".
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        cnn_shape: Any,
    ) -> None:  # fmt: skip
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.cell_size, self.cnn_shape = 16, tuple(cnn_shape)
        images = tf.keras.layers.Input(self.cnn_shape)  # a shape alone has to be at least 32 x 32
        self.cnn_model = tf.keras.applications.MobileNetV2(input_tensor=images, weights=None)
        layers, classes = tf.keras.layers, 1000
        inputs = layers.Input((None, classes))
        hidden, cell = layers.Input((self.cell_size,)), layers.Input((self.cell_size,))
        lstm = layers.LSTM(self.cell_size, return_sequences=True, return_state=True)
        features, new_hidden, new_cell = lstm(inputs, initial_state=[hidden, cell])
        outputs = [layers.Dense(num_outputs)(features), layers.Dense(1)(features), new_hidden, new_cell]
        self.rnn_model = tf.keras.Model([inputs, hidden, cell], outputs)
        self._value_out: Tensor = None

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs of padded sequences of images `[B, T, height · width · channels]`, and the states after."""
        del seq_lens
        seen = self.cnn_model(tf.reshape(inputs, [-1, *self.cnn_shape]))
        by_time = tf.reshape(seen, [tf.shape(inputs)[0], tf.shape(inputs)[1], seen.shape[-1]])
        outputs, self._value_out, hidden, cell = self.rnn_model([by_time, *state])
        return outputs, [hidden, cell]

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for both parts of the LSTM's state."""
        return [np.zeros(self.cell_size, np.float32) for _ in range(2)]

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._value_out, [-1])
