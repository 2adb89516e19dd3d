"""QMIX's networks in PyTorch: the agents' recurrent network, the mixers, and the model that holds both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rlframe.agents.qmix.group_layout import GroupLayout
from rlframe.data.columns import OBS
from rlframe.models.catalog import ModelCatalog
from rlframe.models.torch.recurrent_net import RecurrentNetwork
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils.errors import ConfigError
from rlframe.utils.numpy import FLOAT_MIN

# --- mixers -------------------------------------------------------------------------------------------------------


class VDNMixer(nn.Module):
    """The value of all agents is the sum of theirs.

    Source: Sunehag et al. 2018, "Value-Decomposition Networks For Cooperative Multi-Agent Learning", section 3.
    """

    def forward(self, agent_qs: Tensor, batch: Any = None) -> Tensor:
        """Returns the values of all agents together.

        Args:
            agent_qs: Values of the agents' actions. Float `[..., N]`.
            batch: Not needed; where `QMixer` takes states.

        Returns:
            Float `[..., 1]`.
        """
        del batch
        return agent_qs.sum(dim=-1, keepdim=True)


class QMixer(nn.Module):
    """The value of all agents grows with each of theirs; how much, the state says.

        Q_tot = elu(q |W_1(s)| + b_1(s)) · |w_2(s)| + V(s)

    W_1, b_1 and w_2 are linear in the state, V has one hidden layer with relu. The absolute values make
    ∂Q_tot/∂q_i ≥ 0, so that agents which choose for themselves choose what is best for all.

    Args:
        n_agents: N.
        state_shape: Shape of the state, whose numbers are Ds.
        mixing_embed_dim: Width of the hidden layer, E.

    Source: Rashid et al. 2018, "QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement
    Learning", section 4 and figure 2.
    """

    def __init__(self, n_agents: int, state_shape: Any, mixing_embed_dim: int) -> None:
        super().__init__()
        self.n_agents, self.embed_dim = n_agents, mixing_embed_dim
        self.state_dim = int(np.prod(state_shape))
        self.hidden_weights = nn.Linear(self.state_dim, n_agents * mixing_embed_dim)
        self.hidden_bias = nn.Linear(self.state_dim, mixing_embed_dim)
        self.final_weights = nn.Linear(self.state_dim, mixing_embed_dim)
        self.state_value = nn.Sequential(
            nn.Linear(self.state_dim, mixing_embed_dim), nn.ReLU(), nn.Linear(mixing_embed_dim, 1)
        )

    def forward(self, agent_qs: Tensor, states: Tensor) -> Tensor:
        """Returns the values of all agents together.

        Args:
            agent_qs: Values of the agents' actions. Float `[..., N]`.
            states: States of the environment. Float `[..., Ds]`.

        Returns:
            Float `[..., 1]`.
        """
        states = states.reshape(*agent_qs.shape[:-1], self.state_dim)
        first = self.hidden_weights(states).abs().unflatten(-1, (self.n_agents, self.embed_dim))
        hidden = functional.elu((agent_qs.unsqueeze(-1) * first).sum(dim=-2) + self.hidden_bias(states))
        weighted = (hidden * self.final_weights(states).abs()).sum(dim=-1, keepdim=True)
        mixed: Tensor = weighted + self.state_value(states)
        return mixed


def make_mixer(name: str | None, n_agents: int, state_size: int, embed_dim: int) -> nn.Module | None:
    """Returns the mixer that the config names: "qmix", "vdn", or None, with which each agent learns for itself."""
    if name is None:
        return None
    return VDNMixer() if name == "vdn" else QMixer(n_agents, state_size, embed_dim)


# --- agents -------------------------------------------------------------------------------------------------------


class GRU(nn.Module):
    """One layer of GRU cells; `weight_ih [3S, in]`, `weight_hh [3S, S]` and biases `[3S]`, drawn from ±1/√S.

    Gates lie in the order reset, update, new.
    """

    def __init__(self, in_size: int, cell_size: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(cell_size)
        self.weight_ih = nn.Parameter(torch.empty(3 * cell_size, in_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(3 * cell_size, cell_size).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty(3 * cell_size).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty(3 * cell_size).uniform_(-bound, bound))

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Returns outputs [B, T, S] and the state after the last step [B, S], of `x` [B, T, in]."""
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        outputs, last = torch.gru(x, state.unsqueeze(0), weights, True, 1, 0.0, self.training, False, True)
        return outputs, last.squeeze(0)


class QMixAgentNetwork(RecurrentNetwork, nn.Module):
    """The default network of an agent: a dense layer with relu, a GRU, and a dense layer for its actions' values.

    Args:
        obs_space: Preprocessed space of one agent's observations.
        action_space: One agent's actions.
        num_outputs: A.
        model_config: Key `lstm_cell_size`, the width of both hidden layers.
        name: Name of the model.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str | None
    ) -> None:
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.size = int(model_config["lstm_cell_size"])
        self.time_major = False
        self.inputs = nn.Linear(int(np.prod(obs_space.shape)), self.size)
        self.gru = GRU(self.size, self.size)
        self.outputs = nn.Linear(self.size, num_outputs)

    def get_initial_state(self) -> list[Any]:
        """Returns zeros, float32 `[S]`."""
        return [np.zeros(self.size, np.float32)]

    def forward_rnn(self, inputs: Tensor, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns values [B, T, A] and the states behind the last step, of observations [B, T, Do]."""
        del seq_lens
        hidden, last = self.gru(functional.relu(self.inputs(inputs)), state[0])
        return self.outputs(hidden), [last]


