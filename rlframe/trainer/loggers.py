"""What a run leaves behind: `result.jsonl`, `progress.csv`, TensorBoard events and `params.json`."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.config.faults import shorten
from rlframe.utils.errors import CheckpointError
from rlframe.utils.files import parse_json, read_lines

_LOGGER = logging.getLogger("rlframe")

RESULT_FILE = "result.jsonl"
PROGRESS_FILE = "progress.csv"
PARAMS_FILE = "params.json"

#: Arrays and lists with more values than this (videos, frames) are named in `result.jsonl` instead of written out.
MAX_LOGGED_VALUES = 10_000


class RunLogger:
    """Writes each result of a trainer into a directory, in four forms.

    - `params.json`: the whole config, once.
    - `result.jsonl`: a line of strict JSON for each result. NaN and infinity, which JSON does not have, become null.
      The config is left out of it: `params.json` has it.
    - `progress.csv`: a row for each result, a column for each number or text at any depth (`info/learner/...`), and
      nothing for lists and arrays. A key that appears first in a later result becomes a new last column. NaN is empty.
    - `events.out.tfevents.*`: the finite numbers, under the same names, by `timesteps_total`, but for those that only
      say where the run was (`pid`, `timestamp`, ...); the config's numbers and texts as hyper-parameters.

    A directory that holds these files already is continued. Each result is flushed: a killed process loses none.

    Args:
        directory: Where the files go; made if it is missing.
        config: The whole config of the trainer.
        old_name: Whether results are also found as `result.json`, a link: programs of RLlib 1.x read that.

    Raises:
        OSError: If the directory cannot be made or written.
    """

    def __init__(self, directory: str | os.PathLike[str], config: Mapping[str, Any], *, old_name: bool = False) -> None:
        self.logdir = os.fspath(directory)
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        _replace(self._directory / PARAMS_FILE, json.dumps(to_jsonable(config), indent=2, sort_keys=True) + "\n")
        self._rows = (self._directory / RESULT_FILE).open("a", encoding="utf-8")
        if old_name:
            _link(self._directory / "result.json", RESULT_FILE)
        self._progress = _ProgressFile(self._directory / PROGRESS_FILE)
        self._events = _Events(self._directory, config)

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Writes one result.

        Args:
            result: What `Trainer.train()` returns: a nested dict. Not changed.
        """
        row = {key: value for key, value in result.items() if key != "config"}
        self._rows.write(json.dumps(to_jsonable(row), allow_nan=False) + "\n")
        self._rows.flush()
        scalars = dict(_scalars(row))
        self._progress.append(scalars)
        self._events.append(scalars)

    def truncate_after(self, iteration: int) -> None:
        """Drops the results after an iteration: a run that goes on from a checkpoint writes them anew.

        TensorBoard is told to hide what it has of them.

        Args:
            iteration: Last `training_iteration` to keep.
        """
        self._rows.close()
        path = self._directory / RESULT_FILE
        kept = [row for row in read_results(self._directory) if row.get("training_iteration", 0) <= iteration]
        _replace(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in kept))
        self._rows = path.open("a", encoding="utf-8")
        self._progress.truncate_after(iteration)
        self._events.purge_after(_step(kept[-1]) if kept else 0)

    def update_config(self, config: Mapping[str, Any]) -> None:
        """Writes a changed config into `params.json`; events that begin later have it, too."""
        self._events.hyperparameters = _hyperparameters(config)
        _replace(self._directory / PARAMS_FILE, json.dumps(to_jsonable(config), indent=2, sort_keys=True) + "\n")

    def flush(self) -> None:
        """Hands everything that was written to the operating system."""
        if not self._rows.closed:
            self._rows.flush()
        self._progress.flush()
        self._events.flush()

    def close(self) -> None:
        """Closes the files. Closing again does nothing."""
        self._rows.close()
        self._progress.close()
        self._events.close()


def _link(path: Path, name: str) -> None:
    """Makes a link to a file beside it, unless there is something already."""
    if os.path.lexists(path):
        return
    try:
        path.symlink_to(name)
    except OSError as error:  # of file systems without links
        _LOGGER.warning("there is no %s (%s); results are in %s", path, error, name)


