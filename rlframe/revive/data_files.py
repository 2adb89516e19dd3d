"""Arrays from the user's files: `.npz` and `.h5` by node, `.parquet` and `.csv` by column."""

from __future__ import annotations

import csv
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.graph_file import near
from rlframe.utils.errors import DataError

if TYPE_CHECKING:
    from rlframe.revive.graph import DecisionGraph

__all__ = ["TRAJECTORY_NAMES", "read_archive", "read_arrays", "read_table"]

#: What a table's column of trajectory numbers may be called.
TRAJECTORY_NAMES = ("trajectory", "trajectory_id", "traj_id", "traj", "episode", "episode_id", "eps_id")

Arrays = dict[str, NDArray[Any]]
#: How pandas writes columns of truth values.
_TRUTH = {"true": 1.0, "false": 0.0, "": np.nan}


def read_arrays(path: Path, graph: DecisionGraph) -> Arrays:
    """Returns a file's arrays by node, with `index` where the file says where trajectories end.

    Raises:
        DataError: The file is not there, is cut short, or of another kind.
    """
    if path.suffix in _BY_NODE:
        return _read(path, _BY_NODE[path.suffix])
    if path.suffix in _BY_COLUMN:
        return _by_node(path, read_table(path), graph)
    known = [*_BY_NODE, *_BY_COLUMN]
    raise DataError(f"{path}: got a file {path.suffix or 'without a suffix'!r}; wanted one of {', '.join(known)}")


def read_archive(path: Path) -> Arrays:
    """Returns the arrays of an `.npz` file by name.

    Raises:
        DataError: As `read_arrays`.
    """
    return _read(path, _read_npz)


def read_table(path: Path) -> Arrays:
    """Returns the columns of a `.csv` or `.parquet` file.

    Raises:
        DataError: As `read_arrays`, or it has no rows.
    """
    if path.suffix not in _BY_COLUMN:
        raise DataError(f"{path}: got a file {path.suffix or 'without a suffix'!r}; wanted {' or '.join(_BY_COLUMN)}")
    table = _read(path, _BY_COLUMN[path.suffix])
    if not len(next(iter(table.values()), ())):
        raise DataError(f"{path}: got no rows; wanted at least one trajectory")
    return table


def _read(path: Path, read: Callable[[Path], Arrays]) -> Arrays:
    if not path.is_file():
        raise DataError(f"{path}: there is no such data file")
    try:
        return read(path)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, struct.error,
            csv.Error) as error:  # fmt: skip
        if isinstance(error, DataError):
            raise
        if isinstance(error, UnicodeDecodeError):
            raise DataError(f"{path}: byte {error.start} is no UTF-8; save the table as CSV in UTF-8") from error
        said = " ".join(str(error).split())
        raise DataError(f"{path}: the file cannot be read, it may be cut short or of another kind: {said}") from error


def _read_npz(path: Path) -> Arrays:
    if not zipfile.is_zipfile(path):
        raise DataError(
            f"{path}: got no archive of np.savez, with one array for each node, or one that is cut short; write it "
            "again"
        )
    with np.load(path, allow_pickle=False) as file:
        return {name: _numbers_of(path, file, name) for name in file.files}


def _numbers_of(path: Path, file: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(file[name])
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path}: array {name!r} holds Python's objects (dtype object); save numbers: {name}.astype(np.float32)"
        ) from error


def _read_hdf5(path: Path) -> Arrays:
    try:
        import h5py
    except ImportError:
        raise DataError(f"{path}: HDF5 needs h5py; pip install h5py, or write an .npz") from None
    with h5py.File(path, "r") as file:
        return {name: np.asarray(file[name]) for name in file if hasattr(file[name], "shape")}


def _read_parquet(path: Path) -> Arrays:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install 'rlframe[offline]', or write a .csv") from None
    table = pq.read_table(str(path), memory_map=True)
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = table[name].to_numpy(zero_copy_only=False).astype(np.float64)
        except (TypeError, ValueError):
            columns[name] = np.asarray(table[name].to_pylist(), object)
    return columns


