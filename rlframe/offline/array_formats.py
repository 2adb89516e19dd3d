"""Experience in arrays: NumPy's npz, and HDF5 as D4RL, d3rlpy and Minari lay it out."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import ACTIONS, EPS_ID, NEXT_OBS, OBS, REWARDS, TERMINATEDS, TRUNCATEDS, T
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline.episode_file import PIECE_ROWS, ArrayFile, EpisodeFile, as_single, forms_of, piece_bounds
from rlframe.utils.errors import ConfigError, DataError

#: Where Minari keeps a dataset's steps, below its directory.
_MINARI_FILE = os.path.join("data", "main_data.hdf5")


def open_npz(path: str) -> EpisodeFile:
    """Returns the episodes of a .npz file, which is held in memory.

    Raises:
        DataError: If it is none, was cut short, or holds pickled objects.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: got no npz file of numbers, or one that is cut short ({error}); write it again with "
            "numpy.savez(path, obs=..., actions=..., rewards=..., terminateds=..., truncateds=...)"
        ) from error
    return ArrayFile(path, {name: array for name, array in arrays.items() if array.ndim})


def open_hdf5(path: str) -> EpisodeFile:
    """Returns the episodes of an HDF5 file, in whichever of the three layouts it is; rows are read when wanted.

    Raises:
        DataError: If it is none, was cut short, or has another layout.
    """
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(f"{path}: HDF5 is read by h5py: pip install 'rlframe[offline]'") from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path}: got no HDF5 file, or one that is cut short ({error}); write it again") from error
    if "num_episodes" in file and f"{_D3RLPY[OBS]}_0" in file:
        return _EpisodesFile(path, _d3rlpy_episodes(path, file))
    if any(name.startswith("episode_") and isinstance(group, h5py.Group) for name, group in file.items()):
        return _EpisodesFile(path, _minari_episodes(path, file))
    found: dict[str, Any] = {}
    file.visititems(
        lambda name, item: found.update({name: item} if isinstance(item, h5py.Dataset) and item.shape else {})
    )
    rows = len(found["rewards"]) if "rewards" in found else 0
    # D4RL has notes of the dataset as a whole beside the steps.
    wanted = {name: item for name, item in found.items() if not name.startswith("metadata") and len(item) == rows}
    return ArrayFile(path, wanted)


def minari_file(name: str) -> str:
    """Returns where the steps of a Minari dataset lie that is on this machine.

    Args:
        name: Its id, such as "D4RL/door/human-v2", behind "//" or not.

    Raises:
        ConfigError: If there is none, or it is in Minari's other format, Arrow.
    """
    name = name.removeprefix("//")
    root = os.environ.get("MINARI_DATASETS_PATH", os.path.join(os.path.expanduser("~"), ".minari", "datasets"))
    path = os.path.join(root, name, _MINARI_FILE)
    found = None if os.path.isfile(path) else _minari_format(path)
    if found not in {None, "hdf5"}:
        raise ConfigError(
            f"input='minari:{name}': got a dataset in Minari's format {found!r}, wanted 'hdf5'; write it by "
            "minari.DataCollector(env, data_format='hdf5'), or download it in that format"
        )
    if not os.path.isfile(path):
        raise ConfigError(
            f"input='minari:{name}': found no {path}; download it first with `minari download {name}`, or say in "
            "MINARI_DATASETS_PATH where datasets are"
        )
    return path


def _minari_format(path: str) -> str | None:
    """Returns what the notes beside a Minari dataset's steps say of their format; None where there are none."""
    notes = os.path.join(os.path.dirname(path), "metadata.json")
    if not os.path.isfile(notes):
        return None
    try:
        with open(notes, encoding="utf-8") as file:
            return str(json.load(file).get("data_format", "hdf5"))
    except ValueError as error:
        raise ConfigError(f"{notes}: got no notes of a Minari dataset ({error}); download it again") from error


