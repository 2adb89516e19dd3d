"""The columns of the transitions in a replay buffer: a ring of slots, allocated like the first batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS, OBS
from rlframe.replay.buffer_state import StoreState
from rlframe.replay.column_schema import ColumnSchema
from rlframe.replay.observation_rows import ObservationStore, StepKeys
from rlframe.replay.storable_columns import as_arrays

Array = NDArray[Any]
Indexes = NDArray[np.int64]


class TransitionStore(ColumnSchema, StoreState):
    """The latest `capacity` transitions as arrays, one per column.

    Transitions are numbered as they are added. Number i is in slot `i % capacity`; alive are those in [oldest, end).

    Args:
        capacity: Transitions kept.
        not_stored: Columns that are left out.
        memory_limit_bytes: What it may take when full; None for the memory of the machine (or container).
    """

    def __init__(self, capacity: int, not_stored: frozenset[str], memory_limit_bytes: int | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 transition, got {capacity}")
        self.capacity = capacity
        self.oldest = 0
        self.end = 0
        self._not_stored = not_stored
        self._limit = memory_limit_bytes
        self._schema: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self._columns: dict[str, Array] = {}
        self._observations: ObservationStore | None = None
        self.bytes_per_transition = 0

    def __len__(self) -> int:
        """Number of transitions alive."""
        return self.end - self.oldest

    def add(self, batch: Mapping[str, Any]) -> tuple[int, int]:
        """Stores the rows of a batch, in place of the oldest.

        Returns:
            The numbers of the transitions that were stored, as (first, end): of a batch with more rows than the
            capacity, the last ones.

        Raises:
            ValueError: If columns differ from those of the first batch, or will not fit into memory.
        """
        columns, count = self._conforming(batch)
        if count > self.capacity:
            columns = {name: column[-self.capacity :] for name, column in columns.items()}
            count = self.capacity
        first, end = self.end, self.end + count
        oldest = max(self.oldest, end - self.capacity)
        if self._observations is not None:  # drops what is overwritten, and more where memory for observations is short
            keys = StepKeys.of_batch(columns)
            oldest = self._observations.append(first, self.oldest, columns[OBS], columns[NEXT_OBS], keys)
        start = first % self.capacity
        slots: Any = slice(start, start + end - first)
        if start + end - first > self.capacity:
            slots = np.arange(first, end) % self.capacity
        for name, stored in self._columns.items():
            stored[slots] = columns[name]
        self.oldest, self.end = oldest, end
        return first, end

    def gather(self, slots: Indexes) -> dict[str, Array]:
        """Returns the rows in `slots`, every column a fresh array. `[B, ...]`."""
        data: dict[str, Array] = {}
        if self._observations is not None:
            data[OBS], data[NEXT_OBS] = self._observations.gather(slots)
        for name, column in self._columns.items():
            data[name] = column.take(slots, 0, None, "clip")
        return data

    def slots_of(self, numbers: Indexes) -> Indexes:
        """Returns the slots of transitions. int64 `[B]`."""
        return numbers % self.capacity if self.end > self.capacity else numbers

    def numbers_of(self, slots: Indexes) -> Indexes:
        """Returns the numbers of the transitions now in `slots`. int64 `[B]`."""
        if self.end <= self.capacity:
            return slots
        place = self.end % self.capacity
        return slots + (self.end - place) - self.capacity * (slots >= place)

    # ---- the first batch decides ----------------------------------------------------------------------------------

    def _conforming(self, batch: Mapping[str, Any]) -> tuple[dict[str, Array], int]:
        """Returns the columns to store and their length; raises ValueError unless they are as in the first batch."""
        columns = {name: column for name, column in batch.items() if name not in self._not_stored}
        if self._schema:
            count = self._matching_rows(columns)
            if count is not None:
                return columns, count
        columns = as_arrays(batch, columns)
        if self._schema:
            columns = {name: self._as_stored(name, column) for name, column in columns.items()}
            self._check_schema(columns)
        else:
            copies = 2 if StepKeys.of_batch(columns) is None else 1
            self._allocate({name: (column.dtype, column.shape[1:]) for name, column in columns.items()}, copies)
        return columns, len(next(iter(columns.values())))

    def _matching_rows(self, columns: Mapping[str, Any]) -> int | None:
        """Returns the number of rows if the columns are arrays like those of the first batch, else None."""
        if len(columns) != len(self._schema):
            return None
        counts = set()
        for name, (dtype, shape) in self._schema.items():
            column = columns.get(name)
            if column.__class__ is not np.ndarray or column.dtype != dtype or column.shape[1:] != shape:
                return None
            counts.add(len(column) if column.ndim else -1)
        return counts.pop() if len(counts) == 1 and -1 not in counts else None