def read_results(directory: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Returns the results in a run directory, oldest first; a last line that was cut short by a kill is left out.

    Raises:
        CheckpointError: If the file is none that this package wrote: no regular one, or with other things in it.
    """
    path = Path(directory, RESULT_FILE)
    if not os.path.lexists(path):
        return []
    rows = []
    try:
        for number, line in enumerate(read_lines(path), start=1):
            try:
                row = parse_json(line)
            except ValueError:
                break
            _check_row(row, f"{str(path)!r}, line {number}")
            rows.append(row)
    except OSError as error:
        raise CheckpointError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    return rows


#: What of a result is a number wherever it is looked at again; and what is a dict.
_NUMBERS = (
    "training_iteration", "timesteps_total", "episodes_total", "time_total_s", "time_this_iter_s",
    "episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean", "num_steps_trained",
    "episodes_this_iter",
)  # fmt: skip
_MAPPINGS = ("hist_stats", "info", "evaluation", "policy_reward_mean")
_LARGEST = 2.0**63


def _check_row(row: Any, where: str) -> None:
    """Raises a CheckpointError where a line of results holds what no result has."""
    if not isinstance(row, dict):
        raise CheckpointError(f"{where}, is damaged: got a JSON {type(row).__name__}, wanted an object")
    for key in _NUMBERS:
        _check_number(row.get(key), key, where)
    for key in _MAPPINGS:
        if not isinstance(row.get(key), (dict, type(None))):
            raise CheckpointError(f"{where}, is damaged: {key} is a JSON {type(row[key]).__name__}, wanted an object")
    ended = (row.get("hist_stats") or {}).get("episode_reward") or []
    for value in ended if isinstance(ended, list) else [ended]:
        _check_number(value, "hist_stats.episode_reward", where)
    for part in ("info", "evaluation"):
        for key in _NUMBERS:
            _check_number((row.get(part) or {}).get(key), f"{part}.{key}", where)


def _check_number(value: Any, key: str, where: str) -> None:
    plain = value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    if not plain or (value is not None and not -_LARGEST <= value <= _LARGEST):
        raise CheckpointError(f"{where}, is damaged: {key} is {shorten(value)}, wanted a number")


def to_jsonable(value: Any) -> Any:
    """Returns a value as strict JSON can hold it.

    NumPy values become Python's, tuples and sets lists, keys strings, classes and functions "module:name", NaN and
    infinity None, arrays of more than `MAX_LOGGED_VALUES` values a text that says what they were, and anything else
    its text.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Mapping):
        return {_key_text(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return _sequence(value)
    return _object(value)


def flatten(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of nested dicts as ("info/learner/cur_lr", value)."""
    for key, value in result.items():
        name = prefix + _key_text(key)
        if isinstance(value, Mapping):
            yield from flatten(value, name + "/")
        else:
            yield name, value


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else str(to_jsonable(key))


def _sequence(value: Any) -> Any:
    if len(value) > MAX_LOGGED_VALUES:
        return f"{type(value).__name__} of {len(value)} values"
    return [to_jsonable(item) for item in value]


def _object(value: Any) -> Any:
    """Returns what JSON can hold of an array, a class, a function, or any other object."""
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}:{value.__qualname__}"
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "tolist"):  # arrays and tensors
        if math.prod(shape) > MAX_LOGGED_VALUES:
            return f"array of shape {list(shape)} and dtype {value.dtype}"
        return to_jsonable(value.tolist())
    return str(value)


def _scalars(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the leaves that are one value: int, float, bool, str or None, as Python has them."""
    for name, value in flatten(row):
        if isinstance(value, (list, tuple, set)) or getattr(value, "shape", ()) != ():
            continue
        yield name, value.item() if isinstance(value, (np.generic, np.ndarray)) else value


def _step(row: Mapping[str, Any]) -> int:
    return int(row.get("timesteps_total") or row.get("training_iteration") or 0)


def _replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
    temporary.replace(path)


class _ProgressFile:
    """A CSV file whose columns can grow: old columns keep their places, new ones come last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns = self._read()[0] if path.exists() else []
        self._open()

    def append(self, scalars: Mapping[str, Any]) -> None:
        """Writes a row, after making room for columns that are new."""
        new = [name for name in scalars if name not in self._known]
        if new:
            self._widen(new)
        self._writer.writerow({name: _cell(value) for name, value in scalars.items()})
        self._file.flush()

    def truncate_after(self, iteration: int) -> None:
        """Drops the rows of later iterations."""
        _, rows = self._close_and_read()
        self._rewrite([row for row in rows if int(row.get("training_iteration") or 0) <= iteration])

    def flush(self) -> None:
        """Flushes the file."""
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _open(self) -> None:
        self._known = set(self._columns)
        self._file = self._path.open("a", encoding="utf-8", newline="")
        self._writer = csv.DictWriter(self._file, self._columns, restval="", lineterminator="\n")

    def _widen(self, new: list[str]) -> None:
        _, rows = self._close_and_read()
        self._columns += new
        self._rewrite(rows)

    def _close_and_read(self) -> tuple[list[str], list[dict[str, str]]]:
        self._file.close()
        return self._read()

    def _read(self) -> tuple[list[str], list[dict[str, str]]]:
        try:
            reader = csv.DictReader(line.decode("utf-8") for line in read_lines(self._path))
            # A row may have been cut short by a kill.
            rows = [row for row in reader if None not in row.values() and None not in row]
            for row in rows:
                int(row.get("training_iteration") or 0)
            return list(reader.fieldnames or ()), rows
        except (csv.Error, ValueError, OSError) as error:
            text = getattr(error, "strerror", None) or error
            raise CheckpointError(
                f"{str(self._path)!r} is damaged ({text}): remove it to go on; {RESULT_FILE} has the same results"
            ) from error

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        temporary = self._path.with_name(self._path.name + ".tmp")
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self._columns, restval="", lineterminator="\n")
            if self._columns:
                writer.writeheader()
            writer.writerows(rows)
        temporary.replace(self._path)
        self._open()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return to_jsonable(value)


#: Numbers of a result that say where and when it was made.
_NO_CURVES = frozenset({"pid", "timestamp"})
#: The metric by which TensorBoard's page of hyper-parameters compares runs.
_SCORE = "episode_reward_mean"


def _hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers, texts and truth values of a config by their dotted names; lists as text."""
    plain = to_jsonable(config)
    values = {name.replace("/", "."): value for name, value in flatten(plain)}
    return {
        name: json.dumps(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }


class _Events:
    """A TensorBoard events file; the library is imported with the first result, and only if it is there.

    Written with tensorboardX's file writer, not its `SummaryWriter`: that one hands events to a thread, so that a
    flush does not know what is still on its way, and two writers of one second write into the same file.
    """

    _serial = itertools.count()

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        self._directory = directory
        self.hyperparameters = _hyperparameters(config)
        self._file: Any = None
        self._available = True
        self._purge_step: int | None = None

    def append(self, scalars: Mapping[str, Any]) -> None:
        """Writes the finite numbers of a result, as one event."""
        if self._file is None and self._available:
            self._open()
        if self._file is None:
            return
        numbers = [
            {"tag": name, "simple_value": value}
            for name, value in scalars.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if name not in _NO_CURVES
        ]
        self._write(step=_step(scalars), summary={"value": numbers})
        self._file.flush()

    def purge_after(self, step: int) -> None:
        """Makes TensorBoard hide the events after a step, from the next event on."""
        self.close()
        self._purge_step = step + 1

    def flush(self) -> None:
        """Flushes the events file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Closes the events file; a later result starts another."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _open(self) -> None:
        try:
            with _without_torch():
                from tensorboardX.event_file_writer import EventsWriter
                from tensorboardX.proto.event_pb2 import SessionLog
                from tensorboardX.summary import hparams
        except ImportError:
            _LOGGER.warning("tensorboardX is not installed: %s gets no TensorBoard events", self._directory)
            self._available = False
            return
        self._file = EventsWriter(str(self._directory / "events"), f".{os.getpid()}.{next(self._serial)}")
        if self._purge_step is not None:
            self._write(step=self._purge_step, session_log={"status": SessionLog.START})
        for summary in hparams(self.hyperparameters, {_SCORE: None})[:2]:  # the third says that the run has ended
            self._write(summary=summary)

    def _write(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._file.write_event(Event(wall_time=time.time(), **fields))


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """A context in which torch is not imported: tensorboardX would, for a type it compares with, in TensorFlow's runs.

    Where torch is loaded already, nothing changes.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # what makes Python raise ImportError
    try:
        yield
    finally:
        del sys.modules["torch"]
