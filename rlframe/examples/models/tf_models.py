"""Example models in TensorFlow: memory, masks, parametric actions, central critics, a shared layer, views, lists."""

from __future__ import annotations

import functools
import math
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from rlframe.agents.dqn.dqn_tf_model import DQNTFModel
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.tf.fcnet import FullyConnectedNetwork
from rlframe.models.tf.recurrent_net import RecurrentNetwork
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.utils.missing_tf import MissingTensorFlow
from rlframe.utils.numpy import FLOAT_MIN
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any


def _masked(logits: Tensor, mask: Tensor) -> Tensor:
    """Returns logits, those of invalid actions as small as can be."""
    return logits + tf.maximum(tf.math.log(tf.cast(mask, tf.float32)), FLOAT_MIN)


class RNNModel(RecurrentNetwork):
    """Dense layers and an LSTM of Keras."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        hiddens_size: int = 256, cell_size: int = 64,
    ) -> None:  # fmt: skip
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.cell_size = cell_size
        layers = tf.keras.layers
        inputs = layers.Input((None, int(np.prod(obs_space.shape))))
        hidden, cell = layers.Input((cell_size,)), layers.Input((cell_size,))
        dense = layers.Dense(hiddens_size, activation="relu")(inputs)
        lstm = layers.LSTM(cell_size, return_sequences=True, return_state=True)
        features, new_hidden, new_cell = lstm(dense, initial_state=[hidden, cell])
        outputs, values = layers.Dense(num_outputs)(features), layers.Dense(1)(features)
        self.rnn_model = tf.keras.Model([inputs, hidden, cell], [outputs, values, new_hidden, new_cell])
        self._value_out: Tensor = None

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs of padded sequences, and the states at their ends."""
        outputs, self._value_out, hidden, cell = self.rnn_model([inputs, *state])
        return outputs, [hidden, cell]

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for both parts of the LSTM's state."""
        return [np.zeros(self.cell_size, np.float32) for _ in range(2)]

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._value_out, [-1])


class ActionMaskModel(TFModelV2):
    """A dense network for `Dict(action_mask=..., observations=...)`; the option `no_masking` leaves it out."""

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name, **kwargs)
        original = getattr(obs_space, "original_space", obs_space)
        self.internal_model = FullyConnectedNetwork(
            original["observations"], action_space, num_outputs, model_config, f"{name}_internal"
        )
        self.no_masking = bool(model_config["custom_model_config"].get("no_masking", False))

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns logits, those of invalid actions as small as can be."""
        logits, _ = self.internal_model({"obs": input_dict["obs"]["observations"]})
        return logits if self.no_masking else _masked(logits, input_dict["obs"]["action_mask"]), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return self.internal_model.value_function()


class ParametricActionsModel(DQNTFModel):
    """Scores each action that there is by what the observation says of it; for `ParametricActionsCartPole`.

    For PPO as for DQN: with `hiddens=[]` and `dueling=False` the scores are the Q-values.
    """

    uses_value_function = True

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        true_obs_shape: tuple[int, ...] = (4,), action_embed_size: int = 2, **kw: Any,
    ) -> None:  # fmt: skip
        super().__init__(obs_space, action_space, num_outputs, model_config, name, **{"q_hiddens": (), **kw})
        space = gymnasium.spaces.Box(-1.0, 1.0, true_obs_shape)
        self.action_embed_model = FullyConnectedNetwork(
            space, action_space, action_embed_size, {**model_config, "no_final_linear": False}, f"{name}_action_embed"
        )

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns scores [B, A], those of invalid actions as small as can be."""
        obs = input_dict["obs"]
        intent, _ = self.action_embed_model({"obs": obs["cart"]})
        scores = tf.reduce_sum(obs["avail_actions"] * intent[:, None], axis=2)
        return _masked(scores, obs["action_mask"]), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return self.action_embed_model.value_function()


class ParametricActionsModelThatLearnsEmbeddings(DQNTFModel):
    """Scores each action by a vector that it learns for it; for `ParametricActionsCartPoleNoEmbeddings`.

    Valid actions have an own vector each, all others one together. For PPO as for DQN, as `ParametricActionsModel`.
    """

    uses_value_function = True

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        true_obs_shape: tuple[int, ...] = (4,), action_embed_size: int = 2, **kw: Any,
    ) -> None:  # fmt: skip
        super().__init__(obs_space, action_space, num_outputs, model_config, name, **{"q_hiddens": (), **kw})
        space = gymnasium.spaces.Box(-1.0, 1.0, true_obs_shape)
        self.pred_action_embed_model = FullyConnectedNetwork(
            space, action_space, action_embed_size, {**model_config, "no_final_linear": False}, f"{name}_action_embed"
        )
        count = int(action_space.n)
        self.action_ids = tf.range(1, count + 1)
        self.action_embed_matrix = tf.keras.layers.Embedding(count + 1, action_embed_size)
        self.action_embed_matrix.build((None, count))

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns scores [B, A], those of invalid actions as small as can be."""
        del seq_lens
        obs = input_dict["obs"]
        mask = obs["valid_avail_actions_mask"]
        intent, _ = self.pred_action_embed_model({"obs": obs["cart"]})
        embedded = self.action_embed_matrix(self.action_ids * tf.cast(mask, tf.int32))
        return _masked(tf.reduce_sum(embedded * intent[:, None], axis=2), mask), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return self.pred_action_embed_model.value_function()


class CentralizedCriticModel(TFModelV2):
    """Acts on its own observation; `central_value_function` knows the opponent's, too."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.model = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, name)
        self.num_actions = int(action_space.n)
        size = 2 * int(np.prod(obs_space.shape)) + self.num_actions
        dense = [tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(1)]
        self.central_vf = tf.keras.Sequential([tf.keras.Input((size,)), *dense])

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the actor's outputs."""
        return self.model(input_dict, state, seq_lens)

    def central_value_function(self, obs: Tensor, opponent_obs: Tensor, opponent_actions: Tensor) -> Tensor:
        """Returns V [B] of both observations [B, D] and the opponent's actions [B]."""
        actions = tf.one_hot(tf.cast(opponent_actions, tf.int32), self.num_actions)
        return tf.reshape(self.central_vf(tf.concat([obs, opponent_obs, actions], axis=1)), [-1])

    def value_function(self) -> Tensor:
        """Returns the actor's own value of every row of the last forward pass; the central one is used instead."""
        return self.model.value_function()


