"""Example models in TensorFlow that show one kind of layer: batch normalisation, a single weight, Python inside."""

from __future__ import annotations

import logging
from typing import Any, TypeAlias

import numpy as np

from rlframe.models.tf.fcnet import FullyConnectedNetwork
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any
_LOGGER = logging.getLogger("rlframe")


class KerasBatchNormModel(TFModelV2):
    """Two dense layers, each with batch normalisation: by the batch's statistics in training, by running ones else."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        layers = tf.keras.layers
        self._hidden = [layers.Dense(256, activation="tanh") for _ in range(2)]
        self._norms = [layers.BatchNormalization() for _ in range(2)]
        self._fc_out, self._vf_out = layers.Dense(num_outputs), layers.Dense(1)
        size = int(np.prod(obs_space.shape))
        for dense, norm in zip(self._hidden, self._norms, strict=True):
            dense.build((None, size))
            norm.build((None, 256))
            size = 256
        for head in (self._fc_out, self._vf_out):
            head.build((None, size))
        self._value_out: Tensor = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs `[B, num_outputs]`."""
        del seq_lens
        features = tf.cast(input_dict["obs_flat"], tf.float32)
        for dense, norm in zip(self._hidden, self._norms, strict=True):
            features = norm(dense(features), training=bool(input_dict["is_training"]))
        self._value_out = self._vf_out(features)
        return self._fc_out(features), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._value_out, [-1])


class BatchNormModel(KerasBatchNormModel):
    """The same model, by the name of RLlib's second one, which made its layers by name within `forward`."""

    #: Of programs that count what they have captured; not used here.
    capture_index = 0


class FastModel(TFModelV2):
    """One weight, which all outputs and values are: what a framework costs without a network."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.bias = self.add_weight("bias", np.zeros((), np.float32))
        self._output: Tensor = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the weight `[B, num_outputs]`, for observations of any kind."""
        del seq_lens
        self._output = self.bias + tf.zeros([tf.shape(input_dict["obs_flat"])[0], self.num_outputs])
        return self._output, state

    def value_function(self) -> Tensor:
        """Returns the weight `[B]`."""
        return tf.reduce_mean(self._output, axis=1)


class EagerModel(TFModelV2):
    """A dense network whose outputs pass through a Python function, which a traced step calls each time it runs."""

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
    ) -> None:
        super().__init__(observation_space, action_space, num_outputs, model_config, name)
        self.fcnet = FullyConnectedNetwork(observation_space, action_space, num_outputs, model_config, f"{name}_fc")

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the outputs that `forward_eager` makes of the network's."""
        outputs, _ = self.fcnet(input_dict, state, seq_lens)
        seen = tf.py_function(self.forward_eager, [outputs], tf.float32)
        seen.set_shape(outputs.shape)
        return seen, state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return self.fcnet.value_function()

    def forward_eager(self, feature_layer: Tensor) -> Tensor:
        """Returns what it is given, and logs its mean at the level DEBUG; gradients flow through it."""
        _LOGGER.debug("EagerModel: the mean of its outputs is %s", float(tf.reduce_mean(feature_layer)))
        return feature_layer
