"""Row arithmetic on plain dicts of columns: slicing, joining, padding to sequences, compressing.

`SampleBatch` and `MultiAgentBatch` are built on these; they know nothing of either class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.column_dict import is_per_sequence
from rlframe.data.columns import INFOS, SEQ_LENS, STATE_IN_PREFIX
from rlframe.data.nested import Column, concat_leaves, first_leaf, leaves, map_nested

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


def check_lengths(columns: Mapping[str, Column]) -> None:
    """Raises ValueError unless all columns that have rows have the same number of them."""
    lengths: dict[str, int] = {}
    for key, value in columns.items():
        leaf = first_leaf(value)
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape) > 0:
            lengths[key] = int(shape[0])
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key}: {length}" for key, length in lengths.items())
        raise ValueError(f"Got columns of different numbers of rows ({listed}); wanted as many in each column.")


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


def padded_positions(seq_lens: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Returns where each valid row stands once every sequence is padded at its right to `length` rows.

    Args:
        seq_lens: Valid rows per sequence, int64 `[sequences]`.
        length: Rows per padded sequence, at least `max(seq_lens)`.

    Returns:
        int64 `[sum(seq_lens)]`, growing, each in `[0, sequences * length)`.

    Raises:
        ValueError: If a sequence is longer than `length`.
    """
    longest = int(seq_lens.max(initial=0))
    if longest > length:
        raise ValueError(f"Got a sequence of {longest} rows; wanted at most max_seq_len={length}.")
    starts = np.cumsum(seq_lens) - seq_lens
    shift = np.arange(len(seq_lens)) * length - starts
    positions: NDArray[np.int64] = np.arange(int(seq_lens.sum())) + np.repeat(shift, seq_lens)
    return positions


def filler(leaf: Any) -> Any:
    """Returns what padding rows of an array like `leaf` hold: 0, or for objects {} (dicts) or None."""
    if not (isinstance(leaf, np.ndarray) and leaf.dtype.hasobject):
        return 0
    return {} if len(leaf) and isinstance(leaf[0], dict) else None


def scatter_rows(leaf: Any, positions: NDArray[np.int64], rows: int) -> NDArray[Any]:
    """Returns `[rows, ...]` with the rows of `leaf` at `positions` and padding elsewhere."""
    array = np.asarray(leaf)
    if array.dtype == object:
        padded = np.empty((rows, *array.shape[1:]), dtype=object)
        padded.fill(filler(array))
    else:
        padded = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    padded[positions] = array
    return padded


def pad_columns(columns: Mapping[str, Column], max_seq_len: int, *, exclude_states: bool = True) -> Columns:
    """Returns the columns with every sequence padded at its right to `max_seq_len` rows.

    Args:
        columns: Columns with unpadded rows and `seq_lens`.
        max_seq_len: Rows of a padded sequence.
        exclude_states: Leave `state_in_*` alone (one entry per sequence); False pads them like rows.

    Returns:
        Row columns `[sequences * max_seq_len, ...]`; all of them are padded, `infos` too.
    """
    seq_lens = as_seq_lens(columns[SEQ_LENS])
    positions = padded_positions(seq_lens, max_seq_len)
    rows = len(seq_lens) * max_seq_len

    def pad(leaf: Any) -> Any:
        return scatter_rows(leaf, positions, rows)

    def stays(key: str) -> bool:
        return key == SEQ_LENS or (exclude_states and key.startswith(STATE_IN_PREFIX))

    return {key: value if stays(key) else map_nested(pad, value) for key, value in columns.items()}


def nbytes(value: Column) -> int:
    """Returns the bytes that a column's arrays hold; objects count as their references."""
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves(value))


def convert_columns(columns: Mapping[str, Column], fn: Callable[[Any], Any]) -> Columns:
    """Returns the columns with `fn` applied to each array; `infos` and arrays of objects or strings stay."""

    def convert(leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", None)
        return leaf if isinstance(dtype, np.dtype) and dtype.kind in "OUS" else fn(leaf)

    return {key: value if key == INFOS else map_nested(convert, value) for key, value in columns.items()}