class YetAnotherCentralizedCriticModel(TFModelV2):
    """Acts on `own_obs`, values the whole observation; observations are a Dict with `own_obs`."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        size = int(gymnasium.spaces.utils.flatdim(obs_space.original_space["own_obs"]))
        own = gymnasium.spaces.Box(0.0, 1.0, (size,))
        self.action_model = FullyConnectedNetwork(own, action_space, num_outputs, model_config, f"{name}_action")
        self.value_model = FullyConnectedNetwork(
            gymnasium.spaces.Box(-np.inf, np.inf, obs_space.shape), action_space, 1, model_config, f"{name}_vf"
        )
        self._value_out: Tensor = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the actor's outputs."""
        self._value_out, _ = self.value_model({"obs": input_dict["obs_flat"]}, state, seq_lens)
        return self.action_model({"obs": tf.cast(input_dict["obs"]["own_obs"], tf.float32)}, state, seq_lens)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._value_out, [-1])


@functools.cache
def shared_layer() -> Any:
    """Returns the layer that all `TF2SharedWeightsModel`s of a process have in their middle."""
    return tf.keras.layers.Dense(64, activation="relu")


def __getattr__(name: str) -> Any:
    """Returns the shared layer by RLlib's name: made when it is first asked for; None without TensorFlow."""
    if name == "TF2_GLOBAL_SHARED_LAYER":
        return None if isinstance(tf, MissingTensorFlow) else shared_layer()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TF2SharedWeightsModel(TFModelV2):
    """Three dense layers, of which the second is that of all such models in the process: each one's steps move it."""

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
    ) -> None:
        super().__init__(observation_space, action_space, num_outputs, model_config, name)
        layers = tf.keras.layers
        inputs = layers.Input((int(np.prod(observation_space.shape)),))
        features = shared_layer()(layers.Dense(64, activation="relu")(inputs))
        self.base_model = tf.keras.Model(inputs, [layers.Dense(num_outputs)(features), layers.Dense(1)(features)])
        self._value_out: Tensor = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the outputs."""
        del seq_lens
        outputs, self._value_out = self.base_model(tf.cast(input_dict["obs_flat"], tf.float32))
        return outputs, state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._value_out, [-1])


class FrameStackingCartPoleModel(TFModelV2):
    """Acts on the last observations, actions and rewards."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        num_frames: int = 3,
    ) -> None:  # fmt: skip
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_frames, self.num_actions = num_frames, int(action_space.n)
        layers = tf.keras.layers
        inputs = layers.Input((num_frames * (obs_space.shape[0] + self.num_actions + 1),))
        features = layers.Dense(256, activation="relu")(inputs)
        outputs = layers.Dense(num_outputs)(layers.Dense(256, activation="relu")(features))
        self.base_model = tf.keras.Model(inputs, [outputs, layers.Dense(1)(features)])
        self._last_value: Tensor = None
        past = f"-{num_frames}:-1"
        self.view_requirements["prev_n_obs"] = ViewRequirement("obs", shift=f"-{num_frames - 1}:0", space=obs_space)
        self.view_requirements["prev_n_rewards"] = ViewRequirement("rewards", shift=past)
        self.view_requirements["prev_n_actions"] = ViewRequirement("actions", shift=past, space=action_space)

    def forward(self, input_dict: Any, states: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs [B, num_outputs]."""
        del seq_lens
        actions = tf.one_hot(tf.cast(input_dict["prev_n_actions"], tf.int32), self.num_actions)
        parts = [input_dict["prev_n_obs"], actions, input_dict["prev_n_rewards"]]
        flat = [tf.reshape(tf.cast(part, tf.float32), [tf.shape(part)[0], math.prod(part.shape[1:])]) for part in parts]
        outputs, self._last_value = self.base_model(tf.concat(flat, axis=1))
        return outputs, states

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return tf.reshape(self._last_value, [-1])


class CustomTFRPGModel(TFModelV2):
    """A dense network for `Repeated` spaces: `obs` are `RepeatedValues`, whose lengths and items its comments name."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.model = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, f"{name}_fc")

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the outputs of what all lists are as rows."""
        # input_dict["obs"].values: leaves [B, M, ...] with M = max_len; those of lists within lists are [B, M, N, ...].
        # input_dict["obs"].lengths: [B]. unbatch_repeat_dim() is a list of M structures [B, ...]; unbatch_all(), lists
        # of items as the environment gave them, needs concrete values: no traced step has these.
        return self.model({"obs": input_dict["obs_flat"]}, state, seq_lens)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        return self.model.value_function()
