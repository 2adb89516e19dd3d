"""Example models in PyTorch: memory, masks, parametric actions, central critics, a shared layer, views, lists."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from rlframe.agents.dqn.dqn_torch_model import DQNTorchModel
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.misc import SlimFC
from rlframe.models.torch.recurrent_net import RecurrentNetwork
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils.numpy import FLOAT_MIN


class TorchRNNModel(RecurrentNetwork, nn.Module):
    """A dense layer and an LSTM."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        fc_size: int = 64, lstm_state_size: int = 256,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.fc_size, self.lstm_state_size = fc_size, lstm_state_size
        self.fc1 = nn.Linear(int(np.prod(obs_space.shape)), fc_size)
        self.lstm = nn.LSTM(fc_size, lstm_state_size, batch_first=True)
        self.action_branch = nn.Linear(lstm_state_size, num_outputs)
        self.value_branch = nn.Linear(lstm_state_size, 1)
        self._features: Tensor | None = None

    def get_initial_state(self) -> list[Any]:
        """Returns zeros for both parts of the LSTM's state."""
        return [np.zeros(self.lstm_state_size, np.float32) for _ in range(2)]

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        assert self._features is not None
        values: Tensor = self.value_branch(self._features).reshape(-1)
        return values

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs of padded sequences, and the states at their ends."""
        del seq_lens
        hidden, cell = (part.unsqueeze(0) for part in state)
        self._features, (hidden, cell) = self.lstm(torch.relu(self.fc1(inputs)), (hidden, cell))
        return self.action_branch(self._features), [hidden.squeeze(0), cell.squeeze(0)]


class TorchActionMaskModel(TorchModelV2, nn.Module):
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
        original = getattr(obs_space, "original_space", obs_space)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs)
        nn.Module.__init__(self)
        self.internal_model = FullyConnectedNetwork(
            original["observations"], action_space, num_outputs, model_config, f"{name}_internal"
        )
        self.no_masking = bool(model_config["custom_model_config"].get("no_masking", False))

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns logits, those of invalid actions as small as can be."""
        del seq_lens
        logits, _ = self.internal_model({"obs": input_dict["obs"]["observations"]})
        mask = input_dict["obs"]["action_mask"]
        return logits if self.no_masking else logits + torch.log(mask).clamp(min=FLOAT_MIN), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        values: Tensor = self.internal_model.value_function()
        return values


class TorchParametricActionsModel(DQNTorchModel):
    """Scores each action that there is by what the observation says of it; for `ParametricActionsCartPole`.

    For PPO as for DQN: with `hiddens=[]` and `dueling=False` the scores are the Q-values.
    """

    uses_value_function = True

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        true_obs_shape: tuple[int, ...] = (4,), action_embed_size: int = 2, **kw: Any,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        DQNTorchModel.__init__(
            self, obs_space, action_space, num_outputs, model_config, name, **{"q_hiddens": (), **kw}
        )
        space = gymnasium.spaces.Box(-1.0, 1.0, true_obs_shape)
        self.action_embed_model = FullyConnectedNetwork(
            space, action_space, action_embed_size, {**model_config, "no_final_linear": False}, f"{name}_action_embed"
        )

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns scores [B, A], those of invalid actions as small as can be."""
        del seq_lens
        obs = input_dict["obs"]
        intent, _ = self.action_embed_model({"obs": obs["cart"]})
        scores = (obs["avail_actions"] * intent.unsqueeze(1)).sum(dim=2)
        return scores + torch.log(obs["action_mask"]).clamp(min=FLOAT_MIN), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        values: Tensor = self.action_embed_model.value_function()
        return values


class TorchCentralizedCriticModel(TorchModelV2, nn.Module):
    """Acts on its own observation; `central_value_function` knows the opponent's, too. For `TwoStepGame`-like games."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.model = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, name)
        self.num_actions = int(action_space.n)
        size = 2 * int(np.prod(obs_space.shape)) + self.num_actions
        self.central_vf = nn.Sequential(SlimFC(size, 16, activation_fn="tanh"), SlimFC(16, 1))

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the actor's outputs."""
        return self.model(input_dict, state, seq_lens)

    def central_value_function(self, obs: Tensor, opponent_obs: Tensor, opponent_actions: Tensor) -> Tensor:
        """Returns V [B] of both observations [B, D] and the opponent's actions [B]."""
        actions = nn.functional.one_hot(opponent_actions.long(), self.num_actions).float()
        values: Tensor = self.central_vf(torch.cat([obs, opponent_obs, actions], dim=1)).reshape(-1)
        return values

    def value_function(self) -> Tensor:
        """Returns the actor's own value of every row of the last forward pass; the central one is used instead."""
        values: Tensor = self.model.value_function()
        return values


