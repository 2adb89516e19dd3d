"""Cutting rows into sequences for recurrent models, padding them, and giving them a time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlframe.data.batch_forms import filler, padded_positions, scatter_rows
from rlframe.data.column_dict import is_per_sequence
from rlframe.data.columns import (
    AGENT_INDEX,
    EPS_ID,
    SEQ_LENS,
    STATE_IN_PREFIX,
    STATE_OUT_PREFIX,
    UNROLL_ID,
    VALID_MASK,
)
from rlframe.data.nested import Column, first_leaf, leaves, map_nested
from rlframe.data.rows import Columns, as_seq_lens
from rlframe.data.sample_batch import SampleBatch

if TYPE_CHECKING:
    from rlframe.data.view_requirements import ViewRequirement

IntArray = NDArray[np.integer[Any]]


def sequence_lengths(max_seq_len: int, *ids: IntArray | None) -> NDArray[np.int32]:
    """Returns the lengths of the sequences that rows fall into.

    Args:
        max_seq_len: Longest sequence allowed, in rows; at least 1.
        *ids: Row labels, int `[B]`: a sequence ends where one of them changes. None is skipped.

    Returns:
        int32 `[sequences]`, each in [1, max_seq_len], adding up to B.

    Raises:
        ValueError: If there are no labels, or `max_seq_len` is below 1.
    """
    labels = [np.asarray(values) for values in ids if values is not None]
    if not labels or max_seq_len < 1:
        raise ValueError(
            f"Got max_seq_len={max_seq_len} and {len(labels)} label columns; wanted at least 1 of each "
            "(episode_ids, unroll_ids or agent_indices, or seq_lens)."
        )
    rows = len(labels[0])
    changes = np.zeros(max(rows - 1, 0), bool)
    for values in labels:
        changes |= values[1:] != values[:-1]
    ends = np.append(np.flatnonzero(changes) + 1, rows)
    pieces = np.diff(ends, prepend=0)
    full, rest = np.divmod(pieces, max_seq_len)
    lens = [
        [max_seq_len] * whole + [part] * (part > 0) for whole, part in zip(full.tolist(), rest.tolist(), strict=True)
    ]
    return np.array([length for piece in lens for length in piece], np.int32)


def chop_into_sequences(  # noqa: PLR0913 - RLlib's signature, keyword-only
    *,
    feature_columns: Sequence[Column],
    state_columns: Sequence[NDArray[Any]],
    max_seq_len: int,
    episode_ids: IntArray | None = None,
    unroll_ids: IntArray | None = None,
    agent_indices: IntArray | None = None,
    dynamic_max: bool = True,
    shuffle: bool = False,
    seq_lens: Sequence[int] | IntArray | None = None,
    states_already_reduced_to_init: bool = False,
    padding: Literal["zero", "last"] = "zero",
    rng: np.random.Generator | None = None,
    handle_nested_data: bool = False,
) -> tuple[list[Column], list[NDArray[Any]], NDArray[np.int32]]:
    """Cuts rows into sequences and pads these at their right.

    Args:
        feature_columns: Arrays `[B, ...]`, or dicts or tuples of such.
        state_columns: Recurrent states `[B, S]`, or `[sequences, S]` if `states_already_reduced_to_init`.
        max_seq_len: Longest sequence, in rows.
        episode_ids: Episode of each row, int `[B]`.
        unroll_ids: Fragment of each row, int `[B]`.
        agent_indices: Agent of each row, int `[B]`.
        dynamic_max: Pad to the longest sequence there is, not to `max_seq_len`.
        shuffle: Put the sequences (never rows within one) in random order.
        seq_lens: Lengths of the sequences where they are known; the labels are not needed then.
        states_already_reduced_to_init: The states are one per sequence.
        padding: What padding rows hold: "zero", or a copy of the sequence's "last" row.
        rng: Source of the order; NumPy's global generator where missing.
        handle_nested_data: Return each feature as the list of its leaves. Else dicts and tuples stay what they are.

    Returns:
        The features `[sequences * T, ...]`, the state at the start of each sequence `[sequences, S]`, and the valid
        rows per sequence, int32 `[sequences]`.

    Raises:
        ValueError: If neither labels nor `seq_lens` are given, or a sequence is longer than `max_seq_len`.
    """
    if seq_lens is None or len(seq_lens) == 0:
        lens = sequence_lengths(max_seq_len, episode_ids, unroll_ids, agent_indices)
    else:
        lens = np.asarray(seq_lens, np.int32)
    length = int(lens.max(initial=0)) if dynamic_max else max_seq_len
    layout = _Layout(as_seq_lens(lens), length, repeat_last=padding == "last")
    features: list[Column] = [map_nested(layout.pad, column) for column in feature_columns]
    states = [np.asarray(state) for state in state_columns]
    if not states_already_reduced_to_init:
        states = [state[layout.starts] for state in states]
    if shuffle:
        # Programs written for RLlib seed NumPy's global generator, so that is the default here.
        permutation: Any = np.random.permutation if rng is None else rng.permutation
        order = permutation(len(lens))
        features = [map_nested(lambda leaf: _reorder(leaf, order), column) for column in features]
        states, lens = [state[order] for state in states], lens[order]
    if handle_nested_data:
        features = [list(leaves(column)) for column in features]
    return features, states, lens


class _Layout:
    """Where rows stand before and after padding."""

    def __init__(self, seq_lens: NDArray[np.int64], length: int, *, repeat_last: bool) -> None:
        self.rows = len(seq_lens) * length
        self.starts = np.cumsum(seq_lens) - seq_lens
        self.positions = padded_positions(seq_lens, length)
        self._source: NDArray[np.int64] | None = None
        if repeat_last:
            step = np.minimum(np.arange(length), np.maximum(seq_lens, 1)[:, None] - 1)
            self._source = (self.starts[:, None] + step).reshape(-1)

    def pad(self, leaf: Any) -> NDArray[Any]:
        """Returns the rows of `leaf` `[B, ...]` as padded sequences `[sequences * length, ...]`."""
        if self._source is not None:
            padded: NDArray[Any] = np.asarray(leaf)[self._source]
            return padded
        return scatter_rows(leaf, self.positions, self.rows)


def _reorder(leaf: NDArray[Any], order: IntArray) -> NDArray[Any]:
    by_sequence = leaf.reshape(len(order), -1, *leaf.shape[1:]) if len(order) else leaf
    return by_sequence[order].reshape(leaf.shape)


def pad_batch_to_sequences_of_same_size(
    batch: SampleBatch,
    max_seq_len: int,
    shuffle: bool = False,
    batch_divisibility_req: int = 1,
    feature_keys: Sequence[str] | None = None,
    view_requirements: Mapping[str, ViewRequirement] | None = None,
) -> None:
    """Cuts a batch into sequences of one padded length, in place; a padded batch is left as it is.

    With recurrent states (`state_in_*`), sequences end at the ends of episodes and fragments and after `max_seq_len`
    rows. Without, rows are only filled up to a multiple of `batch_divisibility_req`. Every column is padded, `infos`
    and `state_out_*` too, so that all rows stay aligned.

    Args:
        batch: Gets `seq_lens` and padded rows; `batch.count` stays the number of valid rows.
        max_seq_len: Longest sequence, in rows.
        shuffle: Put the sequences in random order.
        batch_divisibility_req: The padded rows become a multiple of this.
        feature_keys: Columns to keep beside states and `seq_lens`; all, where not given.
        view_requirements: Columns that training does not need according to these are dropped.
    """
    if batch.zero_padded or batch.count == 0:
        return
    states = _state_keys(batch)
    if not states and batch_divisibility_req <= 1:
        return
    features = _features(batch, feature_keys, view_requirements)
    if states:
        _pad_recurrent(batch, states, features, max_seq_len, shuffle, batch_divisibility_req)
    elif batch.count % batch_divisibility_req:
        rows = batch.count
        labels = np.zeros(rows, np.int64)
        length = batch_divisibility_req
        padded, _, lens = chop_into_sequences(
            feature_columns=list(features.values()),
            state_columns=[],
            max_seq_len=length,
            episode_ids=labels,
            dynamic_max=False,
        )
        _replace(batch, dict(zip(features, padded, strict=True)), lens, length)


def cut_into_sequences(batch: SampleBatch, max_seq_len: int, *, keep_states_out: bool = True) -> SampleBatch:
    """Returns collected rows of a recurrent policy with `seq_lens`, and with one state per sequence, not per row.

    Args:
        batch: Rows with `state_in_i [B, ...]`, trajectories one after the other; one that is cut already is returned.
        max_seq_len: Longest sequence, in rows.
        keep_states_out: Keep the columns `state_out_i [B, ...]`.

    Returns:
        A batch of views, not padded, with `state_in_i [sequences, ...]`.
    """
    if SEQ_LENS in batch or batch.count == 0:
        return batch
    lens = sequence_lengths(max_seq_len, *_labels(batch))
    starts = np.cumsum(lens) - lens
    columns: Columns = {}
    for key, value in batch.items():
        if key.startswith(STATE_IN_PREFIX):
            columns[key] = value[starts]
        elif keep_states_out or not key.startswith(STATE_OUT_PREFIX):
            columns[key] = value
    columns[SEQ_LENS] = lens
    return batch._like(columns)


def padded_sequences(batch: SampleBatch, max_seq_len: int = 0, *, chosen: IntArray | None = None) -> SampleBatch:
    """Returns sequences of a batch, padded at their right with zeros to the longest of them, and `valid_mask`.

    Args:
        batch: Rows cut by `cut_into_sequences`, or with `state_in_i` per row, not padded.
        max_seq_len: Longest sequence, in rows; needed where the batch is not cut yet.
        chosen: Numbers of the sequences to take, in order; all where not given.

    Returns:
        A new batch: row columns `[sequences * T, ...]`, `state_in_i [sequences, ...]`, `seq_lens [sequences]`.
    """
    batch = cut_into_sequences(batch, max_seq_len)
    all_lens = as_seq_lens(batch[SEQ_LENS])
    starts = np.cumsum(all_lens) - all_lens
    picked: Any = slice(None) if chosen is None else chosen
    lens, first = all_lens[picked], starts[picked]
    length = int(lens.max(initial=0))
    step = np.arange(length)
    valid = (step < lens[:, None]).reshape(-1)
    # Padding rows are read from the sequence's own start, and then set to zero.
    source = (first[:, None] + np.minimum(step, np.maximum(lens, 1)[:, None] - 1)).reshape(-1)
    padding = None if valid.all() else np.flatnonzero(~valid)

    def pad(leaf: Any) -> NDArray[Any]:
        rows: NDArray[Any] = np.asarray(leaf)[source]
        if padding is not None:
            rows[padding] = filler(rows)
        return rows

    columns: Columns = {}
    for key, value in batch.items():
        if key == SEQ_LENS:
            columns[key] = lens.astype(np.int32)
        elif is_per_sequence(key):
            columns[key] = map_nested(lambda leaf: np.asarray(leaf)[picked], value)
        else:
            columns[key] = map_nested(pad, value)
    columns[VALID_MASK] = valid
    made = SampleBatch.from_columns(columns)
    made.zero_padded = True
    made.max_seq_len = length
    return made


def _state_keys(batch: SampleBatch) -> list[str]:
    return [key for key in batch if key.startswith(STATE_IN_PREFIX)]


def _features(
    batch: SampleBatch, feature_keys: Sequence[str] | None, views: Mapping[str, ViewRequirement] | None
) -> Columns:
    def wanted(key: str) -> bool:
        if is_per_sequence(key) or (feature_keys is not None and key not in feature_keys):
            return False
        return views is None or key not in views or views[key].used_for_training

    return {key: batch[key] for key in batch if wanted(key)}


def _pad_recurrent(
    batch: SampleBatch, states: list[str], features: Columns, max_seq_len: int, shuffle: bool, multiple: int
) -> None:
    known = batch.get(SEQ_LENS)
    if known is None:
        lens = sequence_lengths(max_seq_len, *_labels(batch))
    else:
        lens = np.asarray(known, np.int32)
    longest = int(lens.max(initial=1))
    length = -(-longest // multiple) * multiple  # rounded up
    reduced = len(batch[states[0]]) == len(lens)
    padded, initial, lens = chop_into_sequences(
        feature_columns=list(features.values()),
        state_columns=batch.columns(states),
        max_seq_len=length,
        seq_lens=lens,
        dynamic_max=False,
        states_already_reduced_to_init=reduced,
        shuffle=shuffle,
    )
    columns = dict(zip([*features, *states], [*padded, *initial], strict=True))
    _replace(batch, columns, lens, length)


def _labels(batch: SampleBatch) -> list[IntArray]:
    labels = [batch[key] for key in (EPS_ID, UNROLL_ID, AGENT_INDEX) if key in batch]
    return labels or [np.zeros(batch.count, np.int64)]


def _replace(batch: SampleBatch, columns: Columns, seq_lens: NDArray[np.int32], length: int) -> None:
    for key in [key for key in batch if key not in columns]:
        del batch[key]
    batch.update(columns)
    batch[SEQ_LENS] = seq_lens
    batch.zero_padded = True
    batch.max_seq_len = length


def add_time_dimension(
    padded_inputs: Any,
    seq_lens: Any = None,
    framework: str = "torch",  # noqa: ARG001 - part of RLlib's signature
    time_major: bool = False,
    *,
    max_seq_len: Any = None,
) -> Any:
    """Returns padded rows with their time axis.

    Args:
        padded_inputs: Array or tensor `[B * T, ...]`, sequence after sequence.
        seq_lens: Valid rows per sequence, `[B]`: there are that many sequences. A plain int is taken as T.
        framework: Ignored: whatever has `reshape` is reshaped. Kept for RLlib's signature.
        time_major: Return `[T, B, ...]`.
        max_seq_len: T, where `seq_lens` is not given.

    Returns:
        `[B, T, ...]`, or `[T, B, ...]`; a view where possible.

    Raises:
        ValueError: If the rows are not B times T, or neither argument is given.
    """
    if max_seq_len is None and isinstance(seq_lens, (int, np.integer)):
        max_seq_len = seq_lens
    if not hasattr(padded_inputs, "reshape") and not (seq_lens is None and max_seq_len is None):
        from rlframe.data import sequences_tf

        return sequences_tf.add_time_dimension(padded_inputs, seq_lens, max_seq_len, time_major)
    rows = padded_inputs.shape[0]  # no int(): a tracer follows sizes as they are
    if max_seq_len is not None:
        length = int(max_seq_len)
        sequences = rows // max(length, 1)
    elif seq_lens is not None:
        sequences = seq_lens.shape[0] if hasattr(seq_lens, "shape") else len(seq_lens)
        length = rows // max(sequences, 1)
    else:
        raise ValueError("Got neither seq_lens nor max_seq_len; wanted one of them to tell sequences apart.")
    if sequences * length != rows:
        raise ValueError(f"Got {rows} rows, which are not {sequences} sequences of {length} rows; pad them first.")
    shaped = padded_inputs.reshape((sequences, length, *padded_inputs.shape[1:]))
    return shaped.swapaxes(0, 1) if time_major else shaped


def timeslice_along_seq_lens_with_overlap(
    sample_batch: SampleBatch,
    seq_lens: Sequence[int] | IntArray | None = None,
    zero_pad_max_seq_len: int = 0,
    pre_overlap: int = 0,
    zero_init_states: bool = True,
) -> list[SampleBatch]:
    """Returns one batch per sequence, each with rows from before it to warm up a recurrent state on.

    Args:
        sample_batch: Unpadded rows.
        seq_lens: Lengths of the sequences, in rows, adding up to the batch; the batch's own where missing.
        zero_pad_max_seq_len: Pad each sequence at its right to this many rows; 0 pads nothing.
        pre_overlap: Rows to put before each sequence: those of the same episode, zeros where it had not begun.
        zero_init_states: Start from zero states; False from the states stored with the first row borrowed.

    Returns:
        Batches with `seq_lens` `[1]`, which counts `pre_overlap` rows too.

    Raises:
        ValueError: If no lengths are known, or they do not add up to the batch's rows.
    """
    lens = sample_batch.get(SEQ_LENS) if seq_lens is None else seq_lens
    rows = len(first_leaf(next(value for key, value in sample_batch.items() if not is_per_sequence(key))))
    if lens is None or int(np.sum(lens)) != rows:
        raise ValueError(f"Got seq_lens {lens} for {rows} rows; wanted lengths that add up to the rows.")
    labels = sample_batch.get(EPS_ID)
    eps_ids = np.zeros(rows, np.int64) if labels is None else np.asarray(labels)
    slices = []
    begin = 0
    for number, length in enumerate(int(value) for value in lens):
        end = begin + length
        first = _first_of_episode(eps_ids, max(begin - pre_overlap, 0), begin, end)
        zeros = pre_overlap - (begin - first)
        columns = {
            key: map_nested(lambda leaf: _cut(leaf, first, end, zeros), value)  # noqa: B023 - called at once
            for key, value in sample_batch.items()
            if not is_per_sequence(key)
        }
        for key in _state_keys(sample_batch):
            columns[key] = _initial_state(sample_batch, key, number, first, zero=zero_init_states)
        columns[SEQ_LENS] = np.array([pre_overlap + length], np.int32)
        piece = SampleBatch(columns)
        slices.append(piece.right_zero_pad(zero_pad_max_seq_len) if zero_pad_max_seq_len > 0 else piece)
        begin = end
    return slices


def _first_of_episode(eps_ids: IntArray, earliest: int, begin: int, end: int) -> int:
    """Returns the first row from `earliest` on that leads without a break into the episode of row `begin`."""
    if begin >= end:
        return begin
    strangers = np.flatnonzero(eps_ids[earliest:begin] != eps_ids[begin])
    return earliest + int(strangers[-1]) + 1 if len(strangers) else earliest


def _cut(leaf: Any, first: int, end: int, zeros: int) -> NDArray[Any]:
    rows = np.asarray(leaf)[first:end]
    if zeros == 0:
        return rows
    before = np.full((zeros, *rows.shape[1:]), filler(rows), dtype=rows.dtype)
    return np.concatenate([before, rows])


def _initial_state(batch: SampleBatch, key: str, number: int, first: int, *, zero: bool) -> NDArray[Any]:
    """Returns the recurrent state `[1, S]` from which row `first`, of sequence `number`, is reached."""
    states = np.asarray(batch[key])
    out_key = STATE_OUT_PREFIX + key.removeprefix(STATE_IN_PREFIX)
    outs = batch.get(out_key)
    rows = batch.count
    if zero:
        return np.zeros_like(states[:1])
    if len(states) == rows:
        return states[first : first + 1]
    begin = int(np.sum(np.asarray(batch[SEQ_LENS])[:number])) if SEQ_LENS in batch else first
    if first == begin and SEQ_LENS in batch:
        return states[number : number + 1]
    if outs is not None and first > 0 and not _starts_episode(batch, first):
        return np.asarray(outs)[first - 1 : first]
    return np.zeros_like(states[:1])


def _starts_episode(batch: SampleBatch, row: int) -> bool:
    labels = batch.get(EPS_ID)
    return labels is not None and bool(labels[row] != labels[row - 1])
