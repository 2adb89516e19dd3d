"""Batches from rows that come one by one, as programs that drive an environment themselves have them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import SEQ_LENS, UNROLL_ID
from rlframe.data.sample_batch import SampleBatch

_UNROLLS = itertools.count()


def to_float_array(v: list[Any] | NDArray[Any]) -> NDArray[Any]:
    """Returns values as an array, float64 as float32."""
    array = np.array(v)
    return array.astype(np.float32) if array.dtype == np.float64 else array


class SampleBatchBuilder:
    """Collects rows, and makes a batch of them.

    Attributes:
        buffers: The values collected since the last batch, by column.
        count: Number of rows collected since the last batch.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, list[Any]] = {}
        self.count = 0

    def add_values(self, **values: Any) -> None:
        """Adds one row.

        Args:
            **values: Its values by column.

        Raises:
            ValueError: If the columns are others than those of the rows before; nothing is added then.
        """
        if self.count and values.keys() != self.buffers.keys():
            raise ValueError(f"got a row with the columns {sorted(values)}, wanted {sorted(self.buffers)}, as before")
        for name, value in values.items():
            self.buffers.setdefault(name, []).append(value)
        self.count += 1

    def add_batch(self, batch: SampleBatch) -> None:
        """Adds the rows of a batch."""
        for row in batch.rows():
            self.add_values(**{key: value for key, value in row.items() if key != SEQ_LENS})

    def build_and_reset(self) -> SampleBatch:
        """Returns the batch of all rows, float64 as float32, and begins anew.

        Without a column `unroll_id`, the rows get a number that no other batch of this process has.
        """
        made = SampleBatch({name: to_float_array(values) for name, values in self.buffers.items()})
        if self.count and UNROLL_ID not in made:
            made[UNROLL_ID] = np.full(self.count, next(_UNROLLS))
        self.buffers, self.count = {}, 0
        return made
