"""Experience in Parquet: columns with dtypes and shapes, in groups of rows that hold whole episodes.

A column of numbers by row is stored as one, a column of arrays as lists of equal length; what the file's metadata has
under "rlframe" says their dtypes and shapes. Values in `infos` are stored as JSON. Files of other writers are read by
what their columns are.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.column_dict import is_per_sequence, trajectory_ends
from rlframe.data.columns import AGENT_INDEX, DONES, EPS_ID, SEQ_LENS
from rlframe.data.compression import unpack_leaf
from rlframe.data.nested import Column
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.episode_file import (
    OTHERS_NAMES,
    PIECE_ROWS,
    ColumnForm,
    EpisodeFile,
    as_single,
    check_columns,
    forms_of,
    piece_bounds,
)
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import plain_values
from rlframe.offline.json_writer import normalized_by, open_output, output_directory
from rlframe.offline.output_writer import OutputWriter
from rlframe.utils.errors import DataError

_KEY = b"rlframe"
_INNER = "/"
#: What the names of files end with that are being written: readers of a directory pass them by.
_UNFINISHED = "parquet.part"
#: Rows of episodes that go on wait for their end, up to so many groups.
_MOST_WAITING = 8


class ParquetFile(EpisodeFile):
    """A Parquet file; the pieces are its groups of rows, of which one is in memory at a time.

    Args:
        path: A path, which is mapped into memory, or an address.
        schema: Headers by our columns' names, for tables of others; see `TableSchema`.

    Raises:
        DataError: If it is none, or was cut short.
    """

    def __init__(self, path: str, schema: Any = None) -> None:
        import pyarrow
        import pyarrow.parquet as pq

        self.path, self._schema = path, schema
        try:
            if "://" in path:
                import fsspec  # type: ignore[import-untyped]

                self._file = pq.ParquetFile(fsspec.open(path, "rb").open())
            else:
                self._file = pq.ParquetFile(path, memory_map=True)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(
                f"{path}: got no Parquet file, or one that is cut short ({error}); write it again"
            ) from error
        metadata = self._file.metadata
        if not metadata.num_rows:
            raise DataError(f"{path}: got no rows")
        counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self.bounds = [0, *np.cumsum(counts).tolist()]
        said = json.loads((self._file.schema_arrow.metadata or {}).get(_KEY, b"{}"))
        self._said = {
            name: ColumnForm(form["dtype"], tuple(form["shape"])) for name, form in said.get("columns", {}).items()
        }
        self.actions_normalized, self.policy = said.get("actions_normalized"), said.get("policy")
        self.forms = self._said or forms_of(self.read(0))

    def read(self, piece: int) -> SampleBatch:
        """Returns the rows of a group."""
        import pyarrow

        try:
            table = self._file.read_row_group(piece, use_threads=False)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(
                f"{self.path}: row group {piece} (rows {self.bounds[piece]} to {self.bounds[piece + 1] - 1}) cannot be "
                f"read ({error}); write the file again"
            ) from error
        arrays = {name: self._array(name, table.column(name), piece) for name in table.column_names}
        if self._schema is not None:
            return SampleBatch(self._schema.columns(self.path, arrays, self.bounds[piece]))
        return SampleBatch(_nested({OTHERS_NAMES.get(name, name): array for name, array in arrays.items()}))

    def _array(self, name: str, column: Any, piece: int) -> Any:
        import pyarrow

        # Groups are small enough for one chunk; of several, one is made.
        joined = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
        form = self._said.get(name)
        if form is not None and form.dtype == "json":
            return _parsed(joined)
        if pyarrow.types.is_fixed_size_list(joined.type):
            values = joined.flatten().to_numpy(zero_copy_only=False)
            array = values.reshape(len(joined), -1)
        elif pyarrow.types.is_list(joined.type) or pyarrow.types.is_large_list(joined.type):
            array = self._of_lists(name, joined, piece)
        else:
            array = joined.to_numpy(zero_copy_only=False)
        if form is None:
            return as_single(array)
        return array.astype(np.dtype(form.dtype), copy=False).reshape(len(array), *form.shape)

    def _of_lists(self, name: str, lists: Any, piece: int) -> NDArray[Any]:
        lengths = np.diff(lists.offsets.to_numpy())
        odd = np.flatnonzero(lengths != lengths[0])
        if len(odd):
            raise DataError(
                f"{self.path}: column {name!r}: got {lengths[odd[0]]} values in row {self.bounds[piece] + odd[0]}, "
                f"wanted {lengths[0]}, as in the row {self.bounds[piece]}"
            )
        values: NDArray[Any] = np.asarray(lists.flatten().to_numpy(zero_copy_only=False))
        return values.reshape(len(lists), -1)


class ParquetWriter(OutputWriter):
    """Writes batches into `output-<time>_worker-<index>_<number>.parquet`, whole episodes in each group of rows.

    Rows of several policies go into files of their own, `..._<number>.<policy>.parquet`, which say whose they are; one
    episode has the same `eps_id` in all of them. Rows wait in memory for the end of their episode, and for a group to
    be full. A file can be read from when it is closed: when it has its size, and when the writer is, at the latest when
    the program ends or the writer is forgotten; until then it has another name.

    Args:
        path: Directory, which is made if there is none; or an address such as `s3://bucket/folder`.
        ioctx: The worker's context.
        max_file_size: Size at which a new file is begun, bytes of rows in memory.
        group_rows: Rows of a group, about.
        compression: "lz4", "zstd", "snappy" or "none".
        actions_normalized: Whether actions are as policies choose them; by default what the context's config says.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        ioctx: IOContext | None = None,
        max_file_size: int = 64 * 1024 * 1024,
        group_rows: int = PIECE_ROWS,
        compression: str = "lz4",
        actions_normalized: bool | None = None,
    ) -> None:
        self.ioctx = ioctx or IOContext()
        self.path = output_directory(path)
        normalized = normalized_by(self.ioctx) if actions_normalized is None else actions_normalized
        # Without the worker, which would live as long as the program if what closes the file knew it.
        named = IOContext(worker_index=self.ioctx.worker_index)
        self._made = functools.partial(
            _GroupedRows, self.path, named, max_file_size, group_rows, compression, normalized
        )
        #: By policy; None where batches are of one policy that has no name.
        self._rows: dict[str | None, _GroupedRows] = {}
        self._at_end = weakref.finalize(self, _close_all, self._rows)

    def write(self, sample_batch: SampleBatch | MultiAgentBatch) -> None:
        """Takes a batch; its rows are on disk when their group is full, or the writer is closed.

        A column whose numbers get fractions after it began with integers becomes one of floats, in a file of its own.

        Raises:
            DataError: If it holds what Parquet has no form for, or columns of another form than those before.
        """
        several = sample_batch.policy_batches if isinstance(sample_batch, MultiAgentBatch) else None
        parts: Mapping[Any, SampleBatch] = {None: sample_batch} if several is None else several  # type: ignore[dict-item]
        for policy, rows in parts.items():
            if rows.count:
                if policy not in self._rows:
                    self._rows[policy] = self._made(policy)
                self._rows[policy].add(_flat(rows))

    def close(self) -> None:
        """Writes what waits, and ends the files; the next batch begins others."""
        _close_all(self._rows)


