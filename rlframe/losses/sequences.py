"""Rows of padded sequences that each have one observation more than steps: what a step leads to is seen beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.data.columns import NEXT_OBS, OBS, SEQ_LENS, VALID_MASK
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


def histories(batch: Mapping[str, Any]) -> Tensor:
    """Returns the T + 1 observations of each of S sequences of T steps, `[S, T + 1, ...]`.

    Args:
        batch: `obs` and `new_obs` `[S · T, ...]`, `seq_lens` `[S]`.
    """
    obs, next_obs = (ops.split_sequences(batch[column], batch[SEQ_LENS]) for column in (OBS, NEXT_OBS))
    return ops.concat([obs[:, :1], next_obs], axis=1)


def at_steps(rows: Tensor, seq_lens: Tensor) -> Tensor:
    """Returns what rows `[S · (T + 1), ...]` say of the steps' own observations, `[S · T, ...]`."""
    return ops.flatten_sequences(ops.split_sequences(rows, seq_lens)[:, :-1])


def behind_steps(rows: Tensor, seq_lens: Tensor) -> Tensor:
    """Returns what rows `[S · (T + 1), ...]` say of the observations that the steps lead to, `[S · T, ...]`."""
    return ops.flatten_sequences(ops.split_sequences(rows, seq_lens)[:, 1:])


def sequence_ends(batch: Mapping[str, Any]) -> Tensor:
    """Returns where no step of the same sequence follows: at the last one, and in padding. Bool `[S · T]`.

    Args:
        batch: `valid_mask` `[S · T]`, `seq_lens` `[S]`.
    """
    valid = ops.split_sequences(batch[VALID_MASK], batch[SEQ_LENS])
    return ~ops.flatten_sequences(ops.concat([valid[:, 1:], ops.zeros_like(valid[:, :1])], axis=1))
