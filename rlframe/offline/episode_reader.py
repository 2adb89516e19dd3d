"""Reads batches of experience from files of whole episodes, in any format that there is one for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from rlframe.data.column_dict import trajectory_ends
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.array_formats import minari_file, open_hdf5, open_npz
from rlframe.offline.data_files import EPISODE_ENDINGS, find_files, identities
from rlframe.offline.episode_file import EpisodeFile, check_columns
from rlframe.offline.episode_ids import EpisodeIds
from rlframe.offline.input_reader import InputReader, rotated
from rlframe.offline.io_context import IOContext
from rlframe.offline.parquet_format import ParquetFile
from rlframe.offline.preparing import PolicyRows
from rlframe.offline.table_format import TableSchema, open_csv
from rlframe.utils.errors import ConfigError, DataError

_LOGGER = logging.getLogger("rlframe")
#: What a Minari dataset is called as an `input`: this and its id.
MINARI = "minari:"


class EpisodeReader(InputReader):
    """Gives batches of files of whole episodes: Parquet, npz, HDF5 (D4RL, d3rlpy, Minari), CSV.

    Each pass goes through all pieces of all files once, in an order that is drawn anew; workers begin with different
    ones. One piece is in memory at a time, or as many as are mixed.

    Args:
        inputs: A path, a glob, a directory, an address, "minari:" and an id, or a list of these.
        ioctx: The worker's context. Of `input_config` are read: `shuffle_rows`, how many rows are mixed among each
            other (0: batches are whole episodes, in their order); `batch_rows`, the rows of a batch (of whole episodes:
            or more), by default `rollout_fragment_length`; `schema`, what a table's headers mean.
        policy: Whose files are read, where they are those of several policies; see `PoliciesReader`.

    Raises:
        ConfigError: If there are no such files, or settings are wrong.
        DataError: If a file is cut short, or files do not have the same columns.
    """

    def __init__(
        self, inputs: str | PathLike[str] | Sequence[str], ioctx: IOContext | None = None, policy: str | None = None
    ) -> None:
        self.ioctx = ioctx or IOContext()
        given = self.ioctx.input_config
        self.shuffle_rows = _count(given, "shuffle_rows", 0)
        self.batch_rows = max(_count(given, "batch_rows", int(self.ioctx.config.rollout_fragment_length)), 1)
        self._opened = _of_policy(_open_all(inputs, given), policy)
        self.files = [file.path for file in self._opened]
        for file in self._opened[1:]:
            check_columns(file.path, file.forms, self._opened[0].path, self._opened[0].forms)
        self._pieces = [(file, piece) for file in self._opened for piece in range(file.pieces)]
        # With what places in the files are counted in: another file with the same first line is not gone on in.
        heads = zip(identities(self.files), self._opened, strict=True)
        self._identities = [f"{head}:{file.bounds[-1]}:{file.pieces}" for head, file in heads]
        self._prepare = PolicyRows(self.ioctx)
        self._check_memory()
        self._rng = np.random.default_rng(self.ioctx.seed("episode reader"))
        workers = max(int(self.ioctx.config.num_workers), 1)
        self._order = rotated(len(self._pieces), max(self.ioctx.worker_index - 1, 0) * len(self._pieces) // workers)
        if self.shuffle_rows:
            self._rng.shuffle(self._order)
        self._place, self._offset = 0, 0
        self._block: SampleBatch | None = None
        self._block_pieces = 0
        self._block_rng: Mapping[str, Any] = {}

    def next(self) -> SampleBatch:
        """Returns the next batch.

        Raises:
            DataError: If a file does not hold what it said.
        """
        for _ in range(len(self._pieces) + 1):
            if self._block is None:
                self._begin_block()
            batch = self._cut()
            if batch.count:
                return batch
        raise DataError(
            f"input: found no row to learn from in {', '.join(self.files)}: all stand where an episode was cut off, "
            "and nothing tells what came after (new_obs)"
        )

    @property
    def actions_normalized(self) -> bool | None:
        """Whether actions are as policies choose them; None where files do not say.

        Raises:
            DataError: If they say different things.
        """
        first = self._opened[0]
        for file in self._opened:
            if file.actions_normalized is not first.actions_normalized:
                raise DataError(
                    f"{file.path}: got actions_normalized={file.actions_normalized}, wanted "
                    f"{first.actions_normalized}, as in {first.path}; convert each by itself"
                )
        return first.actions_normalized

    def read_all_files(self) -> Iterator[SampleBatch]:
        """Yields the rows of all files once, piece by piece in the files' order, wherever `next` stands.

        Episodes that have the same `eps_id` in several files are given others; see `EpisodeIds`.
        """
        ids = EpisodeIds()
        for number, file in enumerate(self._opened):
            for piece in range(file.pieces):
                yield ids.unique(number, self._prepared(file.read(piece), file))

    def get_state(self) -> dict[str, Any]:
        """Returns the place in the pieces' order, and the generator's state where what is held was mixed."""
        return {
            "files": self._identities,
            "settings": [self.shuffle_rows, self.batch_rows],
            "order": [int(index) for index in self._order],
            "place": self._place,
            "offset": self._offset,
            "rng": self._rng.bit_generator.state if self._block is None else self._block_rng,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; from the beginning where files or settings are others than they were."""
        if list(state["files"]) != self._identities or list(state["settings"]) != [self.shuffle_rows, self.batch_rows]:
            _LOGGER.warning(
                "input: files or input_config are not those of the checkpoint, and are read from their beginning"
            )
            return
        self.close()
        self._order = [int(index) for index in state["order"]]
        self._place, self._offset = int(state["place"]), int(state["offset"])
        self._rng.bit_generator.state = state["rng"]

    def close(self) -> None:
        """Lets go of the rows that are held; `next` reads them again."""
        if self._block is not None:
            self._rng.bit_generator.state = self._block_rng
        self._block = None

    def _begin_block(self) -> None:
        """Reads the pieces that come next: one, or those whose rows are mixed."""
        self._block_rng = self._rng.bit_generator.state
        parts, rows = [], 0
        for index in self._order[self._place :]:
            file, piece = self._pieces[index]
            # Trajectories are postprocessed while they are whole.
            parts.append(self._prepared(file.read(piece), file) if self.shuffle_rows else file.read(piece))
            rows += parts[-1].count
            if rows >= self.shuffle_rows:
                break
        self._block_pieces = len(parts)
        joined: SampleBatch = SampleBatch.concat_samples(parts)
        if self.shuffle_rows:
            self._mixed = self._rng.permutation(joined.count)
        else:
            self._ends = np.flatnonzero(trajectory_ends(joined))
        self._block = joined

    def _cut(self) -> SampleBatch:
        """Returns the next rows of what is held, and lets go of that with its last."""
        block, start = self._block, self._offset
        assert block is not None
        if self.shuffle_rows:
            stop = min(start + self.batch_rows, block.count)
            batch = block.take(self._mixed[start:stop])
        else:
            enough = int(np.searchsorted(self._ends, start + self.batch_rows - 1))
            stop = int(self._ends[enough]) + 1 if enough < len(self._ends) else block.count
            file = self._pieces[self._order[self._place]][0]
            batch = self._prepared(block[start:stop].copy(shallow=True), file)
        self._offset = stop
        if stop >= block.count:
            self._end_block()
        return batch

    def _end_block(self) -> None:
        self._block, self._offset = None, 0
        self._place += self._block_pieces
        if self._place >= len(self._order):
            self._place = 0
            self._rng.shuffle(self._order)

    def _prepared(self, batch: SampleBatch, file: EpisodeFile) -> SampleBatch:
        if not batch.count:
            return batch
        named = batch if file.policy is None else MultiAgentBatch({file.policy: batch}, batch.count)
        made = self._prepare(named, file.actions_normalized)
        return made if isinstance(made, SampleBatch) else made.policy_batches[file.policy or ""]

    def _check_memory(self) -> None:
        policies = {} if self.ioctx.worker is None else self.ioctx.worker.policy_map
        if self.shuffle_rows and any(len(policy.get_initial_state()) for policy in policies.values()):
            raise ConfigError(
                f"input_config.shuffle_rows: got {self.shuffle_rows} and a policy with memory, which learns from rows "
                "in their order; wanted 0"
            )


