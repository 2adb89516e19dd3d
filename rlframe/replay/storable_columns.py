"""Which columns of a batch a replay buffer can store, as arrays; an error says what is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import SEQ_LENS
from rlframe.data.sample_batch import SampleBatch

Array = NDArray[Any]

LINK_BYTES = 17
"""What an `ObservationStore` has of one transition beside its rows: two row numbers and a flag."""
GO_ON_WITHOUT = "go on without the saved buffer (store_buffer_in_checkpoints=False in this trainer's config)"


def row_bytes(column: Array) -> int:
    """Returns the size of one row in bytes."""
    return column.itemsize * int(np.prod(column.shape[1:]))


def as_arrays(batch: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Array]:
    """Returns the columns as arrays; raises ValueError for what cannot be stored in slots of transitions."""
    if batch.get(SEQ_LENS) is not None:
        raise ValueError(
            "The batch is cut into sequences (it has seq_lens), but this replay buffer stores single transitions; add "
            "it before it is cut, or set replay_sequence_length to the rows of a sequence"
        )
    if isinstance(batch, SampleBatch) and any(_is_packed(column) for column in columns.values()):
        unpacked = batch.copy(shallow=True).decompress_if_needed()
        columns = {name: unpacked[name] for name in columns}
    arrays = {name: _as_array(name, column) for name, column in columns.items()}
    _check_lengths(arrays)
    return arrays


def _is_packed(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype == object


def _as_array(name: str, column: Any) -> Array:
    if isinstance(column, (Mapping, tuple)):
        raise ValueError(
            f"Column {name!r} is a {type(column).__name__} of arrays; wanted one array [B, ...]. Flatten it, or leave "
            "the preprocessor on"
        )
    array = np.asarray(column)
    if array.dtype.hasobject:
        raise ValueError(
            f"Column {name!r} holds {array.dtype} entries, wanted numbers, booleans or text; remove it from the batch "
            "before it is stored"
        )
    if array.ndim == 0:
        raise ValueError(f"Column {name!r} is a single value, wanted an array [B, ...]")
    return array


def _check_lengths(arrays: Mapping[str, Array]) -> None:
    if not arrays:
        raise ValueError("The batch has no column to store; wanted at least one, such as obs")
    lengths = {name: len(array) for name, array in arrays.items()}
    first = next(iter(lengths.values()))
    for name, length in lengths.items():
        if length != first:
            raise ValueError(f"Column {name!r} has {length} rows, wanted {first}; all columns of the batch: {lengths}")
