"""RLlib's `GTrXLNet` in TensorFlow."""

from __future__ import annotations

from typing import Any

from rlframe.models.attention_positions import sinusoids
from rlframe.models.tf.attention_net import AttentionWrapper
from rlframe.rllib1x.gtrxl import GTrXL
from rlframe.utils.quiet_tf import tf


class GTrXLNet(GTrXL, AttentionWrapper):
    """A Gated Transformer-XL on flat observations; see `GTrXL`."""


def relative_position_embedding(seq_length: int, out_dim: int) -> Any:
    """Returns the sinusoids of the distances `seq_length` - 1 to 0, float32 `[seq_length, out_dim]`."""
    return tf.constant(sinusoids(seq_length, out_dim)[::-1])
