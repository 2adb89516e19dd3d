"""Histories of training runs: one Parquet file with a row for each iteration."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.utils.errors import ConfigError
from rlframe.utils.files import open_regular

#: Columns of a history file: mean return of the last episodes, the best of these means so far, return of the episode
#: that ended last (all three in reward units of the environment), env steps, seconds of training.
HISTORY_COLUMNS = ("mean_reward", "best_reward", "episode_reward", "step", "time")


class HistoryFile:
    """A history that grows by one row for each result; readers and a kill always find it whole.

    Args:
        path: The file. Its directory must be there.

    Raises:
        ConfigError: If it cannot be written, or is no history.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._rows: dict[str, list[float]] = {name: [] for name in HISTORY_COLUMNS}
        if self._path.exists():
            self._rows = {name: list(values) for name, values in read_history(self._path).items()}
        self._check_writable()

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self._rows["step"])

    def append(self, result: Mapping[str, Any]) -> None:
        """Adds the row of a result that `Trainer.train()` returned, and writes the file."""
        mean = _number(result.get("episode_reward_mean"))
        before = self._rows["best_reward"][-1] if len(self) else math.nan
        ended = (result.get("hist_stats") or {}).get("episode_reward") or [mean]
        row = (mean, float(np.fmax(mean, before)), _number(ended[-1]), result["timesteps_total"] or 0,
               result["time_total_s"])  # fmt: skip
        for name, value in zip(HISTORY_COLUMNS, row, strict=True):
            self._rows[name].append(value)
        self._write()

    def check_same(self, env_steps: Sequence[int]) -> None:
        """Raises where the file holds the history of another run.

        Args:
            env_steps: Those of the run's results, oldest first.

        Raises:
            ConfigError: If its rows are at other steps.
        """
        mine = list(self._rows["step"][: len(env_steps)])
        if mine != list(env_steps[: len(mine)]) or (len(self) and not mine):
            raise ConfigError(
                f"--history: {str(self._path)!r} holds the history of another run, which would be lost: remove it, or "
                "put the run's own there"
            )

    def truncate_after(self, env_steps: int) -> None:
        """Drops the rows after a number of env steps: a run that goes on from a checkpoint writes them anew."""
        keep = sum(step <= env_steps for step in self._rows["step"])
        if keep < len(self):
            self._rows = {name: values[:keep] for name, values in self._rows.items()}
            self._write()

    def _check_writable(self) -> None:
        """Raises a ConfigError where the file could not be written, by writing beside it."""
        try:
            if self._path.is_dir():
                raise IsADirectoryError("it is a directory")
            self._temporary().touch()
            self._temporary().unlink()
        except OSError as error:
            raise ConfigError(
                f"--history: {str(self._path)!r} cannot be written: wanted a file in a directory of yours ({error})"
            ) from error

    def _temporary(self) -> Path:
        return self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")

    def _write(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        types = {"step": pa.int64()}
        columns = {name: pa.array(values, types.get(name, pa.float64())) for name, values in self._rows.items()}
        temporary = self._temporary()
        try:
            parquet.write_table(pa.table(columns), temporary)
            os.replace(temporary, self._path)
        finally:
            temporary.unlink(missing_ok=True)


def read_history(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the columns of a history file, float64 `[N]`, `step` int64; NaN before the first episode has ended.

    Raises:
        ConfigError: If it cannot be read, or has other columns.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with open_regular(path) as file:
            content = parquet.ParquetFile(file)
            names, rows = content.schema_arrow.names, content.metadata.num_rows
            _check_table(os.fspath(path), names, rows)
            table = content.read(list(HISTORY_COLUMNS))
        columns = {name: table.column(name).to_numpy() for name in HISTORY_COLUMNS}
        return {
            name: values if name == "step" and values.dtype == np.int64 else values.astype(np.float64)
            for name, values in columns.items()
        }
    except ConfigError:
        raise
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise ConfigError(f"{os.fspath(path)!r} is no history: {(str(error).splitlines() or [''])[0]}") from error


#: Rows beyond which a file is no history: a thousand times what the longest run has.
_MOST_ROWS = 10_000_000


def _check_table(path: str, names: Sequence[str], rows: int) -> None:
    if any(name not in names for name in HISTORY_COLUMNS):
        raise ConfigError(
            f"{path!r} has columns {', '.join(names) or 'none'}, wanted "
            f"{', '.join(HISTORY_COLUMNS)}: it is no history that `rlframe train --history` wrote"
        )
    if rows > _MOST_ROWS:
        raise ConfigError(f"{path!r} has {rows:,} rows, wanted at most {_MOST_ROWS:,}: it is no history")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