def _close_all(rows: Mapping[str | None, _GroupedRows]) -> None:
    """Ends files, also those behind one that fails."""
    failures = []
    for one in rows.values():
        try:
            one.close()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


class _GroupedRows:
    """The rows that wait for their group, and the file that groups are written into.

    Args:
        path: Directory or address.
        ioctx: Tells the worker's index.
        max_file_size: Size at which a new file is begun, bytes.
        group_rows: Rows of a group, about.
        compression: Of the file.
        normalized: What the file says of its actions.
        policy: Whose rows they are; None where there is one policy.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the writer's, and whose rows they are
        self, path: str, ioctx: IOContext, max_file_size: int, group_rows: int, compression: str,
        normalized: bool | None, policy: str | None,
    ) -> None:  # fmt: skip
        self.path, self.ioctx, self.file_index = path, ioctx, 0
        self._max_file_size, self._group_rows, self._compression = max_file_size, group_rows, compression
        self._normalized, self._policy = normalized, policy
        self._waiting: list[SampleBatch] = []
        self.held, self._due, self._bytes = 0, group_rows, 0
        self._writer: Any = None
        self._file: Any = None
        self._forms: dict[str, ColumnForm] = {}

    def add(self, flat: dict[str, NDArray[Any]]) -> None:
        """Takes rows, and writes the groups that are full."""
        forms = forms_of(flat)
        if not self._forms:
            self._forms = forms
        check_columns(self.path, forms, "the batches before", self._forms)
        if forms != self._forms:
            flat = self._promote(flat, forms)
        self._waiting.append(SampleBatch(flat))
        self.held += self._waiting[-1].count
        if self.held >= self._due:
            self._write_groups(all_rows=False)
            self._due = self._group_rows + self.held
            if self._bytes >= self._max_file_size:
                self._end_file()

    def close(self) -> None:
        """Writes what waits, and ends the file."""
        if self._waiting:
            self._write_groups(all_rows=True)
        self._end_file()
        self._forms = {}

    def _promote(self, flat: dict[str, NDArray[Any]], forms: dict[str, ColumnForm]) -> dict[str, NDArray[Any]]:
        """Returns rows as the columns' forms have them, which become wider where they cannot hold the rows."""
        wider = {name: _wider(self.path, name, form, forms[name]) for name, form in self._forms.items()}
        if wider != self._forms:
            self._waiting = [SampleBatch(_cast(self.path, batch, wider)) for batch in self._waiting]
            self._end_file()
            self._forms = wider
        return _cast(self.path, flat, wider)

    def _write_groups(self, *, all_rows: bool) -> None:
        rows = SampleBatch.concat_samples(self._waiting)
        rows, ended = _episodes_together(rows)
        all_rows |= rows.count > _MOST_WAITING * self._group_rows
        if all_rows:
            ended = rows.count
        ends = np.flatnonzero(trajectory_ends(rows[:ended]))
        bounds = piece_bounds(ends, self._group_rows) if ended else [0]
        if not all_rows and bounds[-1] - bounds[-2:][0] < self._group_rows:
            bounds = bounds[:-1] or [0]
        for start, stop in itertools.pairwise(bounds):
            self._write_group(rows[start:stop])
        self._waiting = [rows[bounds[-1] :]] if bounds[-1] < rows.count else []
        self.held = rows.count - bounds[-1]

    def _write_group(self, rows: SampleBatch) -> None:
        import pyarrow
        import pyarrow.parquet as pq

        columns = {name: _as_arrow(name, column, self._forms[name]) for name, column in rows.items()}
        table = pyarrow.table(columns)
        if self._writer is None:
            said: dict[str, Any] = {
                "columns": {name: {"dtype": form.dtype, "shape": form.shape} for name, form in self._forms.items()},
                "actions_normalized": self._normalized,
            }
            if self._policy is not None:
                said["policy"] = self._policy
            self._file = open_output(self, self._ending())
            schema = table.schema.with_metadata({_KEY: json.dumps(said).encode()})
            self._writer = pq.ParquetWriter(
                self._file, schema, compression=self._compression, use_dictionary=False, write_statistics=False
            )
        self._writer.write_table(table.cast(self._writer.schema), row_group_size=rows.count)
        self._bytes += rows.size_bytes()

    def _ending(self) -> str:
        """Returns what the name of a file ends with while it is written; of a policy's id what names may have."""
        whose = "" if self._policy is None else f"{re.sub(r'[^A-Za-z0-9_-]', '_', self._policy)}."
        return f"{whose}{_UNFINISHED}"

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            _give_name(self.path, self._file)
            self._writer = self._file = None
        self._bytes = 0


