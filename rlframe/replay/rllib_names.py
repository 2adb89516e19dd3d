"""Private names of RLlib's replay buffers that programs read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.data.sample_batch import SampleBatch


class StoredItems(Sequence[Any]):
    """What a buffer holds, oldest first: each transition a batch of one row, made when it is asked for."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def __len__(self) -> int:
        return len(self._buffer)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        first = self._buffer.numbers[0]
        number = first + range(len(self))[place]
        store = self._buffer._store
        return SampleBatch.from_columns(store.gather(store.slots_of(np.array([number]))))


class RLlibBufferNames:
    """Attributes of every buffer for the sake of RLlib's names alone."""

    @property
    def _storage(self) -> StoredItems:
        return StoredItems(self)

    @property
    def _next_idx(self: Any) -> int:
        next_slot: int = self.numbers[1] % self.capacity
        return next_slot