def open_episodes(path: str, schema: Any = None) -> EpisodeFile:
    """Returns a file's episodes.

    Args:
        path: A file in one of the formats.
        schema: What a table's headers mean; see `TableSchema.find`.

    Raises:
        ConfigError: If it is a table without a schema, or of no format that is known.
        DataError: If it holds no episodes, or was cut short.
    """
    if path.endswith(".parquet"):
        return ParquetFile(path, None if schema is None else TableSchema.find(path, schema))
    if path.endswith(".csv"):
        return open_csv(path, schema)
    if path.endswith(EPISODE_ENDINGS) and "://" in path:
        raise ConfigError(f"input={path!r}: npz and HDF5 are read from this machine; copy it, or convert it to Parquet")
    if path.endswith(".npz"):
        return open_npz(path)
    if path.endswith((".h5", ".hdf5")):
        return open_hdf5(path)
    raise ConfigError(f"input={path!r}: wanted a file of one of the formats {', '.join(EPISODE_ENDINGS)}")


class PoliciesReader(InputReader):
    """Gives batches of several policies' rows, from files that each hold one policy's.

    A batch has rows of every policy, as many as an `EpisodeReader` gives; a policy with fewer rows is gone through more
    often. Its env steps are those of the policy with the most rows: what the others did at the same time is elsewhere.

    Args:
        inputs: As of `EpisodeReader`.
        ioctx: The worker's context.

    Raises:
        DataError: If some files say whose rows they hold, and others do not.
    """

    def __init__(self, inputs: str | PathLike[str] | Sequence[str], ioctx: IOContext | None = None) -> None:
        ioctx = ioctx or IOContext()
        policies = dict.fromkeys(file.policy for file in _open_all(inputs, ioctx.input_config))
        self.readers = {str(policy): EpisodeReader(inputs, ioctx, policy) for policy in policies}

    def next(self) -> MultiAgentBatch:
        """Returns the next rows of each policy."""
        parts = {policy: reader.next() for policy, reader in self.readers.items()}
        return MultiAgentBatch(parts, max(rows.count for rows in parts.values()))

    @property
    def files(self) -> list[str]:
        """The files of all policies."""
        return [path for reader in self.readers.values() for path in reader.files]

    @property
    def actions_normalized(self) -> bool | None:
        """Whether actions are as policies choose them; None where files do not say.

        Raises:
            DataError: If they say different things.
        """
        said = {reader.actions_normalized: policy for policy, reader in self.readers.items()}
        if len(said) > 1:
            raise DataError(
                f"input: got files that say different things of actions_normalized, { {p: s for s, p in said.items()} }"
                "; convert each policy's by itself"
            )
        return next(iter(said))

    def read_all_files(self) -> Iterator[MultiAgentBatch]:
        """Yields the rows of all files once, policy by policy, wherever `next` stands."""
        for policy, reader in self.readers.items():
            for rows in reader.read_all_files():
                yield MultiAgentBatch({policy: rows}, rows.count)

    def get_state(self) -> dict[str, Any]:
        """Returns the places in the files of each policy."""
        return {policy: reader.get_state() for policy, reader in self.readers.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; from the beginning where a policy's files are others than they were."""
        for policy, reader in self.readers.items():
            if policy in state:
                reader.set_state(state[policy])

    def close(self) -> None:
        """Lets go of the rows that are held."""
        for reader in self.readers.values():
            reader.close()


def episode_reader(
    inputs: str | PathLike[str] | Sequence[str], ioctx: IOContext | None = None
) -> EpisodeReader | PoliciesReader:
    """Returns the reader of files of episodes, by whether they say whose rows they hold."""
    given = (ioctx or IOContext()).input_config
    several = any(file.policy is not None for file in _open_all(inputs, given))
    return PoliciesReader(inputs, ioctx) if several else EpisodeReader(inputs, ioctx)


def _open_all(inputs: Any, given: Mapping[str, Any]) -> list[EpisodeFile]:
    return [open_episodes(path, given.get("schema")) for path in _find(inputs)]


def _of_policy(files: list[EpisodeFile], policy: str | None) -> list[EpisodeFile]:
    """Returns the files of a policy; of files that do not say whose they are, all.

    Raises:
        DataError: If some say so, and others do not, or there are several policies' and none is named.
    """
    silent = [file for file in files if file.policy is None]
    named = [file for file in files if file.policy is not None]
    if silent and named:
        raise DataError(
            f"{named[0].path} holds rows of the policy {named[0].policy!r}, and {silent[0].path} does not say whose it "
            "has; wanted files of one kind: read each by itself"
        )
    if policy is None and named:
        policies = sorted({str(file.policy) for file in named})
        raise DataError(
            f"{named[0].path}: got rows of the policies {', '.join(policies)}, wanted those of one that has no name; "
            "PoliciesReader reads them, as a config's input does"
        )
    return [file for file in files if file.policy == policy]


def reads_episodes(source: Any) -> bool:
    """Returns whether a source stands for files of episodes, and not of JSON; it may stand for nothing."""
    first = source[0] if isinstance(source, (list, tuple)) and source else source
    if not isinstance(first, (str, PathLike)):
        return False
    return str(first).startswith(MINARI) or any(path.endswith(EPISODE_ENDINGS) for path in find_files(first)[:1])


def _find(inputs: Any) -> list[str]:
    given = [inputs] if isinstance(inputs, (str, PathLike)) else list(inputs)
    found: list[str] = []
    for one in given:
        if isinstance(one, str) and one.startswith(MINARI):
            found.append(minari_file(one.removeprefix(MINARI)))
        else:
            found += find_files(one)
    others = [path for path in found if not path.endswith(EPISODE_ENDINGS)]
    if others:
        raise ConfigError(
            f"input: got {others[0]} among files of episodes, wanted one format; read each by itself, in a mixture "
            "{source: probability} where both are wanted"
        )
    return found


def _count(given: Mapping[str, Any], key: str, default: int) -> int:
    value = given.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"input_config.{key}: got {value!r}, wanted a number of rows, from 0 on")
    return value


__all__ = ["MINARI", "EpisodeReader", "PoliciesReader", "episode_reader", "open_episodes", "reads_episodes"]
