"""Two dependent choices in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlframe.examples.models.autoregressive import TwoBits, check_two_bits
from rlframe.models.torch.torch_action_dist import TorchCategorical, TorchDistributionWrapper
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class _ActionModule(nn.Module):
    """Logits of a first bit, and of a second one with the first known."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.a1_logits = nn.Linear(features, 2)
        self.a2_hidden, self.a2_logits = nn.Linear(features + 1, 16), nn.Linear(16, 2)

    def forward(self, ctx_input: Tensor, a1_input: Tensor) -> tuple[Tensor, Tensor]:
        """Returns both logits `[B, 2]` of features `[B, D]` and first bits, float `[B, 1]`."""
        seen = torch.tanh(self.a2_hidden(torch.cat([ctx_input, a1_input], dim=1)))
        return self.a1_logits(ctx_input), self.a2_logits(seen)


class TorchAutoregressiveActionModel(TorchModelV2, nn.Module):
    """Makes features of observations; its `action_module` makes logits of two bits of them, the second after the first.

    Raises:
        ValueError: If actions are not two bits.
    """

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        check_two_bits(type(self).__name__, action_space)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.context_layer = nn.Linear(int(np.prod(obs_space.shape)), num_outputs)
        self.value_branch = nn.Linear(num_outputs, 1)
        self.action_module = _ActionModule(num_outputs)
        self._context: Tensor | None = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns features `[B, num_outputs]`."""
        del seq_lens
        self._context = torch.tanh(self.context_layer(input_dict["obs_flat"].float()))
        return self._context, state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        assert self._context is not None
        values: Tensor = self.value_branch(self._context).reshape(-1)
        return values


class TorchBinaryAutoregressiveDistribution(TwoBits, TorchDistributionWrapper):
    """`TwoBits` of a model with an `action_module(features, first bit)`, as `TorchAutoregressiveActionModel` is one."""

    categorical = TorchCategorical

    def _logits(self, first: Tensor | None) -> tuple[Tensor, Tensor]:
        known = self.inputs.new_zeros(len(self.inputs), 1) if first is None else first.to(self.inputs).reshape(-1, 1)
        logits: tuple[Tensor, Tensor] = self.model.action_module(self.inputs, known)
        return logits
