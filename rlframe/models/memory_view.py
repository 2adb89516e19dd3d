"""An acting network with memory whose outputs are distribution inputs first, and then features for other networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


@dataclass(frozen=True)
class MemoryView:
    """How such a network acts: an `ActingView`.

    Attributes:
        first: How many of its outputs are distribution inputs, K.
    """

    first: int

    def act(self, network: Any, obs: Tensor, states: list[Tensor], seq_lens: Any) -> tuple[Tensor, list[Tensor]]:
        """Returns distribution inputs `[B, K]` of observations `[B, D]`, padded sequences, and the states behind."""
        by_step = obs[:, None] if seq_lens is None else ops.split_sequences(obs, seq_lens)
        made, after = network.unroll(by_step, states)
        return ops.flatten_sequences(made)[:, : self.first], after

    def states(self, initial: list[Any]) -> list[Any]:
        """Returns the states that an episode begins with: the network's own."""
        return initial
