"""QMIX's mixers as RLlib has them, modules of PyTorch; the policy mixes by `rlframe.agents.qmix.qmix_policy`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from rlframe.agents.qmix.qmix_policy import mixed_value, mixing_networks
from rlframe.models.torch.networks import TorchNetwork


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
