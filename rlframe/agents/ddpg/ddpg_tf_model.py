"""DDPG's networks as one model, in TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlframe.agents.ddpg.ddpg_model import DDPGModelMethods
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.quiet_tf import tf


class DDPGTFModel(DDPGModelMethods, TFModelV2):
    """A deterministic actor and critics; programs override its methods, see `DDPGModelMethods`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Where the policy acts, a Box.
        num_outputs: Width of what `forward` gives.
        model_config: The `model` section of the config.
        name: Name of the model.
        actor_hiddens: Widths of the actor's hidden layers; None is [256, 256].
        actor_hidden_activation: Their activation.
        critic_hiddens: Widths of the critics' hidden layers; None is [256, 256].
        critic_hidden_activation: Their activation.
        twin_q: Whether there are two critics.
        add_layer_norm: Whether the actor's hidden layers are normalised, as parameter noise wants them.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
        actor_hiddens: Sequence[int] | None = None,
        actor_hidden_activation: str = "relu",
        critic_hiddens: Sequence[int] | None = None,
        critic_hidden_activation: str = "relu",
        twin_q: bool = False,
        add_layer_norm: bool = False,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # of the model behind, if any
        self.action_dim = size = math.prod(action_space.shape)
        bounds = self.bounds()
        self.bounded = bounds is not None
        features, actions = tf.keras.Input((num_outputs,)), tf.keras.Input((size,))
        hiddens = [256, 256] if actor_hiddens is None else actor_hiddens
        made = _chain(features, hiddens, actor_hidden_activation, size, layer_norm=add_layer_norm)
        if bounds is not None:
            low, high = bounds
            made = tf.keras.layers.Lambda(lambda x: low + (high - low) * tf.sigmoid(2.0 * x))(made)
        self.policy_model = tf.keras.Model(features, made)
        hiddens = [256, 256] if critic_hiddens is None else critic_hiddens

        def critic() -> Any:
            both = tf.keras.layers.Concatenate(axis=1)([features, actions])
            return tf.keras.Model([features, actions], _chain(both, hiddens, critic_hidden_activation, 1))

        self.q_model, self.twin_q_model = critic(), critic() if twin_q else None

    def _values(self, network: Any, model_out: Any, actions: Any) -> Any:
        return network([model_out, actions])


def _chain(x: Any, hiddens: Sequence[int], activation: str, outputs: int, *, layer_norm: bool = False) -> Any:
    for units in hiddens:
        x = tf.keras.layers.Dense(units, activation=activation)(x)
        if layer_norm:
            x = tf.keras.layers.LayerNormalization()(x)
    return tf.keras.layers.Dense(outputs)(x)


#: The model by a name that is the same in both frameworks.
DDPGModel = DDPGTFModel
