"""What PyTorch models with memory see of past steps: actions one-hot, and rewards."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
from torch import Tensor


def encode_actions(actions: Tensor, encoding: Sequence[int]) -> Tensor:
    """Returns actions `[B, ...]` as float `[B, D]`; see `rlframe.models.action_encoding.encode_actions`."""
    rows = actions.reshape(actions.shape[0], len(encoding))
    parts = [
        F.one_hot(rows[:, index].long(), size).float() if size else rows[:, index : index + 1].float()
        for index, size in enumerate(encoding)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def encode_many(actions: Tensor, encoding: Sequence[int]) -> Tensor:
    """Returns the actions of N past steps, `[B, N, ...]`, as float `[B, N * D]`."""
    rows, steps = actions.shape[:2]
    return encode_actions(actions.reshape(rows * steps, -1), encoding).reshape(rows, -1)
