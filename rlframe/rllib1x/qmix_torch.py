"""QMIX's parts as RLlib has them, for policies that are copies of its own: mixers, an agent's network, its unrolling.

The built-in policy's are in `rlframe.agents.qmix.qmix_policy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlframe.agents.qmix.qmix_policy import mixed_value, mixing_networks
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.torch.networks import TorchNetwork
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class VDNMixer(nn.Module):
    """The value of all agents is the sum of theirs.

    Source: Sunehag et al. 2018, "Value-Decomposition Networks For Cooperative Multi-Agent Learning", section 3.
    """

    def forward(self, agent_qs: Tensor, batch: Any = None) -> Tensor:
        """Returns the agents' values `[..., N]` summed, `[..., 1]`; `batch` stands where `QMixer` takes states."""
        del batch
        return agent_qs.sum(dim=-1, keepdim=True)


class QMixer(nn.Module):
    """The mixing network of `mixed_value`.

    Args:
        n_agents: N.
        state_shape: Shape of the state, whose numbers are Ds.
        mixing_embed_dim: Width of the hidden layer.
    """

    def __init__(self, n_agents: int, state_shape: Any, mixing_embed_dim: int) -> None:
        super().__init__()
        self.n_agents, self.embed_dim, self.state_dim = n_agents, mixing_embed_dim, int(np.prod(state_shape))
        for name, spec in mixing_networks(n_agents, self.state_dim, mixing_embed_dim).items():
            self.add_module(name, TorchNetwork(spec))

    def forward(self, agent_qs: Tensor, states: Tensor) -> Tensor:
        """Returns the value of all, float `[..., 1]`, of the agents' values `[..., N]` in states `[..., Ds]`."""
        rows = agent_qs.reshape(-1, self.n_agents)
        mixed: Tensor = mixed_value(self, rows, states.reshape(-1, self.state_dim))
        return mixed.reshape(*agent_qs.shape[:-1], 1)


class RNNModel(TorchModelV2, nn.Module):
    """Q-values of one agent from what it has seen so far: a dense layer, a GRU cell, a dense layer.

    Args:
        obs_space: Space of one agent's observations.
        action_space: Space of its actions.
        num_outputs: How many these are.
        model_config: With `lstm_cell_size`, the width of both layers, and `n_agents`, N.
        name: The model's name.
    """

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.obs_size, self.n_agents = observation_size(obs_space), int(model_config["n_agents"])
        self.rnn_hidden_dim = int(model_config["lstm_cell_size"])
        self.fc1 = nn.Linear(self.obs_size, self.rnn_hidden_dim)
        self.rnn = nn.GRUCell(self.rnn_hidden_dim, self.rnn_hidden_dim)
        self.fc2 = nn.Linear(self.rnn_hidden_dim, num_outputs)

    def get_initial_state(self) -> list[Any]:
        """Returns zeros `[N, S]`; `[S]` of an agent that is alone."""
        return [self.fc1.weight.new_zeros(self.n_agents, self.rnn_hidden_dim).squeeze(0)]

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Tensor]]:
        """Returns Q-values `[B · N, A]` and the state behind them, of one step of all agents."""
        del seq_lens
        seen = torch.relu(self.fc1(input_dict["obs_flat"].float()))
        hidden = self.rnn(seen, state[0].reshape(-1, self.rnn_hidden_dim))
        return self.fc2(hidden), [hidden]


def observation_size(obs_space: Any) -> int:
    """Returns how many numbers an observation has when it is flat; RLlib's `_get_size`."""
    return int(get_preprocessor(obs_space)(obs_space).size)


def check_spaces_of_a_team(obs_space: Any, action_space: Any) -> None:
    """Checks that spaces are those of a group of like agents with discrete actions; RLlib's `_validate`.

    Raises:
        ValueError: If they are not.
    """
    original = getattr(obs_space, "original_space", None)
    for name, space in (("observation", original), ("action", action_space)):
        members = getattr(space, "spaces", None)
        if not isinstance(members, (tuple, list)) or not members:
            raise ValueError(
                f"Got {name} space {space}, wanted a Tuple, one of the agents each: group them by "
                "MultiAgentEnv.with_agent_groups()."
            )
        if len({str(member) for member in members}) > 1:
            raise ValueError(f"Got {name} spaces {members}, wanted the same of all agents of a group.")
    if not isinstance(action_space.spaces[0], spaces.Discrete):
        raise ValueError(f"Got action space {action_space.spaces[0]}, wanted a Discrete one.")


def values_of_step(model: Any, obs: Tensor, h: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Returns Q-values `[B, N, A]` and states `[B, N, S]` of one step; RLlib's `_mac`.

    Args:
        model: The network of one agent.
        obs: Observations `[B, N, D]`, or a dict of such.
        h: States `[B, N, S]`.
    """
    columns = obs if isinstance(obs, dict) else {"obs": obs}
    agents = next(iter(columns.values())).shape[1]
    flat = {name: without_agents_axis(column) for name, column in columns.items()}
    values, states = model(flat, [without_agents_axis(state) for state in h], None)
    return with_agents_axis(values, agents), [with_agents_axis(state, agents) for state in states]


def values_of_trajectories(model: Any, obs_tensor: Tensor) -> Tensor:
    """Returns Q-values `[B, T, N, A]` of whole trajectories `[B, T, N, D]`; RLlib's `_unroll_mac`."""
    rows, steps, agents = obs_tensor.shape[:3]
    states = [state.expand(rows, agents, -1) for state in model.get_initial_state()]
    made = []
    for step in range(steps):
        values, states = values_of_step(model, obs_tensor[:, step], states)
        made.append(values)
    return torch.stack(made, 1)


def without_agents_axis(tensor: Tensor) -> Tensor:
    """Returns `[B, N, ...]` as `[B · N, ...]`; RLlib's `_drop_agent_dim`."""
    return tensor.reshape(-1, *tensor.shape[2:])


def with_agents_axis(tensor: Tensor, n_agents: int) -> Tensor:
    """Returns `[B · N, ...]` as `[B, N, ...]`; RLlib's `_add_agent_dim`."""
    return tensor.reshape(-1, n_agents, *tensor.shape[1:])
