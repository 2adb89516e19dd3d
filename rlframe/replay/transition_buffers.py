"""The latest transitions, in a ring of slots, and the buffer that draws from them uniformly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlframe.data.columns import BATCH_INDEXES, INFOS, NEXT_OBS, OBS
from rlframe.data.sample_batch import SampleBatch
from rlframe.replay.buffer_state import BufferState, StoreState
from rlframe.replay.column_schema import ColumnSchema
from rlframe.replay.observation_rows import ObservationStore, StepKeys
from rlframe.replay.rllib_names import RLlibBufferNames
from rlframe.replay.sequence_store import SequenceStore
from rlframe.replay.storable_columns import as_arrays
from rlframe.utils.seeding import entropy_seed, make_rng

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


class ReplayBuffer(RLlibBufferNames, BufferState):
    """The latest `capacity` transitions, drawn uniformly with replacement.

    Every row of a batch is one transition. Columns become arrays at the first `add`, with its names, dtypes and shapes;
    later batches must have the same. Where rows say by `eps_id` and `t` which steps they are, each observation is
    stored once though two transitions use it. `infos` are not stored: a dict per step would outweigh all the rest.

    With a `SequenceStore`, what is stored, counted and drawn is sequences.

    Args:
        capacity: Transitions kept; the oldest go first.
        seed: Seed of the draws; None for a fresh one.
        size: Old name of `capacity`.
        rng: Generator of the draws, in place of `seed`.
        memory_limit_bytes: What a full buffer may take; None for the memory of the machine (or container).
        store: A store of sequences, of which the capacity counts; None stores single transitions.
    """

    _not_stored: frozenset[str] = frozenset({INFOS, BATCH_INDEXES})

    def __init__(
        self,
        capacity: int = 10_000,
        seed: int | None = None,
        *,
        size: int | None = None,
        rng: np.random.Generator | None = None,
        memory_limit_bytes: int | None = None,
        store: SequenceStore | None = None,
    ) -> None:
        capacity = capacity if size is None else size
        self._store: TransitionStore | SequenceStore = (
            TransitionStore(capacity, self._not_stored, memory_limit_bytes) if store is None else store
        )
        self._rng = make_rng(entropy_seed() if seed is None else seed, "replay") if rng is None else rng
        self._num_sampled = 0

    @property
    def capacity(self) -> int:
        """Most transitions that are kept."""
        return self._store.capacity

    @property
    def stores_sequences(self) -> bool:
        """Whether what is stored is sequences."""
        return isinstance(self._store, SequenceStore)

    @property
    def full_size_bytes(self) -> int:
        """Estimate of a full buffer, with one observation per transition where they are shared; 0 before `add`."""
        return self.capacity * self._store.bytes_per_transition

    def __len__(self) -> int:
        """Number of transitions that can be drawn."""
        return len(self._store)

    def add(self, item: Mapping[str, Any], weight: ArrayLike | None = None) -> None:
        """Stores every row of a batch, in place of the oldest transitions.

        Args:
            item: Columns `[B, ...]`, a SampleBatch or a dict. An RLlib item of one row is a batch with B = 1.
            weight: Not used here; the initial priority in a buffer with priorities.

        Raises:
            ValueError: If columns differ from those of the first batch, or the full buffer will not fit into memory.
        """
        del weight
        self._store.add(item)

    def add_batch(self, batch: Mapping[str, Any]) -> None:
        """Stores every row of a batch, as `add` does."""
        self.add(batch)

    def sample(self, num_items: int) -> SampleBatch:
        """Returns `num_items` transitions drawn uniformly, with replacement.

        Raises:
            ValueError: If the buffer is empty, or `num_items` is below 1.
        """
        self._check_sample(num_items)
        store = self._store
        slots = self._rng.integers(0, len(store), num_items)
        if store.oldest % store.capacity and len(store) < store.capacity:
            slots = (slots + store.oldest) % store.capacity
        self._num_sampled += num_items
        return SampleBatch.from_columns(store.gather(slots))

    @property
    def numbers(self) -> tuple[int, int]:
        """The transitions that can be drawn, counted as they were added: (first, end)."""
        return self._store.oldest, self._store.end

    def take(self, numbers: Indexes) -> SampleBatch:
        """Returns the transitions of these numbers, int64 `[B]`, each of them in the range that `numbers` tells."""
        self._num_sampled += len(numbers)
        return SampleBatch.from_columns(self._store.gather(self._store.slots_of(numbers)))

    def _check_sample(self, num_items: int) -> None:
        if num_items < 1:
            raise ValueError(f"Cannot draw {num_items} transitions; wanted at least 1")
        if not len(self._store):
            raise ValueError("The replay buffer is empty; add a batch before sampling")