class YetAnotherTorchCentralizedCriticModel(TorchModelV2, nn.Module):
    """Acts on `own_obs`, values the whole observation; observations are a Dict with `own_obs`."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.own = obs_space.original_space["own_obs"]
        size = int(gymnasium.spaces.utils.flatdim(self.own))
        own = gymnasium.spaces.Box(0.0, 1.0, (size,))
        self.action_model = FullyConnectedNetwork(own, action_space, num_outputs, model_config, f"{name}_action")
        self.value_model = FullyConnectedNetwork(
            gymnasium.spaces.Box(-np.inf, np.inf, obs_space.shape), action_space, 1, model_config, f"{name}_vf"
        )
        self._values: Tensor | None = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the actor's outputs."""
        self._values, _ = self.value_model({"obs": input_dict["obs_flat"]}, state, seq_lens)
        own = input_dict["obs"]["own_obs"].float()
        return self.action_model({"obs": own}, state, seq_lens)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        assert self._values is not None
        return self._values.reshape(-1)


@functools.cache
def shared_layer() -> SlimFC:
    """Returns the layer that all `TorchSharedWeightsModel`s of a process have in their middle."""
    return SlimFC(64, 64, activation_fn=nn.ReLU, initializer=nn.init.xavier_uniform_)


def __getattr__(name: str) -> Any:
    """Returns the shared layer by RLlib's name: it draws its weights when it is first asked for, not by an import."""
    if name == "TORCH_GLOBAL_SHARED_LAYER":
        return shared_layer()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TorchSharedWeightsModel(TorchModelV2, nn.Module):
    """Three dense layers, of which the second is that of all such models in the process: each one's steps move it."""

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
    ) -> None:
        TorchModelV2.__init__(self, observation_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.first_layer = SlimFC(int(np.prod(observation_space.shape)), 64, activation_fn=nn.ReLU)
        self.shared = shared_layer()
        self.last_layer, self.vf = SlimFC(64, num_outputs), SlimFC(64, 1)
        self._features: Tensor | None = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the outputs."""
        del seq_lens
        self._features = self.shared(self.first_layer(input_dict["obs_flat"].float()))
        return self.last_layer(self._features), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        values: Tensor = self.vf(self._features).reshape(-1)
        return values


class TorchFrameStackingCartPoleModel(TorchModelV2, nn.Module):
    """Acts on the last observations, actions and rewards."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        num_frames: int = 3,
    ) -> None:  # fmt: skip
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_frames, self.num_actions = num_frames, int(action_space.n)
        size = num_frames * (obs_space.shape[0] + self.num_actions + 1)
        self.layer1, self.layer2 = SlimFC(size, 256, activation_fn="relu"), SlimFC(256, 256, activation_fn="relu")
        self.out, self.values = SlimFC(256, num_outputs), SlimFC(256, 1)
        self._last_value: Tensor | None = None
        past = f"-{num_frames}:-1"
        self.view_requirements["prev_n_obs"] = ViewRequirement("obs", shift=f"-{num_frames - 1}:0", space=obs_space)
        self.view_requirements["prev_n_rewards"] = ViewRequirement("rewards", shift=past)
        self.view_requirements["prev_n_actions"] = ViewRequirement("actions", shift=past, space=action_space)

    def forward(self, input_dict: Any, states: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs [B, num_outputs]."""
        del seq_lens
        actions = nn.functional.one_hot(input_dict["prev_n_actions"].long(), self.num_actions).float()
        parts = [input_dict["prev_n_obs"].float(), actions, input_dict["prev_n_rewards"].float()]
        features = self.layer1(torch.cat([part.flatten(1) for part in parts], dim=1))
        self._last_value = self.values(features)
        return self.out(self.layer2(features)), states

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        assert self._last_value is not None
        return self._last_value.reshape(-1)


class CustomTorchRPGModel(TorchModelV2, nn.Module):
    """A dense network for `Repeated` spaces: `obs` are `RepeatedValues`, whose lengths and items its comments name."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.model = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, f"{name}_fc")

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the outputs of what all lists are as rows."""
        # input_dict["obs"].values: leaves [B, M, ...] with M = max_len; those of lists within lists are [B, M, N, ...].
        # input_dict["obs"].lengths: [B]. unbatch_repeat_dim() is a list of M structures [B, ...], unbatch_all() lists
        # of items as the environment gave them.
        return self.model({"obs": input_dict["obs_flat"]}, state, seq_lens)

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        values: Tensor = self.model.value_function()
        return values
