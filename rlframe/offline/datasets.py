"""Datasets as a whole: going through them, describing, converting and splitting them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.column_dict import trajectory_ends
from rlframe.data.columns import ACTION_LOGP, ACTION_PROB, DONES, EPS_ID, N_STEPS, REWARDS, TERMINATEDS
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.episode_file import forms_of
from rlframe.offline.episode_reader import EpisodeReader, PoliciesReader
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import ACTIONS_NORMALIZED
from rlframe.offline.json_reader import JsonReader
from rlframe.offline.json_writer import JsonWriter
from rlframe.offline.output_writer import OutputWriter
from rlframe.offline.parquet_format import ParquetWriter
from rlframe.offline.sources import file_reader
from rlframe.utils.errors import ConfigError, DataError

#: What a dataset can be written as.
FORMATS = ("parquet", "json", "npz", "hdf5")
#: What D4RL calls our columns.
_D4RL = {"obs": "observations", "new_obs": "next_observations", "terminateds": "terminals", "truncateds": "timeouts"}


def read_dataset(source: Any, schema: Any = None) -> Iterator[SampleBatch]:
    """Yields a dataset's rows once, in order.

    Args:
        source: Files, as `input` names them.
        schema: What a table's headers mean.

    Raises:
        ConfigError: If there are no such files.
        DataError: If they cannot be read, or hold several policies' rows.
    """
    for batch in _reader(source, schema).read_all_files():
        if not isinstance(batch, SampleBatch):
            raise DataError(
                f"{source}: got rows of the policies {list(batch.policy_batches)}, wanted one policy's; `rlframe data "
                "convert` to Parquet writes each policy's into files of their own, which EpisodeReader reads by its id"
            )
        if batch.count:
            yield batch


def _reader(source: Any, schema: Any) -> JsonReader | EpisodeReader | PoliciesReader:
    config = {"input_config": {} if schema is None else {"schema": schema}}
    return file_reader(source, IOContext(config=config))


def _actions_normalized(source: Any, schema: Any) -> bool | None:
    """Returns what files say of their actions; None where they say nothing.

    Raises:
        DataError: If they say different things.
    """
    return _reader(source, schema).actions_normalized


def make_writer(directory: str, kind: str, actions_normalized: bool | None = None) -> OutputWriter:
    """Returns the writer of a dataset into a directory that is empty, or not there.

    Args:
        directory: Where it is written.
        kind: One of `FORMATS`.
        actions_normalized: Whether actions are as policies choose them; None says nothing of it.

    Raises:
        ConfigError: If the format is another, or something is in the directory.
    """
    if kind not in FORMATS:
        raise ConfigError(f"--format: got {kind!r}, wanted one of {', '.join(FORMATS)}")
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        raise ConfigError(f"--output: {directory!r} exists; wanted a new directory")
    if kind == "parquet":
        return ParquetWriter(directory, actions_normalized=actions_normalized)
    if kind == "json":
        return JsonWriter(directory, actions_normalized=actions_normalized)
    return _ArrayWriter(directory, kind, actions_normalized)


class _ArrayWriter(OutputWriter):
    """Keeps all rows in memory, and writes them as arrays when it is closed: one file of npz, or of D4RL's HDF5."""

    def __init__(self, directory: str, kind: str, actions_normalized: bool | None) -> None:
        self._directory, self._kind, self._normalized = directory, kind, actions_normalized
        self._batches: list[SampleBatch] = []

    def write(self, sample_batch: Any) -> None:
        """Takes a batch; columns of objects are left out.

        Raises:
            DataError: If a column is nested.
        """
        nested = [name for name, column in sample_batch.items() if isinstance(column, (dict, tuple))]
        if nested:
            raise DataError(
                f"{self._directory}: column {nested[0]!r}: got nested values, for which {self._kind} has no form here; "
                "wanted --format parquet or json"
            )
        numbers = {name: column for name, column in sample_batch.items() if isinstance(column, np.ndarray)}
        self._batches.append(SampleBatch({name: c for name, c in numbers.items() if c.dtype.kind in "biuf"}))

    def close(self) -> None:
        """Writes the file."""
        if not self._batches:
            return
        rows = SampleBatch.concat_samples(self._batches)
        if self._normalized is not None:
            rows[ACTIONS_NORMALIZED] = np.full(rows.count, self._normalized)
        os.makedirs(self._directory, exist_ok=True)
        if self._kind == "npz":
            np.savez(os.path.join(self._directory, "data.npz"), **rows)
            return
        import h5py

        with h5py.File(os.path.join(self._directory, "data.hdf5"), "w") as file:
            for name, column in rows.items():
                file[_D4RL.get(name, name)] = column


