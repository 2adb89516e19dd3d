"""Reads batches of experience from files of JSON, line by line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import IO, Any

import numpy as np

from rlframe.data.columns import SEQ_LENS
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.offline.data_files import EPISODE_ENDINGS, find_files, identities, opened
from rlframe.offline.episode_file import ColumnForm, check_shapes, forms_of
from rlframe.offline.episode_ids import EpisodeIds
from rlframe.offline.input_reader import InputReader, rotated
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import from_line, take_normalized
from rlframe.offline.preparing import PolicyRows, split_trajectories
from rlframe.utils.errors import ConfigError, DataError

_LOGGER = logging.getLogger("rlframe")


class JsonReader(InputReader):
    """Gives the batches of files, one per line, again and again.

    Each pass goes through all files once, in an order that is drawn anew. Workers begin with different files; where
    there are more workers than files, those that share one begin at different places in it.

    Args:
        inputs: A path, a glob, a directory (of which all `.json` and `.zip` files are read), a zip file, an address
            such as `s3://bucket/file.json` (with fsspec's package for it), or a list of these.
        ioctx: The worker's context. With a worker, actions are brought into its policies' space, and trajectories are
            postprocessed if `postprocess_inputs` says so.

    Raises:
        ConfigError: If there are no such files.
    """

    def __init__(self, inputs: str | PathLike[str] | Sequence[str], ioctx: IOContext | None = None) -> None:
        self.ioctx = ioctx or IOContext()
        self.files = find_files(inputs)
        others = [path for path in self.files if path.endswith(EPISODE_ENDINGS)]
        if others:
            raise ConfigError(
                f"input: got {others[0]} among files of JSON, wanted one format; read each by itself, in a mixture "
                "{source: probability} where both are wanted"
            )
        self._identities = identities(self.files)
        self._rng = np.random.default_rng(self.ioctx.seed("json reader"))
        self._order = rotated(len(self.files), max(self.ioctx.worker_index - 1, 0))
        self._place, self._offset = 0, 0
        self._begin_within = self._share_of_first_file()
        self._file: IO[bytes] | None = None
        self._opening = ExitStack()
        self._prepare = PolicyRows(self.ioctx)
        self._first: dict[str, tuple[str, dict[str, ColumnForm]]] = {}

    def next(self) -> SampleBatch | MultiAgentBatch:
        """Returns the next batch.

        Raises:
            DataError: If a line holds none, or a whole pass finds none.
        """
        ended = 0
        while True:
            line = self._next_line()
            batch = None if line is None else self._parse(self._place_text(), line)
            if batch is not None:
                return self._prepare(self._checked(batch, self._place_text()))
            self._next_file()  # what is behind a line that is cut short is still being written
            ended += 1
            if ended > 2 * len(self.files):  # the end of this pass, and a whole one in another order
                raise DataError(f"input: found no batch in {', '.join(self.files)}; wanted one per line of JSON")

    @property
    def actions_normalized(self) -> bool | None:
        """Whether actions are as policies choose them, by the first batch of each file; None where none says.

        Raises:
            DataError: If they say different things.
        """
        said: dict[bool | None, str] = {}
        for path in self.files:
            with opened(path) as file:
                for number, line in enumerate(file, 1):
                    batch = self._parse(f"{path}: line {number}", line) if line.strip() else None
                    if batch is not None:
                        said.setdefault(take_normalized(batch), path)
                        break
        if len(said) > 1:
            (first, path), (other, other_path) = list(said.items())[:2]
            raise DataError(
                f"{other_path}: got actions_normalized={other}, wanted {first}, as in {path}; convert each by itself"
            )
        return next(iter(said), None)

    def read_all_files(self) -> Iterator[SampleBatch | MultiAgentBatch]:
        """Yields the batches of all files once, in the files' order, wherever `next` stands.

        Episodes that have the same `eps_id` in several files are given others, the same in all policies' rows; see
        `EpisodeIds`.
        """
        ids = EpisodeIds()
        for index, path in enumerate(self.files):
            with opened(path) as file:
                for number, line in enumerate(file, 1):
                    where = f"{path}: line {number}"
                    batch = self._parse(where, line) if line.strip() else None
                    if batch is not None:
                        yield _unique(ids, index, self._prepare(self._checked(batch, where)))

    def __getstate__(self) -> dict[str, Any]:
        """Returns all but the open file: a copy opens it again, and goes on from the same place."""
        return {name: value for name, value in vars(self).items() if name not in {"_file", "_opening"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _file=None, _opening=ExitStack())

    def get_state(self) -> dict[str, Any]:
        """Returns which files come next, the place in the first of them, and the generator's state."""
        return {
            "files": self._identities,
            "order": [int(index) for index in self._order],
            "place": self._place,
            "offset": self._offset,
            "begin_within": self._begin_within,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; from the beginning where the files are others than they were."""
        if list(state["files"]) != self._identities:
            _LOGGER.warning("input: the files are not those of the checkpoint, and are read from their beginning")
            return
        self.close()
        self._begin_within = float(state.get("begin_within", 0.0))
        self._order = [int(index) for index in state["order"]]
        self._place, self._offset = int(state["place"]), int(state["offset"])
        self._rng.bit_generator.state = state["rng"]

    def _share_of_first_file(self) -> float:
        """Returns how far in its first file a worker begins, in [0, 1): evenly spread among those that share it."""
        turn, first = divmod(max(self.ioctx.worker_index - 1, 0), len(self.files))
        sharing = -(-(int(self.ioctx.config.num_workers) - first) // len(self.files))
        return turn / sharing if turn < sharing else 0.0

    def _next_line(self) -> bytes | None:
        """Returns the next line of the file that is being read that is not empty, None at its end."""
        if self._file is None:
            self._file = self._opening.enter_context(opened(self.files[self._order[self._place]]))
            if self._begin_within:
                self._offset, self._begin_within = _line_at(self._file, self._begin_within), 0.0
            self._file.seek(self._offset)
        for line in iter(self._file.readline, b""):
            self._offset += len(line)
            if line.strip():
                return bytes(line)
        return None

    def _next_file(self) -> None:
        self.close()
        self._place, self._offset = (self._place + 1) % len(self._order), 0
        if self._place == 0:
            self._rng.shuffle(self._order)

    def close(self) -> None:
        """Closes the file that is being read; `next` opens it again."""
        self._opening.close()
        self._file = None

    def _place_text(self) -> str:
        """Returns where the line stands that was read last."""
        return f"{self.files[self._order[self._place]]}: line up to byte {self._offset}"

    def _checked(self, batch: SampleBatch | MultiAgentBatch, where: str) -> SampleBatch | MultiAgentBatch:
        """Returns a batch, whose columns must have the shapes of those before."""
        parts = batch.policy_batches if isinstance(batch, MultiAgentBatch) else {DEFAULT_POLICY_ID: batch}
        for pid, part in parts.items():
            if SEQ_LENS in part:
                continue
            forms = forms_of(part)
            first, wanted = self._first.setdefault(pid, (where, forms))
            check_shapes(where, forms, first, wanted)
        return batch

    def _parse(self, where: str, line: bytes) -> SampleBatch | MultiAgentBatch | None:
        """Returns a line's batch; None of a last line that is cut short, as a writer that was killed leaves it."""
        try:
            return from_line(line)
        except DataError as error:
            if not line.endswith(b"\n") and not _is_json(line):
                _LOGGER.warning("%s: the last line is cut short, and left out (%s)", where, error)
                return None
            raise DataError(
                f"{where}: got a line that is no batch: {error}; it begins with {bytes(line[:60])!r}. Take the line "
                "out, or write the file again"
            ) from error


def _line_at(file: IO[bytes], share: float) -> int:
    """Returns where a line begins, in bytes: the one at `share` in [0, 1) of the file's lines."""
    starts, offset = [], 0
    for line in iter(file.readline, b""):
        if line.strip():
            starts.append(offset)
        offset += len(line)
    return starts[int(share * len(starts))] if starts else 0


def _is_json(line: bytes) -> bool:
    """Returns whether a line is whole, whatever it says: none that is cut short is."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _unique(ids: EpisodeIds, file: int, batch: SampleBatch | MultiAgentBatch) -> SampleBatch | MultiAgentBatch:
    """Returns a batch of a file with `eps_id`s that no other file has; see `EpisodeIds`."""
    if isinstance(batch, SampleBatch):
        return ids.unique(file, batch)
    parts = {policy: ids.unique(file, rows) for policy, rows in batch.policy_batches.items()}
    return MultiAgentBatch(parts, batch.env_steps())


__all__ = ["JsonReader", "split_trajectories"]
