"""Names, dtypes and shapes of what a replay buffer stores: the first batch settles them, later ones have to agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS, OBS
from rlframe.replay.memory_budget import check_fits, memory_bytes
from rlframe.replay.observation_rows import ObservationStore
from rlframe.replay.storable_columns import LINK_BYTES

Array = NDArray[Any]


class ColumnSchema:
    """What a `TransitionStore` does at its first batch, and where a batch is not like that one."""

    capacity: int
    bytes_per_transition: int
    _limit: int | None
    _schema: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
    _columns: dict[str, Array]
    _observations: ObservationStore | None

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
            self.bytes_per_transition += (copies - 2) * sizes[OBS] + LINK_BYTES
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
