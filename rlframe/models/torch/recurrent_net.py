"""Recurrent PyTorch models: the base of the user's own, and the LSTM behind any other model."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from rlframe.data.sequences import add_time_dimension
from rlframe.models.memory_models import LSTMBehind, SequenceModel
from rlframe.models.torch.fcnet import MemoryHeads
from rlframe.models.torch.layer_owner import TorchLayerOwner
from rlframe.models.torch.rllib_layers import RLlibLayers, slim
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class RecurrentNetwork(SequenceModel, TorchModelV2):
    """Gives its subclass inputs in the shape of sequences, see `SequenceModel`.

    `class MyRNN(RecurrentNetwork, nn.Module)`.
    """

    def _as_sequences(self, rows: torch.Tensor, seq_lens: Any) -> torch.Tensor:
        shaped: torch.Tensor = add_time_dimension(rows, seq_lens=seq_lens)
        return shaped


class LSTMWrapper(LSTMBehind, TorchLayerOwner, RLlibLayers, RecurrentNetwork, nn.Module):
    """Any model without memory, an LSTM behind it, and heads behind that; see `LSTMBehind`.

    The heads are also found as `_logits_branch` and `_value_branch`, the layers before the LSTM as `_hidden_layers` or
    `_convs`.
    """

    heads_class = MemoryHeads
    _rllib_layers: ClassVar[Any] = {
        "_hidden_layers": lambda model: getattr(model.inner, "_hidden_layers", None),
        "_convs": lambda model: getattr(model.inner, "_convs", None),
        "_logits_branch": lambda model: slim(model.heads.output),
        "_value_branch": lambda model: slim(model.heads.value),
    }
