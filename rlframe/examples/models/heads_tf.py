"""Example heads in TensorFlow, to be put on other models as `model_interface`: Q-values of the features they make."""

from __future__ import annotations

from typing import Any, TypeAlias

from gymnasium.spaces import Box

from rlframe.models.tf.fcnet import FullyConnectedNetwork
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class DuelingQModel(TFModelV2):
    """Q(s, a) = V(s) + A(s, a) − mean_a' A(s, a') of another model's features (Wang et al. 2016, eq. 9)."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, None, model_config, name)
        self.A, self.V = tf.keras.layers.Dense(num_outputs), tf.keras.layers.Dense(1)
        for head in (self.A, self.V):
            head.build((None, self.num_outputs))

    def get_q_values(self, underlying_output: Tensor) -> Tensor:
        """Returns Q-values `[B, A]` of features `[B, D]`."""
        advantages = self.A(underlying_output)
        return self.V(underlying_output) + advantages - tf.reduce_mean(advantages, axis=1, keepdims=True)


class ContActionQModel(TFModelV2):
    """The Q-value of another model's features and a continuous action, by a dense network of its own (`q_head`)."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        del num_outputs
        super().__init__(obs_space, action_space, None, model_config, name)
        assert self.num_outputs is not None  # the model below has said it
        joined = Box(-1.0, 1.0, (self.num_outputs + action_space.shape[0],))
        self.q_head = FullyConnectedNetwork(joined, action_space, 1, model_config, "q_head")

    def get_single_q_value(self, underlying_output: Tensor, action: Tensor) -> Tensor:
        """Returns Q-values `[B, 1]` of features `[B, D]` and actions `[B, A]`."""
        return self.q_head({"obs": tf.concat([underlying_output, tf.cast(action, tf.float32)], axis=-1)})[0]