def convert_dataset(source: Any, directory: str, kind: str, schema: Any = None) -> int:
    """Writes a dataset in another format; returns its rows."""
    writer, rows = make_writer(directory, kind, _actions_normalized(source, schema)), 0
    several = kind in {"parquet", "json"}
    with _whole_or_none(directory, writer):
        batches = _reader(source, schema).read_all_files() if several else read_dataset(source, schema)
        for batch in batches:
            writer.write(batch)
            rows += batch.agent_steps() if isinstance(batch, MultiAgentBatch) else batch.count
        writer.close()  # type: ignore[attr-defined]  # each of these has it
    return rows


@contextlib.contextmanager
def _whole_or_none(directory: str, writer: Any) -> Iterator[None]:
    """A context that leaves no directory behind where what is written into it breaks off; `make_writer` has looked.

    A part of a dataset would be taken for all of it, and be in the way of the next try.
    """
    try:
        yield
    except BaseException:
        with contextlib.suppress(DataError, OSError):  # of files that go; why they do is what is raised
            writer.close()  # else it would write what it keeps when it is collected
        if os.path.isdir(directory):
            shutil.rmtree(directory)
        raise


def split_dataset(
    source: Any, directory: str, shares: Mapping[str, float], kind: str = "parquet", seed: int = 0, schema: Any = None
) -> dict[str, int]:
    """Divides a dataset's episodes by lot into directories below one; returns the episodes in each.

    Rows with the same `eps_id` stay together, also where an episode is in several batches.

    Args:
        source: See `read_dataset`.
        directory: Where the parts are made.
        shares: Each part's share of the episodes by its name; they sum to 1.
        kind: Format of the parts.
        seed: Of the lots.
        schema: See `read_dataset`.

    Raises:
        ConfigError: If shares are none.
        DataError: If a part would have no episode.
    """
    values = np.asarray(list(shares.values()), np.float64)
    if len(values) < 2 or (values <= 0).any() or not np.isclose(values.sum(), 1.0):
        raise ConfigError(f"--parts: got {dict(shares)}, wanted the shares of two parts or more, whose sum is 1")
    names = list(dict.fromkeys(key for key, _ in _episodes_of(source, schema)))
    order = np.random.default_rng(seed).permutation(len(names))
    stops = np.rint(np.cumsum(values) * len(names)).astype(int)
    counts = dict(zip(shares, np.diff(stops, prepend=0).tolist(), strict=True))
    if not all(counts.values()):
        raise DataError(
            f"{source}: {len(names)} episodes make parts of {counts}; wanted one episode at least in each: larger "
            "shares, or more data"
        )
    part_of = {names[index]: int(np.searchsorted(stops, place, side="right")) for place, index in enumerate(order)}
    normalized = _actions_normalized(source, schema)
    places = [os.path.join(directory, part) for part in shares]
    writers = [make_writer(place, kind, normalized) for place in places]
    with contextlib.ExitStack() as stack:
        for place, writer in zip(places, writers, strict=True):
            stack.enter_context(_whole_or_none(place, writer))
        for key, episode in _episodes_of(source, schema):
            writers[part_of[key]].write(episode)
        for writer in writers:
            writer.close()  # type: ignore[attr-defined]  # each of these has it
    return counts