class QMixTorchModel(TorchModelV2, nn.Module):
    """The network that all agents of a group share, and the mixer of their values.

    Args:
        obs_space: Preprocessed observation space of the group.
        action_space: Tuple of the agents' actions.
        num_outputs: N · A.
        model_config: The config's `model`: the agents' network is `custom_model`, or `QMixAgentNetwork`.
        name: Name of the model.
        layout: The parts of observations.
        mixer: "qmix", "vdn" or None.
        mixing_embed_dim: Width of QMIX's mixing network.

    Raises:
        ConfigError: If the agents' network sees more than observations and states.
    """

    def __init__(  # noqa: PLR0913 - what models have, and what a group's has beside
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str | None = None,
        *,
        layout: GroupLayout,
        mixer: str | None,
        mixing_embed_dim: int,
    ) -> None:
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layout = layout
        has_memory = model_config["use_lstm"] or model_config["use_attention"]  # behind the usual network
        self.agent = ModelCatalog.get_model_v2(
            layout.agent_obs_space,
            layout.agent_action_space,
            layout.n_actions,
            model_config,
            framework="torch",
            name="agent",
            default_model=None if has_memory else QMixAgentNetwork,
        )
        past = [key for key in self.agent.view_requirements if key != OBS and not key.startswith("state_")]
        if past:
            raise ConfigError(
                f"model: QMIX's agents act on their observations and states; got a network that wants {past[0]!r} (an "
                "environment wrapper can put it into the observations)"
            )
        self.mixer = make_mixer(mixer, layout.n_agents, layout.state_size, mixing_embed_dim)

    def get_initial_state(self) -> list[Any]:
        """Returns the agents' states at the start of an episode, `[N, ...]` each."""
        states = [np.asarray(state) for state in self.agent.get_initial_state()]
        return [np.repeat(state[None], self.layout.n_agents, axis=0) for state in states]

    def agent_values(self, obs: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the values of all agents' actions, step by step.

        Args:
            obs: Flat observations of S sequences of T steps. Float `[S, T, D]`.
            states: The agents' states before the first step, `[S, N, ...]` each.

        Returns:
            Values, float `[S, T, N, A]`, and the states behind the last step, `[S, N, ...]` each.
        """
        sequences, steps = obs.shape[:2]
        agents = self.layout.n_agents
        rows = self.layout.observations(obs).transpose(1, 2)  # [S, N, T, Do]: each agent's steps are a sequence
        shape = (sequences * agents * steps, *(self.layout.agent_obs_space.shape or ()))
        lens = torch.full((sequences * agents,), steps, dtype=torch.int32, device=obs.device)
        flat_states = [state.reshape(sequences * agents, *state.shape[2:]) for state in states]
        inputs = {OBS: rows.reshape(shape), "is_training": self.training}
        values, after = self.agent(inputs, flat_states, lens)
        by_agent = values.reshape(sequences, agents, steps, -1).transpose(1, 2)
        return by_agent, [state.reshape(sequences, agents, *state.shape[1:]) for state in after]

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns values, float `[S · T, N · A]`, FLOAT_MIN for invalid actions, and the states behind the last step.

        Args:
            input_dict: `obs_flat`, float `[S · T, D]`.
            state: The agents' states before the first step, `[S, N, ...]` each.
            seq_lens: Lengths of the sequences, integer `[S]`; None for sequences of one step.
        """
        flat = input_dict["obs_flat"].float()
        sequences = len(flat) if seq_lens is None else len(seq_lens)
        values, after = self.agent_values(flat.reshape(sequences, -1, flat.shape[1]), state)
        valid = self.layout.valid_actions(flat)
        values = values.reshape(len(flat), self.layout.n_agents, -1)
        if valid is not None:
            values = values.masked_fill(~valid, FLOAT_MIN)
        return values.reshape(len(flat), -1), after

    def mix(self, agent_qs: Tensor, obs: Tensor) -> Tensor:
        """Returns the agents' values `[..., N]` mixed to `[..., 1]`, or as they are without a mixer.

        Args:
            agent_qs: Values of the agents' actions. Float `[..., N]`.
            obs: Flat observations, in which the state is. Float `[..., D]`.
        """
        return agent_qs if self.mixer is None else self.mixer(agent_qs, self.layout.states(obs))

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec for `QMixActor`; None for a network of the user's own."""
        return {"name": "agent", **self.layout.to_spec()} if type(self.agent) is QMixAgentNetwork else None


__all__ = ["GRU", "QMixAgentNetwork", "QMixTorchModel", "QMixer", "VDNMixer", "make_mixer"]