def _read_csv(path: Path) -> Arrays:
    """Returns a table's columns: numbers as float64, NaN where a cell is empty; text as objects.

    Raises:
        DataError: A row has another number of cells than the header.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        names = [name.strip() for name in next(rows, [])]
        if not names or len(set(names)) < len(names):
            raise DataError(f"{path}: got the header {names}; wanted a name for each column, each once")
        other = next((mark for mark in (";", "\t") if mark in names[0]), None)
        if len(names) == 1 and other is not None:
            raise DataError(
                f"{path}: got cells with {other!r} between them; wanted commas, and points in decimal numbers"
            )
        cells = []
        for number, row in enumerate(rows, start=2):
            if len(row) != len(names):
                if not row:
                    continue
                raise DataError(
                    f"{path}, line {number}: got {len(row)} cells, the header has {len(names)}; is the file cut short?"
                )
            cells.append(row)
    return {name: _numbers([row[place] for row in cells]) for place, name in enumerate(names)}


def _numbers(cells: list[str]) -> NDArray[Any]:
    try:
        return np.array([float(cell) if cell.strip() else np.nan for cell in cells], np.float64)
    except ValueError:
        said = [_TRUTH.get(cell.strip().lower()) for cell in cells]
        return np.array(cells, object) if None in said else np.array(said, np.float64)


def _by_node(path: Path, table: Arrays, graph: DecisionGraph) -> Arrays:
    """Puts a table's columns together to arrays of nodes."""
    arrays: Arrays = {}
    for name, node in graph.nodes.items():
        prefix = "next_" if name in graph.transitions else ""
        names = [prefix + column.name for column in node.columns]
        if node.derivation is None and not name.startswith(("ts_", "all_ts_")):
            there = [column for column in names if column in table]
            if len(there) == len(names):
                arrays[name] = np.stack([_floats(path, name, column, table[column]) for column in names], -1)
            elif there or (node.role != "function" and not prefix):
                missing = next(column for column in names if column not in table)
                raise DataError(f"{path}: no column {missing!r}, which node {name!r} has; {near(missing, table)}")
    if "done" in table and "done" not in arrays:
        arrays["done"] = _floats(path, "done", "done", table["done"])[:, None]
    trajectory = next((name for name in TRAJECTORY_NAMES if name in table), None)
    rows = len(next(iter(table.values())))
    if trajectory is not None:
        _check_named(path, trajectory, table[trajectory])
    changes = np.flatnonzero(table[trajectory][1:] != table[trajectory][:-1]) + 1 if trajectory else np.zeros(0, int)
    if trajectory and len(np.unique(table[trajectory].astype(str))) != len(changes) + 1:
        raise DataError(f"{path}: rows of one {trajectory!r} are not together; sort the file by trajectory and time")
    arrays["index"] = np.append(changes, rows)
    return arrays


def _check_named(path: Path, name: str, trajectories: NDArray[Any]) -> None:
    """Raises a DataError where a row does not say of which trajectory it is."""
    empty = np.flatnonzero([one is None or one != one or not str(one).strip() for one in trajectories.tolist()])
    if len(empty):
        raise DataError(f"{path}, row {empty[0]}: column {name!r} is empty; wanted the row's trajectory")


def _floats(path: Path, node: str, column: str, cells: NDArray[Any]) -> NDArray[Any]:
    if cells.dtype != object:
        return cells
    for row, cell in enumerate(cells):
        try:
            if isinstance(cell, list | np.ndarray):  # of one number, NumPy's older versions take that for it
                raise TypeError
            float(cell or "nan")
        except (TypeError, ValueError):
            raise DataError(
                f"{path}, row {row}: column {column!r} of node {node!r} is {cell!r}; wanted a number"
            ) from None
    return np.array([float(cell or "nan") for cell in cells])


_BY_NODE: Mapping[str, Callable[[Path], Arrays]] = {".npz": _read_npz, ".h5": _read_hdf5, ".hdf5": _read_hdf5}
_BY_COLUMN: Mapping[str, Callable[[Path], Arrays]] = {".csv": _read_csv, ".parquet": _read_parquet}
