"""Experience in tables: CSV with a schema, which says what headers mean."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import DONES, EPS_ID, TERMINATEDS, TRUNCATEDS, T
from rlframe.offline.data_files import opened
from rlframe.offline.episode_file import ArrayFile, EpisodeFile, as_single
from rlframe.utils.errors import ConfigError, DataError
from rlframe.utils.files import read_text
from rlframe.utils.yaml_text import parse_yaml

#: A table's schema, where no other is given: beside data.csv, data.schema.yaml or data.schema.json.
_ENDINGS = (".schema.yaml", ".schema.yml", ".schema.json")
#: Columns in which a value that is missing is none of 0, 1 and the like.
_WHOLE = (TERMINATEDS, TRUNCATEDS, DONES, EPS_ID, T)
_EXAMPLE = "obs: [x, y]\nactions: a\nrewards: r\nterminateds: done\neps_id: episode"


class _Entry(NamedTuple):
    headers: list[str]
    dtype: str | None


class TableSchema:
    """Which headers of a table make up which of our columns.

    Args:
        entries: By our column's name a header, a list of headers that stand side by side, or `{columns: ..., dtype:
            ...}`.
        source: What messages call it.

    Raises:
        ConfigError: If an entry is none of these.
    """

    def __init__(self, entries: Any, source: str = "input_config.schema") -> None:
        if not isinstance(entries, Mapping) or not entries:
            raise ConfigError(
                f"{source}: got {entries!r}, wanted our columns with the table's headers, such as\n{_EXAMPLE}"
            )
        self.source = source
        self._entries = {str(name): self._entry(name, given) for name, given in entries.items()}
        self._single = {str(name) for name, given in entries.items() if self._is_single(given)}

    @classmethod
    def find(cls, path: str, given: Any) -> TableSchema:
        """Returns the schema of a table.

        Args:
            path: The table's.
            given: The schema, or the path of its file in YAML or JSON; None: that of the file beside the table.

        Raises:
            ConfigError: If there is none.
        """
        if isinstance(given, Mapping):
            return cls(given)
        beside = [os.path.splitext(path)[0] + ending for ending in _ENDINGS]
        found = [given] if given is not None else [name for name in beside if os.path.isfile(name)]
        if not found:
            raise ConfigError(
                f"{path}: got a table without its schema, wanted {beside[0]} or input_config: {{'schema': ...}} with "
                f"what headers mean, such as\n{_EXAMPLE}"
            )
        return cls(_parsed(os.fspath(found[0])), os.fspath(found[0]))

    def columns(self, path: str, table: Mapping[str, NDArray[Any]], first_row: int = 0) -> dict[str, NDArray[Any]]:
        """Returns our columns of a table's.

        Args:
            path: The table's, for messages.
            table: Its columns by header.
            first_row: Number of the first row, for messages.

        Raises:
            DataError: If a header is missing, or a value is no number.
        """
        made = {}
        for name, (headers, dtype) in self._entries.items():
            parts = [self._numbers(path, header, table, first_row) for header in headers]
            if name in _WHOLE or np.dtype(dtype or float).kind in "biu":
                for header, part in zip(headers, parts, strict=True):
                    self._check_given(path, header, part, first_row)
            column = parts[0] if name in self._single else np.stack(parts, axis=1)
            whole = (
                dtype is None and name in _WHOLE and column.dtype.kind == "f"
            )  # float32 has not every episode's number
            made[name] = column.astype(dtype or np.int64) if dtype or whole else as_single(column)
        return made

    def _numbers(self, path: str, header: str, table: Mapping[str, NDArray[Any]], first_row: int) -> NDArray[Any]:
        if header not in table:
            raise DataError(
                f"{path}: column {header!r} is missing, which {self.source} names; the table has {', '.join(table)}"
            )
        column = table[header]
        if column.dtype.kind in "biuf":
            return column
        for row, value in enumerate(column.tolist()):
            try:
                float(value)
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{path}: column {header!r}: got {value!r} in row {first_row + row}, wanted a number"
                ) from error
        return column.astype(np.float64)

    @staticmethod
    def _check_given(path: str, header: str, column: NDArray[Any], first_row: int) -> None:
        odd = np.flatnonzero(~np.isfinite(column) | (column != np.floor(column)))
        if len(odd):
            got = f"{column[odd[0]]}{'' if np.isfinite(column[odd[0]]) else ' or nothing'}"
            raise DataError(f"{path}: column {header!r}: got {got} in row {first_row + odd[0]}, wanted a whole number")

    @staticmethod
    def _is_single(given: Any) -> bool:
        return isinstance(given.get("columns") if isinstance(given, Mapping) else given, str)

    def _entry(self, name: Any, given: Any) -> _Entry:
        headers, dtype = (given.get("columns"), given.get("dtype")) if isinstance(given, Mapping) else (given, None)
        listed = [headers] if isinstance(headers, str) else headers
        if not isinstance(listed, Sequence) or not listed or not all(isinstance(header, str) for header in listed):
            raise ConfigError(
                f"{self.source}: {name}: got {given!r}, wanted a header, a list of headers, or {{columns: ..., dtype: "
                "...}"
            )
        try:
            return _Entry(list(listed), None if dtype is None else np.dtype(dtype).str)
        except TypeError as error:
            raise ConfigError(f"{self.source}: {name}.dtype: got {dtype!r}, wanted NumPy's name of a type") from error


def open_csv(path: str, schema: Any = None) -> EpisodeFile:
    """Returns the episodes of a CSV file with a line of headers, which is held in memory.

    Args:
        path: The file.
        schema: See `TableSchema.find`.

    Raises:
        ConfigError: If there is no schema.
        DataError: If it is no table, or not the schema's.
    """
    import pyarrow
    from pyarrow import csv

    found = TableSchema.find(path, schema)
    try:
        with opened(path) as file:
            table = csv.read_csv(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: got no table of comma-separated values ({error})") from error
    # Rows are counted as editors do: the headers are in line 1.
    arrays = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    return ArrayFile(path, found.columns(path, arrays, first_row=2))


def _parsed(path: str) -> Any:
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: got no schema in YAML or JSON ({error})") from error
    return parse_yaml(text, json_only=path.endswith(".json"), where=path, unique=True)


__all__ = ["TableSchema", "open_csv"]