def _episodes_together(rows: SampleBatch) -> tuple[SampleBatch, int]:
    """Returns rows with those of each episode side by side, ended ones first, and how many rows have ended.

    Fragments of several environments that step together come in turns.
    """
    if EPS_ID not in rows or DONES not in rows:
        return rows, rows.count
    keys = [np.asarray(rows[name]) for name in (EPS_ID, AGENT_INDEX) if name in rows]
    _, first, number = np.unique(np.stack(keys, 1), axis=0, return_index=True, return_inverse=True)
    ended = np.zeros(len(first), bool)
    ended[number[np.asarray(rows[DONES], bool)]] = True
    order = np.lexsort((first[number], ~ended[number]))
    return rows.take(order), int(ended[number].sum())


def _give_name(directory: str, file: Any) -> None:
    """Gives a file that is written to its end the name by which it is read."""
    if "://" in directory:
        import fsspec

        system, _ = fsspec.core.url_to_fs(directory)
        system.mv(file.path, file.path.removesuffix(_UNFINISHED) + "parquet")
        return
    os.replace(file.name, file.name.removesuffix(_UNFINISHED) + "parquet")


def _flat(batch: SampleBatch) -> dict[str, NDArray[Any]]:
    """Returns a batch's columns by row, nested ones by the path to their leaves."""
    made: dict[str, NDArray[Any]] = {}

    def add(name: str, column: Column) -> None:
        if isinstance(column, Mapping):
            for key, part in column.items():
                add(f"{name}{_INNER}{key}", part)
        elif isinstance(column, tuple):
            for index, part in enumerate(column):
                add(f"{name}{_INNER}#{index}", part)
        else:
            made[name] = np.asarray(unpack_leaf(column))

    by_sequence = SEQ_LENS in batch and len(batch[SEQ_LENS]) != batch.count
    for name, column in batch.items():
        if name != SEQ_LENS and not (by_sequence and is_per_sequence(name)):
            add(name, column)
    return made


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Returns columns as they were before `_flat`."""
    grouped: dict[str, Any] = {}
    for name, column in flat.items():
        first, _, rest = name.partition(_INNER)
        if rest and isinstance(grouped.setdefault(first, {}), dict):
            grouped[first][rest] = column
        else:
            grouped[name] = column
    return {name: _structure(part) if isinstance(part, dict) else part for name, part in grouped.items()}


def _structure(parts: dict[str, Any]) -> Any:
    made = _nested(parts)
    if all(name.startswith("#") for name in made):
        return tuple(made[f"#{index}"] for index in range(len(made)))
    return made


def _wider(path: str, name: str, one: ColumnForm, other: ColumnForm) -> ColumnForm:
    """Returns the form that holds the numbers of both; of integers and floats, the floats' own.

    Raises:
        DataError: If one holds objects, and the other numbers.
    """
    if one.dtype == other.dtype:
        return one
    if "json" in {one.dtype, other.dtype}:
        raise DataError(
            f"{path}: column {name!r}: got {other.dtype}, wanted {one.dtype}, as in the batches before; a column holds "
            "numbers or objects"
        )
    types = [np.dtype(one.dtype), np.dtype(other.dtype)]
    floats = [dtype for dtype in types if dtype.kind == "f"]
    made = floats[0] if len(floats) == 1 else np.result_type(*types)
    return ColumnForm(made.str, one.shape)


def _cast(path: str, columns: Mapping[str, Any], forms: Mapping[str, ColumnForm]) -> dict[str, NDArray[Any]]:
    """Returns columns in the dtypes of forms.

    Raises:
        DataError: If an integer is none of the floats that the column holds elsewhere.
    """
    made = {}
    for name, column in columns.items():
        made[name] = column if forms[name].dtype == "json" else column.astype(forms[name].dtype, copy=False)
        if column.dtype.kind in "iu" and made[name].dtype.kind == "f" and (made[name] != column).any():
            raise DataError(
                f"{path}: column {name!r}: got integers that {made[name].dtype} does not hold, which the column has "
                f"elsewhere; wanted one dtype, such as float64, in all rows"
            )
    return made


def _as_arrow(name: str, column: NDArray[Any], form: ColumnForm) -> Any:
    import pyarrow

    if form.dtype == "json":
        return pyarrow.array([json.dumps(value) for value in plain_values(name, column)])
    column = np.ascontiguousarray(column, np.dtype(form.dtype))
    if not form.shape:
        return pyarrow.array(column)
    width = int(np.prod(form.shape))
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(column.reshape(-1)), width)


def _parsed(texts: Any) -> NDArray[Any]:
    made = np.empty(len(texts), dtype=object)
    made[:] = [json.loads(text) for text in texts.to_pylist()]
    return made


__all__ = ["ParquetFile", "ParquetWriter"]
