"""MADDPG's two networks in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlframe.models.spec import Dense
from rlframe.models.torch.misc import activation_function, undrawn_linear
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class MADDPGTorchModel(TorchModelV2, nn.Module):
    """An actor of the agent's own observations, and a critic of what it is shown.

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
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        self.actor_layers, self.critic_layers = tuple(actor), tuple(critic)
        self.add_layers(self.actor_layers, int(obs_space.shape[0]))
        self.add_layers(self.critic_layers, critic_inputs)

    def add_layers(self, layers: Sequence[Dense], width: int) -> None:
        """Makes the weights of a network: Xavier-uniform, biases 0."""
        for layer in layers:
            assert layer.units is not None
            linear = undrawn_linear(width, layer.units)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
            self.add_module(layer.name, linear)
            width = layer.units

    def run_layers(self, layers: Sequence[Dense], x: Tensor, *, frozen: bool = False) -> Tensor:
        """Returns what a network makes of `x [B, D]`; `frozen` lets gradients pass, but not reach its weights."""
        for layer in layers:
            linear: Any = self._modules[layer.name]
            weight, bias = (linear.weight.detach(), linear.bias.detach()) if frozen else (linear.weight, linear.bias)
            x = functional.linear(x, weight, bias)
            activation = activation_function(layer.activation)
            x = x if activation is None else activation(x)
        return x

    def features(self, obs: Tensor) -> Tensor:
        """Returns the actor's outputs [B, A] for observations [B, D]: logits, or numbers before tanh."""
        return self.run_layers(self.actor_layers, obs)

    def q_values(self, obs: Tensor, actions: Tensor, *, frozen: bool = False) -> Tensor:
        """Returns the critic's values [B] of joint observations [B, ΣD] and actions [B, ΣA]."""
        return self.run_layers(self.critic_layers, torch.cat([obs, actions], dim=1), frozen=frozen)[:, 0]

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the actor's outputs [B, A]."""
        del seq_lens
        return self.features(input_dict["obs_flat"].float()), state

    def actor_spec(self) -> dict[str, Any]:
        """Returns what a NumPy actor acts by."""
        return {"outputs": [layer.to_spec() for layer in self.actor_layers], "values": None, "shared": 0}
