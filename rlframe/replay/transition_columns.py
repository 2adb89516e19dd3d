"""The columns of the transitions in a replay buffer: a ring of slots, allocated like the first batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS, OBS
from rlframe.replay.memory_budget import check_fits, memory_bytes
from rlframe.replay.observation_rows import ObservationStore, StepKeys
from rlframe.replay.storable_columns import GO_ON_WITHOUT, as_arrays, row_bytes
from rlframe.utils.errors import CheckpointError

Array = NDArray[Any]
Indexes = NDArray[np.int64]


_LINK_BYTES = 17  # of one transition in an ObservationStore: two row numbers and a flag


class TransitionStore:
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

    def size_bytes(self) -> int:
        """Returns the bytes that have been written to."""
        used = min(self.end, self.capacity)
        total = sum(used * row_bytes(column) for column in self._columns.values())
        if self._observations is not None:
            total += self._observations.rows_touched * self._observations.row_bytes + used * _LINK_BYTES
        return total

    def bytes_by_column(self) -> dict[str, int]:
        """Returns the bytes that have been written to, column by column; `obs` stands for `new_obs` where shared."""
        used = min(self.end, self.capacity)
        sizes = {name: used * row_bytes(column) for name, column in self._columns.items()}
        if self._observations is not None:
            sizes[OBS] = self._observations.rows_touched * self._observations.row_bytes
        return sizes

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

    def _as_stored(self, name: str, column: Array) -> Array:
        """Returns a column in the dtype of what is stored, where one dtype holds both: as programs' batches may differ.

        Text, integers and kinds of numbers widen what is stored, as joining batches would; floats are stored as in the
        first batch. Observations of another kind stay as they are, and are refused: bytes are scaled, floats are not.
        """
        dtype, shape = self._schema.get(name, (column.dtype, ()))
        both = dtype.kind + column.dtype.kind
        mixes = set(both) <= set("biuf") or both in ("UU", "SS")
        if dtype == column.dtype or column.shape[1:] != shape or not mixes:
            return column
        if both == "ff":
            return column.astype(dtype)
        wide = np.result_type(dtype, column.dtype)
        if wide != dtype:
            if name in (OBS, NEXT_OBS):
                return column
            self._columns[name] = self._columns[name].astype(wide)
            self._schema[name] = (wide, shape)
        return column.astype(wide)

    def _check_schema(self, columns: Mapping[str, Array]) -> None:
        """Raises ValueError naming the first column that is not as in the first batch."""
        for name in (*self._schema, *columns):
            if (name in columns) != (name in self._schema):
                how = "new" if name in columns else "missing"
                raise ValueError(
                    f"Column {name!r} is {how}: got columns {sorted(columns)}, wanted those of the first batch added "
                    f"to this replay buffer, {sorted(self._schema)}; make all batches alike"
                )
            dtype, shape = self._schema[name]
            column = columns[name]
            if column.dtype != dtype or column.shape[1:] != shape:
                raise ValueError(
                    f"Column {name!r}: got rows of {column.dtype} {column.shape[1:]}, wanted {dtype} {shape} as in the "
                    "first batch added to this replay buffer; make all batches alike"
                )

    def _allocate(self, schema: dict[str, tuple[np.dtype[Any], tuple[int, ...]]], copies: int) -> None:
        """Makes room for `capacity` transitions; the memory is committed only as it is used."""
        limit = memory_bytes() if self._limit is None else self._limit
        paired = OBS in schema and schema.get(NEXT_OBS) == schema[OBS]
        sizes = {name: dtype.itemsize * int(np.prod(shape)) for name, (dtype, shape) in schema.items()}
        self.bytes_per_transition = sum(sizes.values())
        if paired:
            self.bytes_per_transition += (copies - 2) * sizes[OBS] + _LINK_BYTES
        check_fits(self.capacity, self.bytes_per_transition, limit)
        self._schema = schema
        self._columns = {
            name: np.empty((self.capacity, *shape), dtype)
            for name, (dtype, shape) in schema.items()
            if not (paired and name in (OBS, NEXT_OBS))
        }
        if paired:
            dtype, shape = schema[OBS]
            # Rows beyond the machine's memory could be reserved but never used; without them transitions go earlier.
            fits = None if limit is None else max(self.capacity, limit // max(1, sizes[OBS]))
            self._observations = ObservationStore(self.capacity, shape, dtype, max_rows=fits)

    # ---- state ----------------------------------------------------------------------------------------------------

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns the used part of the store as plain state; `copy=False` gives views, valid until the next `add`."""
        used = min(self.end, self.capacity)
        columns = {name: column[:used] for name, column in self._columns.items()}
        store = self._observations
        return {
            "capacity": self.capacity,
            "oldest": self.oldest,
            "end": self.end,
            "columns": {name: column.copy() if copy else column for name, column in columns.items()},
            "observations": None if store is None else store.get_state(used, copy=copy),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a store of the same capacity; what was stored here is forgotten.

        Raises:
            CheckpointError: If the capacity differs.
            ValueError: If the full buffer will not fit into memory.
        """
        if state["capacity"] != self.capacity:
            raise CheckpointError(
                f"The saved replay buffer has capacity {state['capacity']}, this one {self.capacity}; set it to "
                f"{state['capacity']}, or {GO_ON_WITHOUT}"
            )
        schema = {name: (column.dtype, column.shape[1:]) for name, column in state["columns"].items()}
        saved = state["observations"]
        if saved is not None:
            schema[OBS] = schema[NEXT_OBS] = (saved["rows"].dtype, saved["rows"].shape[1:])
        self._schema, self._columns, self._observations = {}, {}, None
        if schema:
            self._allocate(schema, copies=1)
        for name, column in state["columns"].items():
            self._columns[name][: len(column)] = column
        if self._observations is not None:
            self._observations.set_state(saved)
        self.oldest, self.end = int(state["oldest"]), int(state["end"])

    def check_invariants(self) -> None:
        """Raises AssertionError if the store contradicts itself."""
        if not 0 <= len(self) <= self.capacity or self.oldest < 0:
            raise AssertionError(f"Transitions [{self.oldest}, {self.end}) in {self.capacity} slots")
        if self._observations is not None:
            self._observations.check_invariants(self.oldest, self.end)