class _EpisodesFile(EpisodeFile):
    """Episodes that are stored one by one.

    Args:
        path: Where they were read from.
        episodes: Each one's number of rows, and arrays that are read when wanted.
    """

    def __init__(self, path: str, episodes: list[tuple[int, Mapping[str, Any]]]) -> None:
        self.path = path
        self._episodes = [(rows, arrays) for rows, arrays in episodes if rows]
        if not self._episodes:
            raise DataError(f"{path}: got no rows")
        ends = np.cumsum([rows for rows, _ in self._episodes])
        self.bounds = piece_bounds(ends - 1, PIECE_ROWS)
        self._first = np.searchsorted(np.concatenate([[0], ends]), self.bounds)
        self.forms = forms_of(self._episode(0))

    def read(self, piece: int) -> SampleBatch:
        """Returns the rows of a piece."""
        numbers = range(self._first[piece], self._first[piece + 1])
        made: SampleBatch = SampleBatch.concat_samples([self._episode(number) for number in numbers])
        return made

    def _episode(self, number: int) -> SampleBatch:
        rows, arrays = self._episodes[number]
        obs = as_single(_joined(arrays[OBS]))
        terminal, cut = np.zeros(rows, bool), np.zeros(rows, bool)
        for flags, name in ((terminal, TERMINATEDS), (cut, TRUNCATEDS)):
            given = arrays.get(name)
            if given is not None and np.ndim(given):
                flags[:] = np.asarray(given[:]).reshape(rows)
            elif given is not None:
                flags[-1] = bool(given[()])
        cut[-1] |= not terminal[-1]
        columns = {
            OBS: obs[:rows],
            NEXT_OBS: obs[1:] if len(obs) > rows else np.concatenate([obs[1:], obs[-1:]]),
            ACTIONS: as_single(_joined(arrays[ACTIONS])),
            REWARDS: as_single(np.asarray(arrays[REWARDS][:])).reshape(rows),
            TERMINATEDS: terminal, TRUNCATEDS: cut, "dones": terminal | cut,
            EPS_ID: np.full(rows, number), T: np.arange(rows),
        }  # fmt: skip
        short = [name for name, column in columns.items() if len(column) != rows]
        if short:
            raise DataError(
                f"{self.path}: episode {number}: column {short[0]!r}: got {len(columns[short[0]])} rows, wanted {rows}"
            )
        batch = SampleBatch(columns)
        if len(obs) > rows or terminal[-1]:
            return batch
        # Nothing tells what was seen after the last step of an episode that was cut off: it was cut a step earlier.
        cut[-2:] = batch["dones"][-2:] = True
        shorter: SampleBatch = batch[: rows - 1]
        return shorter


def _joined(item: Any) -> NDArray[Any]:
    """Returns an array, or those of a group of arrays side by side, as Gymnasium flattens a Dict or Tuple of Boxes."""
    if not hasattr(item, "keys"):
        return np.asarray(item[:])
    parts = [_joined(item[name]) for name in sorted(item.keys())]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


#: What d3rlpy 2 calls its columns; episode 3's are "observations_3", ...
_D3RLPY = {OBS: "observations", ACTIONS: "actions", REWARDS: "rewards", TERMINATEDS: "terminated"}


def _d3rlpy_episodes(path: str, file: Any) -> list[tuple[int, Mapping[str, Any]]]:
    made: list[tuple[int, Mapping[str, Any]]] = []
    for number in range(int(file["num_episodes"][()])):
        missing = [name for name in _D3RLPY.values() if f"{name}_{number}" not in file]
        if missing:
            raise DataError(
                f"{path}: episode {number}: {missing[0]!r} is missing, or is a tuple of arrays; wanted one array"
            )
        arrays = {name: file[f"{theirs}_{number}"] for name, theirs in _D3RLPY.items()}
        made.append((len(arrays[REWARDS]), arrays))
    return made


_MINARI = {
    OBS: "observations", ACTIONS: "actions", REWARDS: "rewards", TERMINATEDS: "terminations", TRUNCATEDS: "truncations",
}  # fmt: skip


def _minari_episodes(path: str, file: Any) -> list[tuple[int, Mapping[str, Any]]]:
    def numbered() -> Iterator[tuple[int, str]]:
        for name in file:
            number = name.removeprefix("episode_")
            if number.isdigit():
                yield int(number), name

    made: list[tuple[int, Mapping[str, Any]]] = []
    for number, group in sorted(numbered()):
        missing = [name for name in _MINARI.values() if name not in file[group]]
        if missing:
            raise DataError(f"{path}: episode {number}: {missing[0]!r} is missing")
        arrays = {name: file[group][theirs] for name, theirs in _MINARI.items()}
        made.append((len(arrays[REWARDS]), arrays))
    return made


__all__ = ["minari_file", "open_hdf5", "open_npz"]
