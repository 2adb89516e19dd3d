"""Two dependent choices in TensorFlow."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from rlframe.examples.models.autoregressive import TwoBits, check_two_bits
from rlframe.models.tf.tf_action_dist import Categorical, TFActionDistribution
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class AutoregressiveActionModel(TFModelV2):
    """Makes features of observations; its `action_model` makes logits of two bits of them, the second after the first.

    Raises:
        ValueError: If actions are not two bits.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        check_two_bits(type(self).__name__, action_space)
        layers = tf.keras.layers
        obs = layers.Input((int(np.prod(obs_space.shape)),))
        features = layers.Dense(num_outputs, activation="tanh")(obs)
        self.base_model = tf.keras.Model(obs, [features, layers.Dense(1)(features)])
        context, first = layers.Input((num_outputs,)), layers.Input((1,))
        hidden = layers.Dense(16, activation="tanh")(layers.Concatenate()([context, first]))
        self.action_model = tf.keras.Model([context, first], [layers.Dense(2)(context), layers.Dense(2)(hidden)])
        self._value_out: Tensor = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns features `[B, num_outputs]`."""
        del seq_lens
        features, self._value_out = self.base_model(tf.cast(input_dict["obs_flat"], tf.float32))
        return features, state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._value_out, [-1])


class BinaryAutoregressiveDistribution(TwoBits, TFActionDistribution):
    """`TwoBits` of a model with an `action_model([features, first bit])`, as `AutoregressiveActionModel` is one."""

    categorical = Categorical

    def _logits(self, first: Tensor | None) -> tuple[Tensor, Tensor]:
        known = tf.zeros_like(self.inputs[:, :1]) if first is None else tf.cast(first, tf.float32)[:, None]
        first_logits, second_logits = self.model.action_model([self.inputs, known])
        return first_logits, second_logits
