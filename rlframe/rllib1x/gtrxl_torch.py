"""RLlib's `GTrXLNet` in PyTorch."""

from __future__ import annotations

from rlframe.models.torch.attention_net import AttentionWrapper
from rlframe.rllib1x.gtrxl import GTrXL


class GTrXLNet(GTrXL, AttentionWrapper):
    """A Gated Transformer-XL on flat observations; see `GTrXL`."""
