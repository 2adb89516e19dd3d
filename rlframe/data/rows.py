"""Rows of batches: slices, rows by their numbers, joints; first of columns, then of dicts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from rlframe.data import columns as names
from rlframe.data.column_dict import ColumnDict, is_per_sequence
from rlframe.data.nested import Column, concat_leaves, leaves, map_nested

Columns = dict[str, Column]


def slice_column(value: Column, rows: Any) -> Column:
    """Returns the rows of a possibly nested column, as views where `rows` is a slice."""
    if isinstance(value, np.ndarray):
        return value[rows]
    return map_nested(lambda leaf: leaf[rows], value)


def as_seq_lens(value: Any) -> NDArray[np.int64]:
    """Returns sequence lengths (list, array or tensor) as int64 `[sequences]`."""
    return np.asarray(value).astype(np.int64, copy=False)


def sequence_at(seq_lens: NDArray[np.int64], row: int) -> int:
    """Returns the sequence that holds valid row `row`; the number of sequences at or behind the end; 0 for row 0."""
    if row <= 0:
        return 0
    return int(np.searchsorted(np.cumsum(seq_lens), row, side="right"))


def slice_sequences(columns: Mapping[str, Column], first: int, last: int, row_first: int, row_last: int) -> Columns:
    """Returns sequences `[first, last)`, which own rows `[row_first, row_last)`."""
    return {
        key: slice_column(value, slice(first, last) if is_per_sequence(key) else slice(row_first, row_last))
        for key, value in columns.items()
    }


def concat_columns(parts: Sequence[Mapping[str, Column]], *, time_major: bool = False) -> Columns:
    """Returns the parts' rows one after the other.

    Args:
        parts: At least one dict of columns, all with the same columns.
        time_major: Rows run along axis 1, except in columns with one entry per sequence.

    Raises:
        ValueError: If the columns, or the shapes of their rows, differ.
    """
    first = parts[0]
    for number, part in enumerate(parts):
        if part.keys() != first.keys():
            odd = sorted(part.keys() ^ first.keys())
            raise ValueError(
                f"Got batches with different columns: {odd} are in only one of batch 0 and batch {number}; wanted the "
                "same columns in all that are joined. Write a column in every batch, or in none."
            )
    joined: Columns = {}
    for key in first:
        axis = 1 if time_major and not is_per_sequence(key) else 0
        values = [part[key] for part in parts]
        try:
            joined[key] = _concat_values(values, axis)
        except (ValueError, TypeError, KeyError) as error:
            shapes = sorted({str([np.shape(leaf)[1:] for leaf in leaves(value)]) for value in values})
            raise ValueError(
                f"Cannot join column {key!r}: got rows of shapes {', '.join(shapes)}; wanted one shape ({error})."
            ) from error
    return joined


def _concat_values(values: list[Column], axis: int) -> Column:
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values, axis=axis)
    return map_nested(lambda *parts: concat_leaves(*parts, axis=axis), *values)


class BatchRows(ColumnDict):
    """What a `SampleBatch` has of rows: copies, slices, rows by their numbers, joints."""

    def copy(self, shallow: bool = False) -> Self:
        """Returns a copy with its own arrays, or (`shallow`) one that shares them."""
        if shallow:
            batch = self._like(self)
            if self._watch is not None and batch._watch is not None:
                batch._watch.converted.update(self._watch.converted)
        else:
            batch = self._like({key: map_nested(_copy_leaf, value) for key, value in self.items()})
        batch._count = self._count
        return batch

    def __copy__(self) -> Self:
        return self.copy(shallow=True)

    def _rows(self, rows: slice) -> Self:
        """Returns rows `[start, stop)`; with `seq_lens`, both are moved down to the start of their sequence."""
        if self.time_major:
            raise ValueError("Got rows of a time-major batch; wanted a batch-major one: rows are slices of axis 0.")
        seq_lens = dict.get(self, names.SEQ_LENS)
        if seq_lens is None or len(seq_lens) == 0:
            sliced: Columns = {}
            for key, value in self.items():
                sliced[key] = value[rows] if value.__class__ is np.ndarray else slice_column(value, rows)
            return self._like(sliced)
        start, stop, step = rows.indices(self.count)
        if step != 1:
            raise ValueError(f"Got a slice with step {step} of a batch with seq_lens; wanted step 1.")
        return self._sequences(as_seq_lens(seq_lens), start, stop)

    def slice(self, start: int, end: int, state_start: int | None = None, state_end: int | None = None) -> Self:
        """Returns rows `[start, end)`, as views; of a batch that is cut into sequences, parts of its sequences too.

        `batch[start:end]` moves both ends to the start of a sequence; here the first and last sequence are cut where
        the rows are. A sequence that is cut at its front keeps the state it began with.

        Args:
            start: First row; of a batch of sequences, `-n` puts n rows of zeros before row 0, in the first sequence.
            end: Row after the last one.
            state_start: First sequence of the rows, where the caller knows it; with `state_end`.
            state_end: Sequence after the last one.

        Raises:
            ValueError: If the batch is time-major or zero-padded, or only one of the two sequences is given.
        """
        if self.time_major or self.zero_padded:
            raise ValueError("Got slice() of a time-major or zero-padded batch; wanted one with its plain rows.")
        if (state_start is None) != (state_end is None):
            raise ValueError(f"Got state_start={state_start}, state_end={state_end}; wanted both or none.")
        given = dict.get(self, names.SEQ_LENS)
        if start < 0 and given is not None and len(given) > 0:
            return self.slice(0, end, state_start, state_end)._after_zeros(-start)
        rows = range(self.count)[start:end]
        if given is None or len(given) == 0:
            return self._rows(slice(rows.start, rows.stop))
        seq_lens = as_seq_lens(given)
        ends = np.cumsum(seq_lens)
        first = int(np.searchsorted(ends, rows.start, side="right")) if state_start is None else state_start
        last = int(np.searchsorted(ends, rows.stop, side="left")) + 1 if state_end is None else state_end
        last = first if not rows else last
        cut = self._like(slice_sequences(self, first, last, rows.start, rows.stop))
        begun = np.maximum(ends - seq_lens, rows.start)[first:last]
        dict.__setitem__(cut, names.SEQ_LENS, (np.minimum(ends[first:last], rows.stop) - begun).astype(np.int32))
        return cut

    def _after_zeros(self, rows: int) -> Self:
        """Returns the batch with rows of zeros at the front of its first sequence."""

        def pad(leaf: Any) -> NDArray[Any]:
            array = np.asarray(leaf)
            return np.concatenate([np.zeros((rows, *array.shape[1:]), array.dtype), array])

        padded = {key: value if is_per_sequence(key) else map_nested(pad, value) for key, value in self.items()}
        padded[names.SEQ_LENS] = seq_lens = self[names.SEQ_LENS].copy()
        seq_lens[:1] += rows
        return self._like(padded)

    def _sequences(self, seq_lens: NDArray[np.int64], start: int, stop: int) -> Self:
        first, last = sequence_at(seq_lens, start), sequence_at(seq_lens, stop)
        if self.zero_padded:
            length = self.max_seq_len or int(seq_lens.max(initial=0))
            ends = first * length, last * length
        else:
            ends = int(seq_lens[:first].sum()), int(seq_lens[:last].sum())
        return self._like(slice_sequences(self, first, last, *ends))

    def take(self, rows: NDArray[np.integer[Any]] | Sequence[int]) -> Self:
        """Returns the rows with the given numbers, copied.

        Raises:
            ValueError: If the batch is cut into sequences.
        """
        self._refuse_sequences("take")
        index = np.asarray(rows)
        return self._like({key: slice_column(value, index) for key, value in self.items()})

    @classmethod
    def concat_samples(cls, samples: Sequence[Any]) -> Any:
        """Returns the batches' rows one after the other; empty batches are skipped.

        Args:
            samples: SampleBatches, or MultiAgentBatches if the first is one.

        Raises:
            ValueError: If columns, padding, `max_seq_len` of padded batches or `time_major` differ.
        """
        of_policies = next((sample for sample in samples if not isinstance(sample, ColumnDict)), None)
        if of_policies is not None:  # a MultiAgentBatch
            return of_policies.concat_samples(samples)
        parts = [sample for sample in samples if sample.count > 0] or list(samples[:1])
        if not parts:
            return cls()
        if len(parts) == 1:
            return parts[0].copy(shallow=True)
        max_seq_len = _common_max_seq_len(parts)
        joined = parts[0]._like(concat_columns(parts, time_major=bool(parts[0].time_major)))
        if max_seq_len is not None:
            joined.max_seq_len = max_seq_len
        return joined

    def concat(self, other: Self) -> Self:
        """Returns this batch's rows followed by the other's."""
        joined: Self = self.concat_samples([self, other])
        return joined


def _copy_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    clone = getattr(leaf, "clone", None)
    return leaf if clone is None else clone()


def _common_max_seq_len(parts: Sequence[BatchRows]) -> int | None:
    """Returns `max_seq_len` of the joined batch; raises ValueError unless the parts are laid out alike."""
    first = parts[0]
    for part in parts[1:]:
        if part.zero_padded != first.zero_padded or bool(part.time_major) != bool(first.time_major):
            raise ValueError(
                "Got batches of which only some are zero-padded or time-major "
                f"(zero_padded {first.zero_padded} and {part.zero_padded}, time_major {first.time_major} and "
                f"{part.time_major}); wanted all alike."
            )
        differ = (part.max_seq_len is None) != (first.max_seq_len is None)
        if differ and (_longest(part) is None or _longest(first) is None):
            raise ValueError(
                f"Got batches with max_seq_len {first.max_seq_len} and {part.max_seq_len}, and without seq_lens; "
                "wanted it in all or in none."
            )
        if first.zero_padded and part.max_seq_len != first.max_seq_len:
            raise ValueError(
                f"Got batches padded to {first.max_seq_len} and {part.max_seq_len} rows; wanted one length."
            )
    if all(part.max_seq_len is None for part in parts):
        return None
    return max(_longest(part) or 0 for part in parts)


def _longest(part: BatchRows) -> int | None:
    """Returns `max_seq_len`; of sequences that a worker cut, which carry none, the longest of `seq_lens`."""
    seq_lens = dict.get(part, names.SEQ_LENS)
    if part.max_seq_len is not None or seq_lens is None or len(seq_lens) == 0:
        return part.max_seq_len
    return int(max(seq_lens))
