"""DDPG's networks as one model, in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rlframe.agents.ddpg.ddpg_model import DDPGModelMethods
from rlframe.models.torch.misc import SlimFC
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class _Squash(nn.Module):
    """Maps numbers onto (low, high) by tanh."""

    low: Tensor
    high: Tensor

    def __init__(self, low: Any, high: Any) -> None:
        super().__init__()
        self.register_buffer("low", torch.as_tensor(low))
        self.register_buffer("high", torch.as_tensor(high))

    def forward(self, x: Tensor) -> Tensor:
        """Returns actions `[B, A]` of numbers `[B, A]`."""
        return self.low + (self.high - self.low) * torch.sigmoid(2.0 * x)


class DDPGTorchModel(DDPGModelMethods, TorchModelV2, nn.Module):
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
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)  # of the model behind, if any
        self.action_dim = size = int(torch.Size(action_space.shape).numel())
        bounds = self.bounds()
        self.bounded = bounds is not None
        hiddens = [256, 256] if actor_hiddens is None else actor_hiddens
        actor = _chain(num_outputs, hiddens, actor_hidden_activation, size, layer_norm=add_layer_norm)
        self.policy_model = nn.Sequential(*actor, *([_Squash(*bounds)] if bounds else []))
        hiddens = [256, 256] if critic_hiddens is None else critic_hiddens

        def critic() -> nn.Module:
            return nn.Sequential(*_chain(num_outputs + size, hiddens, critic_hidden_activation, 1))

        self.q_model, self.twin_q_model = critic(), critic() if twin_q else None

    def _values(self, network: Any, model_out: Tensor, actions: Tensor) -> Tensor:
        values: Tensor = network(torch.cat([model_out, actions], -1))
        return values


def _chain(
    size: int, hiddens: Sequence[int], activation: str, outputs: int, *, layer_norm: bool = False
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for units in hiddens:
        layers.append(SlimFC(size, units, activation_fn=activation))
        if layer_norm:
            layers.append(nn.LayerNorm(units))
        size = units
    return [*layers, SlimFC(size, outputs)]


#: The model by a name that is the same in both frameworks.
DDPGModel = DDPGTorchModel
