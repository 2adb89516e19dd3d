"""Reads batches of experience from files of JSON, line by line."""

from __future__ import annotations

import glob
import logging
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import gymnasium as gym
import numpy as np
import tree

from rlframe.data.columns import (
    ACTIONS,
    BATCH_INDEXES,
    N_STEPS,
    NEXT_OBS,
    OBS,
    PREV_ACTIONS,
    REWARDS,
    SEQ_LENS,
    STATE_IN_PREFIX,
    WEIGHTS,
)
from rlframe.data.nested import first_leaf
from rlframe.data.returns import trajectory_ends
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.offline.input_reader import InputReader
from rlframe.offline.io_context import IOContext
from rlframe.offline.json_format import from_line
from rlframe.utils.errors import ConfigError, DataError
from rlframe.utils.spaces.space_utils import clip_action, normalize_action

_LOGGER = logging.getLogger("rlframe")
#: Between the path of a zip file and the name of a file in it.
_IN_ZIP = "!"


class JsonReader(InputReader):
    """Gives the batches of files, one per line, again and again.

    Each pass goes through all files once, in an order that is drawn anew. Workers begin with different files.

    Args:
        inputs: A path, a glob, a directory (of which all `.json` and `.zip` files are read), a zip file, an address
            such as `s3://bucket/file.json` (with fsspec's package for it), or a list of these.
        ioctx: The worker's context. With a worker, actions are brought into its policies' space, and trajectories are
            postprocessed if `postprocess_inputs` says so.

    Raises:
        ConfigError: If there are no such files.
    """

    def __init__(self, inputs: str | os.PathLike[str] | Sequence[str], ioctx: IOContext | None = None) -> None:
        self.ioctx = ioctx or IOContext()
        self.files = _find_files(inputs)
        self._rng = np.random.default_rng(self.ioctx.seed("json reader"))
        self._order = _rotated(len(self.files), max(self.ioctx.worker_index - 1, 0))
        self._place, self._offset = 0, 0
        self._file: IO[bytes] | None = None
        self._opening = ExitStack()

    def next(self) -> SampleBatch | MultiAgentBatch:
        """Returns the next batch.

        Raises:
            DataError: If a line holds none, or a whole pass finds none.
        """
        ended = 0
        while True:
            line = self._next_line()
            batch = None if line is None else self._parse(self.files[self._order[self._place]], line)
            if batch is not None:
                return self._prepare(batch)
            self._next_file()  # what is behind a line that is cut short is still being written
            ended += 1
            if ended > len(self.files):
                raise DataError(f"input: found no batch in {', '.join(self.files)}; wanted one per line of JSON")

    def read_all_files(self) -> Iterator[SampleBatch | MultiAgentBatch]:
        """Yields the batches of all files once, in the files' order, wherever `next` stands."""
        for path in self.files:
            with _opened(path) as file:
                for line in file:
                    batch = self._parse(path, line) if line.strip() else None
                    if batch is not None:
                        yield self._prepare(batch)

    def get_state(self) -> dict[str, Any]:
        """Returns which files come next, the place in the first of them, and the generator's state."""
        return {
            "files": [os.path.basename(path) for path in self.files],
            "order": [int(index) for index in self._order],
            "place": self._place,
            "offset": self._offset,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from there; from the beginning where the files are others than they were."""
        if list(state["files"]) != [os.path.basename(path) for path in self.files]:
            _LOGGER.warning("input: the files are not those of the checkpoint, and are read from their beginning")
            return
        self.close()
        self._order = [int(index) for index in state["order"]]
        self._place, self._offset = int(state["place"]), int(state["offset"])
        self._rng.bit_generator.state = state["rng"]

    def _next_line(self) -> bytes | None:
        """Returns the next line of the file that is being read that is not empty, None at its end."""
        if self._file is None:
            self._file = self._opening.enter_context(_opened(self.files[self._order[self._place]]))
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

    def _parse(self, path: str, line: bytes) -> SampleBatch | MultiAgentBatch | None:
        """Returns a line's batch; None of a last line that is cut short, as a writer that was killed leaves it."""
        try:
            return from_line(line)
        except DataError as error:
            if not line.endswith(b"\n"):
                _LOGGER.warning("%s: the last line is cut short, and left out (%s)", path, error)
                return None
            raise DataError(
                f"{path}: got a line that is no batch: {error}; it begins with {bytes(line[:60])!r}. Take the line "
                "out, or write the file again"
            ) from error

    # --- what a policy wants ----------------------------------------------------------------------------------

    def _prepare(self, batch: SampleBatch | MultiAgentBatch) -> SampleBatch | MultiAgentBatch:
        """Returns a batch as the worker's policies take it."""
        worker = self.ioctx.worker
        if worker is None:
            return batch
        if isinstance(batch, MultiAgentBatch):
            unknown = [pid for pid in batch.policy_batches if pid not in worker.policy_map]
            if unknown:
                raise DataError(
                    f"input: got rows of the policies {unknown}, wanted some of {list(worker.policy_map)}; name the "
                    'policies alike in "multiagent", or in the files'
                )
            for pid, part in batch.policy_batches.items():
                batch.policy_batches[pid] = self._prepare_rows(part, worker.policy_map[pid])
            return batch
        if DEFAULT_POLICY_ID not in worker.policy_map:
            raise DataError(
                f"input: got rows of one policy, wanted those of {list(worker.policy_map)}: lines whose type is "
                "MultiAgentBatch"
            )
        return self._prepare_rows(batch, worker.policy_map[DEFAULT_POLICY_ID])

    def _prepare_rows(self, batch: SampleBatch, policy: Any) -> SampleBatch:
        _check_observations(batch, policy)
        for name in (ACTIONS, PREV_ACTIONS):
            if name in batch:
                batch[name] = self._as_policys(name, batch[name], policy)
        if batch.get(REWARDS) is not None:
            batch[REWARDS] = np.asarray(batch[REWARDS], np.float32)
        for name in (WEIGHTS, BATCH_INDEXES):  # they speak of the buffer that the rows were in
            batch.pop(name, None)
        _add_states(batch, policy)
        # Rows whose rewards were summed have been postprocessed when they were sampled.
        if not self.ioctx.config.postprocess_inputs or N_STEPS in batch:
            return batch
        made: SampleBatch = SampleBatch.concat_samples(
            [policy.postprocess_trajectory(trajectory) for trajectory in split_trajectories(batch)]
        )
        return made

    def _as_policys(self, name: str, actions: Any, policy: Any) -> Any:
        """Returns actions of the environment's range in the policy's."""
        struct = policy.action_space_struct
        leaves = tree.flatten(struct)
        if isinstance(struct, gym.Space):
            return self._leaf_as_policys(name, actions, struct)
        if not isinstance(actions, np.ndarray):
            return tree.map_structure_up_to(
                struct, lambda leaf, column: self._leaf_as_policys(name, column, leaf), struct, actions
            )
        # Side by side, as sampling flattens them.
        sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
        if actions.ndim != 2 or actions.shape[1] != sum(sizes):
            raise DataError(
                f"input: got {name!r} of shape {actions.shape[1:]} by row, wanted ({sum(sizes)},) for the action space "
                f"{policy.action_space}"
            )
        parts = np.split(actions, np.cumsum(sizes)[:-1], axis=1)
        made = [self._leaf_as_policys(name, part, leaf) for part, leaf in zip(parts, leaves, strict=True)]
        return np.concatenate([part.reshape(len(actions), -1) for part in made], axis=1)

    def _leaf_as_policys(self, name: str, actions: Any, space: Any) -> Any:
        config, column = self.ioctx.config, np.asarray(actions)
        if space.shape is not None and column.size == len(column) * int(np.prod(space.shape)):
            column = column.reshape(len(column), *space.shape)
        elif space.shape is not None:
            raise DataError(f"input: got {name!r} of shape {column.shape[1:]} by row, wanted {space.shape}")
        if column.dtype.kind in "iuf" and space.dtype is not None and space.dtype.kind in "iuf":
            column = column.astype(space.dtype, copy=False)
        if not config.actions_in_input_normalized and isinstance(space, gym.spaces.Discrete):
            column = column - column.dtype.type(space.start)
        if config.normalize_actions and not config.actions_in_input_normalized:
            column = normalize_action(column, space)
        if config.clip_actions and not config.normalize_actions:
            column = clip_action(column, space)
        return column


def _rotated(count: int, first: int) -> list[int]:
    """Returns 0, 1, ... count - 1, beginning at `first`."""
    return [(first + index) % count for index in range(count)]


def split_trajectories(batch: SampleBatch) -> list[SampleBatch]:
    """Returns one batch for each episode, or part of one, that follows another in a batch."""
    stops = (np.flatnonzero(trajectory_ends(batch)) + 1).tolist()
    return [batch[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _add_states(batch: SampleBatch, policy: Any) -> None:
    """Gives rows of a policy with memory that have no states its initial ones."""
    states = policy.get_initial_state()
    if SEQ_LENS in batch or not states or f"{STATE_IN_PREFIX}0" in batch:
        return
    for index, state in enumerate(states):
        initial = np.asarray(state)
        batch[f"{STATE_IN_PREFIX}{index}"] = np.zeros((batch.count, *initial.shape), initial.dtype) + initial


def _check_observations(batch: SampleBatch, policy: Any) -> None:
    """Gives observations the policy's dtype; refuses those of another shape."""
    wanted = getattr(policy.observation_space, "shape", None)
    for name in (OBS, NEXT_OBS):
        column = batch.get(name)
        if wanted is None or column is None or not isinstance(column, np.ndarray):
            continue
        got = first_leaf(column).shape[1:]
        if got != tuple(wanted):
            raise DataError(
                f"input: got {name!r} of shape {got} by row, wanted {tuple(wanted)}, as the policy's preprocessor "
                "gives it; write observations as get_preprocessor(space)(space).transform(obs) returns them"
            )
        dtype = policy.observation_space.dtype
        if dtype is not None and dtype.kind in "iuf" and column.dtype.kind in "iuf":
            batch[name] = column.astype(np.float32 if dtype == np.float64 else dtype, copy=False)


def _find_files(inputs: Any) -> list[str]:
    """Returns the files that paths, globs, directories and zip files stand for, sorted for each of them."""
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    found: list[str] = []
    for one in given:
        if not isinstance(one, (str, os.PathLike)):
            raise ConfigError(f"input: got {one!r} among the paths, wanted text")
        matches = _matches(os.fspath(one))
        if not matches:
            raise ConfigError(
                f"input={os.fspath(one)!r}: found no file there, wanted a file of JSON, a directory of such, a glob or "
                "a zip file; a name has to be given to register_input first"
            )
        found += matches
    if not found:
        raise ConfigError("input: got no path, wanted files of JSON")
    return found


def _matches(path: str) -> list[str]:
    if "://" in path:
        return [path]
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(path):
        names = sorted(glob.glob(os.path.join(glob.escape(path), "*.json")))
        names += sorted(glob.glob(os.path.join(glob.escape(path), "*.zip")))
    else:
        names = [path] if os.path.isfile(path) else sorted(glob.glob(path))
    return [member for name in names for member in _members(name)]


def _members(path: str) -> list[str]:
    if not path.endswith(".zip"):
        return [path]
    with zipfile.ZipFile(path) as archive:
        return [f"{path}{_IN_ZIP}{name}" for name in sorted(archive.namelist()) if name.endswith(".json")]


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """A context with a file's bytes."""
    if "://" in path:
        import fsspec  # type: ignore[import-untyped]

        with fsspec.open(path, "rb") as remote:
            yield remote
        return
    archive_path, mark, name = path.rpartition(f".zip{_IN_ZIP}")
    if not mark:
        with open(path, "rb") as file:
            yield file
        return
    with zipfile.ZipFile(f"{archive_path}.zip") as archive, archive.open(name) as member:
        yield member


__all__ = ["JsonReader", "split_trajectories"]