def describe_dataset(source: Any, schema: Any = None) -> dict[str, Any]:
    """Returns what is in a dataset: rows, episodes, columns, returns; numbers, texts and dicts of such.

    `columns` has each one's `dtype`, `shape` of a row, `min`, `max` and the number of values that are `not_finite`;
    `returns` those of episodes, which end with a row that is done, None where no column tells rewards or ends, or
    rewards were summed (`n_steps`), and where they are no numbers; `probabilities` the column of them, or None.

    Raises:
        ConfigError: If there are no such files.
        DataError: If they cannot be read.
    """
    columns: dict[str, dict[str, Any]] = {}
    totals: dict[Any, float] = {}
    ended: set[Any] = set()
    rows = terminal = 0
    summed = False
    for batch in read_dataset(source, schema):
        rows += batch.count
        for name, form in forms_of(batch).items():
            described = columns.setdefault(name, {"dtype": form.dtype, "shape": list(form.shape)})
            if form.dtype != "json":
                _add_range(described, np.asarray(batch[name]))
        for key, episode in _episodes(batch, rows):
            totals[key] = totals.get(key, 0.0) + float(np.sum(episode.get(REWARDS, 0.0), dtype=np.float64))
            if bool(np.asarray(episode.get(DONES, episode.get(TERMINATEDS, [False])))[-1]):
                ended.add(key)
            summed |= bool(np.any(np.asarray(episode.get(N_STEPS, 1)) > 1))
            terminal += int(np.sum(episode.get(TERMINATEDS, 0)))
    if not rows:
        raise DataError(f"{source}: found no rows")
    told = REWARDS in columns and not summed
    returns = np.asarray([total for key, total in totals.items() if key in ended and told])
    given = [name for name in (ACTION_PROB, ACTION_LOGP) if name in columns]
    return {
        "rows": rows, "episodes": len(totals), "episodes_ended": len(ended), "terminal_rows": terminal,
        "columns": columns, "returns": _distribution(returns), "probabilities": given[0] if given else None,
    }  # fmt: skip


def _episodes_of(source: Any, schema: Any) -> Iterator[tuple[int, SampleBatch]]:
    rows = 0
    for batch in read_dataset(source, schema):
        rows += batch.count
        yield from _episodes(batch, rows)


def _episodes(batch: SampleBatch, rows: int) -> Iterator[tuple[int, SampleBatch]]:
    """Yields the parts of a batch that are of one episode each, with the episode's number.

    Args:
        batch: The rows.
        rows: Those of the dataset up to the end of this batch: without `eps_id` each trajectory is an episode, whose
            number is that of its first row.
    """
    stops = (np.flatnonzero(trajectory_ends(batch)) + 1).tolist()
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        part = batch[start:stop]
        yield int(part[EPS_ID][0]) if EPS_ID in part else rows - batch.count + start, part


def _add_range(described: dict[str, Any], column: NDArray[Any]) -> None:
    finite = np.isfinite(column) if column.dtype.kind == "f" else np.ones(column.shape, bool)
    described["not_finite"] = described.get("not_finite", 0) + int((~finite).sum())
    if finite.any():
        low, high = float(column[finite].min()), float(column[finite].max())
        described["min"] = min(described.get("min", low), low)
        described["max"] = max(described.get("max", high), high)


def _distribution(returns: NDArray[Any]) -> dict[str, float] | None:
    if not len(returns) or not np.isfinite(returns).all():
        return None
    low, quarter, median, three, high = np.quantile(returns, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {"mean": float(returns.mean()), "std": float(returns.std()), "min": low, "25%": quarter, "median": median,
            "75%": three, "max": high}  # fmt: skip


__all__ = ["FORMATS", "convert_dataset", "describe_dataset", "make_writer", "read_dataset", "split_dataset"]
