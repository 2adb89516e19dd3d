"""Example heads in PyTorch, to be put on other models as `model_interface`: Q-values of the features that they make."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.misc import SlimFC
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class TorchDuelingQModel(TorchModelV2):
    """Q(s, a) = V(s) + A(s, a) − mean_a' A(s, a') of another model's features (Wang et al. 2016, eq. 9)."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        nn.Module.__init__(self)  # type: ignore[arg-type]  # the model below is one
        super().__init__(obs_space, action_space, None, model_config, name)
        assert self.num_outputs is not None  # the model below has said it
        self.A, self.V = SlimFC(self.num_outputs, num_outputs), SlimFC(self.num_outputs, 1)

    def get_q_values(self, underlying_output: Tensor) -> Tensor:
        """Returns Q-values `[B, A]` of features `[B, D]`."""
        advantages: Tensor = self.A(underlying_output)
        values: Tensor = self.V(underlying_output)
        return values + advantages - advantages.mean(dim=1, keepdim=True)


class TorchContActionQModel(TorchModelV2):
    """The Q-value of another model's features and a continuous action, by a dense network of its own (`q_head`)."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        del num_outputs
        nn.Module.__init__(self)  # type: ignore[arg-type]
        super().__init__(obs_space, action_space, None, model_config, name)
        assert self.num_outputs is not None
        joined = Box(-1.0, 1.0, (self.num_outputs + action_space.shape[0],))
        self.q_head = FullyConnectedNetwork(joined, action_space, 1, model_config, "q_head")

    def get_single_q_value(self, underlying_output: Tensor, action: Tensor) -> Tensor:
        """Returns Q-values `[B, 1]` of features `[B, D]` and actions `[B, A]`."""
        q_values: Tensor = self.q_head({"obs": torch.cat([underlying_output, action], dim=-1)})[0]
        return q_values
