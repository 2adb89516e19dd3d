"""RLlib's `GTrXLNet` in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from rlframe.models.attention_positions import sinusoids
from rlframe.models.torch.attention_net import AttentionWrapper
from rlframe.rllib1x.gtrxl import GTrXL


class GTrXLNet(GTrXL, AttentionWrapper):
    """A Gated Transformer-XL on flat observations; see `GTrXL`."""


def relative_position_embedding(seq_length: int, out_dim: int) -> Tensor:
    """Returns the sinusoids of the distances `seq_length` - 1 to 0, float32 `[seq_length, out_dim]`."""
    return torch.from_numpy(sinusoids(seq_length, out_dim)[::-1].copy())
