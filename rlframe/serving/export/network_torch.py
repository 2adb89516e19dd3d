"""A PyTorch policy's network, and the distribution or functions behind it, as something to trace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlframe.data.columns import SEQ_LENS
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.torch.export import on_cpu
from rlframe.serving.export.program import TracedNetwork
from rlframe.serving.export.traced import acted, columns_taken


def network_of(policy: Any) -> TracedNetwork:
    """Returns what is called with the columns of `columns_taken`, and gives what `acted` does."""
    policy = on_cpu(policy)
    names = columns_taken(policy)

    def call(*columns: Tensor) -> list[Tensor]:
        policy.model.eval()
        batch = SampleBatch.from_columns(dict(zip(names, columns, strict=True)))
        batch.set_training(False)
        if policy.is_recurrent():  # sequences of one step; as many as there are rows
            batch[SEQ_LENS] = torch.ones_like(columns[0].flatten(1)[:, 0], dtype=torch.int32)
        return acted(policy, batch)

    return TracedNetwork("torch", call, [part for part in vars(policy).values() if isinstance(part, nn.Module)])
