"""MADDPG's two networks in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rlframe.models.spec import Dense
from rlframe.models.tf.misc import activation_function, initial_rng, xavier_uniform
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


class MADDPGTFModel(TFModelV2):
    """An actor of the agent's own observations, and a critic of what it is shown.

    Weights have the names and layouts of `MADDPGTorchModel`.

    Args:
        obs_space: Preprocessed observation space of the agent.
        action_space: Its action space.
        num_outputs: Width A of the actor's outputs.
        model_config: The `model` section of the config.
        name: Name of the model.
        actor: Layers of the actor.
        critic: Layers of the critic.
        critic_inputs: Numbers that the critic sees.
    """

    #: The critic needs actions: it is no value function of observations.
    uses_value_function = False

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
        *,
        actor: Sequence[Dense],
        critic: Sequence[Dense],
        critic_inputs: int,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.actor_layers, self.critic_layers = tuple(actor), tuple(critic)
        self.add_layers(self.actor_layers, int(obs_space.shape[0]))
        self.add_layers(self.critic_layers, critic_inputs)

    def add_layers(self, layers: Sequence[Dense], width: int) -> None:
        """Makes the weights of a network: Xavier-uniform, biases 0."""
        for layer in layers:
            assert layer.units is not None
            self.add_weight(f"{layer.name}.weight", xavier_uniform(initial_rng(), (layer.units, width)))
            self.add_weight(f"{layer.name}.bias", np.zeros(layer.units, np.float32))
            width = layer.units

    def run_layers(self, layers: Sequence[Dense], x: Tensor, *, frozen: bool = False) -> Tensor:
        """Returns what a network makes of `x [B, D]`; `frozen` lets gradients pass, but not reach its weights."""
        for layer in layers:
            weight, bias = self.get_weight(f"{layer.name}.weight"), self.get_weight(f"{layer.name}.bias")
            if frozen:
                weight, bias = tf.stop_gradient(weight), tf.stop_gradient(bias)
            x = tf.nn.bias_add(tf.matmul(x, weight, transpose_b=True), bias)
            activation = activation_function(layer.activation)
            x = x if activation is None else activation(x)
        return x

    def features(self, obs: Tensor) -> Tensor:
        """Returns the actor's outputs [B, A] for observations [B, D]: logits, or numbers before tanh."""
        return self.run_layers(self.actor_layers, obs)

    def q_values(self, obs: Tensor, actions: Tensor, *, frozen: bool = False) -> Tensor:
        """Returns the critic's values [B] of joint observations [B, ΣD] and actions [B, ΣA]."""
        return self.run_layers(self.critic_layers, tf.concat([obs, actions], axis=1), frozen=frozen)[:, 0]

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the actor's outputs [B, A]."""
        del seq_lens
        return self.features(tf.cast(input_dict["obs_flat"], tf.float32)), state

    def actor_spec(self) -> dict[str, Any]:
        """Returns what a NumPy actor acts by."""
        return {"outputs": [layer.to_spec() for layer in self.actor_layers], "values": None, "shared": 0}
