"""Batches from rows that come one by one, as programs that drive an environment themselves have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.sample_batch import SampleBatch


class SampleBatchBuilder:
    """Collects rows, and makes a batch of them.

    Attributes:
        count: Number of rows collected since the last batch.
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {}
        self.count = 0

    def add_values(self, **values: Any) -> None:
        """Adds one row.

        Args:
            **values: Its values by column.

        Raises:
            ValueError: If the columns are others than those of the rows before; nothing is added then.
        """
        if self.count and values.keys() != self._columns.keys():
            raise ValueError(f"got a row with the columns {sorted(values)}, wanted {sorted(self._columns)}, as before")
        for name, value in values.items():
            self._columns.setdefault(name, []).append(value)
        self.count += 1

    def add_batch(self, batch: SampleBatch) -> None:
        """Adds the rows of a batch."""
        for row in batch.rows():
            self.add_values(**row)

    def build_and_reset(self) -> SampleBatch:
        """Returns the batch of all rows, and begins anew."""
        made = SampleBatch({name: np.array(values) for name, values in self._columns.items()})
        self._columns, self.count = {}, 0
        return made
