"""What policies with memory need of rows that were read: earlier steps, recurrent states, sequences in time order."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.column_dict import trajectory_ends
from rlframe.data.columns import EPS_ID, SEQ_LENS, STATE_IN_PREFIX, STATE_OUT_PREFIX
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import cut_into_sequences
from rlframe.policy.recurrent_context import views_before
from rlframe.utils.errors import DataError

_STATES = (STATE_IN_PREFIX, STATE_OUT_PREFIX)


def as_rows(batch: SampleBatch, policy: Any) -> SampleBatch:
    """Returns rows that a policy with memory wrote in sequences as rows alone.

    A policy with memory finds the states that were stored, before the first row of each sequence, in the columns
    `state_in_i [B, ...]`, and zeros in between; others have no use for states.

    Args:
        batch: Rows, in sequences or not.
        policy: Who learns from them.

    Raises:
        DataError: If the sequences' lengths do not add up to the rows.
    """
    lens = batch.get(SEQ_LENS)
    columns = {name: column for name, column in batch.items() if name != SEQ_LENS}
    if not policy.is_recurrent():
        columns = {name: column for name, column in columns.items() if not name.startswith(_STATES)}
    if lens is None:
        return batch if len(columns) == len(batch) else batch._like(columns)
    rows = batch.count
    if int(np.sum(lens)) != rows:
        raise DataError(f"input: got seq_lens whose sum is {int(np.sum(lens))} for {rows} rows, wanted equal numbers")
    starts = np.cumsum(lens) - lens
    for name in [name for name in columns if name.startswith(STATE_IN_PREFIX)]:
        stored = np.asarray(columns[name])
        columns[name] = np.zeros((rows, *stored.shape[1:]), stored.dtype)
        columns[name][starts] = stored
    return batch._like(columns)


def add_memory(batch: SampleBatch, policy: Any) -> None:
    """Gives rows the columns of earlier steps and the recurrent states that a policy's model computes with, in place.

    Columns of earlier steps are made of the rows before, zeros where a trajectory begins. States that the data do not
    have, or have of another size, are those of an episode's beginning: who logged the data had none, or its own.

    Args:
        batch: Rows in time order.
        policy: Its `acting_views()` and `get_initial_state()` say what is needed.
    """
    if not policy.needs_memory():
        return
    missing = {name: view for name, view in policy.acting_views().items() if name not in batch}
    if missing:
        batch.update(views_before(missing, batch, trajectory_ends(batch)))
    for index, state in enumerate(policy.get_initial_state()):
        initial = np.asarray(state)
        for prefix in _STATES if policy.learns_values else (STATE_IN_PREFIX,):
            name = f"{prefix}{index}"
            if name not in batch or np.shape(batch[name])[1:] != initial.shape:
                batch[name] = np.zeros((batch.count, *initial.shape), initial.dtype) + initial


def in_sequences(batch: SampleBatch, policy: Any) -> SampleBatch:
    """Returns rows cut into the sequences that a policy learns from, as what it samples is.

    Args:
        batch: Rows in time order, with `state_in_i`; those of policies without memory are returned as they are.
        policy: The policy.
    """
    if SEQ_LENS in batch or not policy.learns_sequences():
        return batch
    if EPS_ID not in batch:
        ends = trajectory_ends(batch)
        batch = batch._like({**batch, EPS_ID: np.cumsum(ends) - ends})
    return cut_into_sequences(batch, policy.max_seq_len, keep_states_out=policy.train_columns is None)


__all__ = ["add_memory", "as_rows", "in_sequences"]
