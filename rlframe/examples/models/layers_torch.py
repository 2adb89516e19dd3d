"""Example models in PyTorch that show one kind of layer: batch normalisation, a single weight."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlframe.models.torch.misc import SlimFC, normc_initializer
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class TorchBatchNormModel(TorchModelV2, nn.Module):
    """Two dense layers, each with batch normalisation: by the batch's statistics in training, by running ones else."""

    #: Of programs that count what they have captured; not used here.
    capture_index = 0

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name, **kwargs)
        nn.Module.__init__(self)
        sizes = [int(np.prod(obs_space.shape)), 256, 256]
        self._hidden_layers = nn.Sequential()
        for size, units in itertools.pairwise(sizes):
            self._hidden_layers.append(SlimFC(size, units, normc_initializer(1.0), nn.ReLU))
            self._hidden_layers.append(nn.BatchNorm1d(units))
        self._logits = SlimFC(sizes[-1], num_outputs, normc_initializer(0.01))
        self._value_branch = SlimFC(sizes[-1], 1, normc_initializer(1.0))
        self._features: Tensor | None = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs `[B, num_outputs]`."""
        del seq_lens
        self._hidden_layers.train(bool(input_dict["is_training"]))
        self._features = self._hidden_layers(input_dict["obs_flat"].float())
        return self._logits(self._features), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass."""
        assert self._features is not None
        values: Tensor = self._value_branch(self._features).reshape(-1)
        return values


class TorchFastModel(TorchModelV2, nn.Module):
    """One weight, which all outputs and values are: what a framework costs without a network."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: dict[str, Any], name: str
    ) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.bias = nn.Parameter(torch.zeros(1))
        self._output: Tensor | None = None

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the weight `[B, num_outputs]`, for observations of any kind."""
        del seq_lens
        assert self.num_outputs is not None
        self._output = self.bias + torch.zeros(len(input_dict["obs_flat"]), self.num_outputs, device=self.bias.device)
        return self._output, state

    def value_function(self) -> Tensor:
        """Returns the weight `[B]`."""
        assert self._output is not None
        return self._output.mean(dim=1)
