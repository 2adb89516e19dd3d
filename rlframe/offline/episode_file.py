"""Files of whole episodes: what a reader of experience knows of one, whatever its format is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    AGENT_INDEX,
    DONES,
    EPS_ID,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TRUNCATEDS,
    T,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline.json_format import ACTIONS_NORMALIZED
from rlframe.utils.errors import DataError

#: Rows of a piece, about: what is read and mixed at once.
PIECE_ROWS = 16_384
#: What columns are called in the files of D4RL, d3rlpy and Minari, and here.
OTHERS_NAMES: Mapping[str, str] = {
    "observations": OBS, "next_observations": NEXT_OBS, "terminals": TERMINATEDS, "terminated": TERMINATEDS,
    "terminations": TERMINATEDS, "timeouts": TRUNCATEDS, "truncated": TRUNCATEDS, "truncations": TRUNCATEDS,
    "episode_terminals": DONES, "infos/action_log_probs": ACTION_LOGP, "action_probs": ACTION_PROB, "episode": EPS_ID,
}  # fmt: skip
_FLAGS = (TERMINATEDS, TRUNCATEDS, DONES)
_NUMBERS = (REWARDS, *_FLAGS, EPS_ID, T, ACTION_LOGP, ACTION_PROB)


class ColumnForm(NamedTuple):
    """What the rows of a column are.

    Attributes:
        dtype: NumPy's name of their type.
        shape: Shape of one row.
    """

    dtype: str
    shape: tuple[int, ...]


class EpisodeFile(ABC):
    """One file of episodes, cut into pieces that hold whole ones.

    Attributes:
        path: Where it is.
        bounds: Rows at which pieces begin, and the number of all rows behind them. Int `[pieces + 1]`.
        forms: The columns' forms by name.
        actions_normalized: Whether actions are as policies choose them; None where the file does not say.
        policy: Whose rows they are; None where they are those of the only policy.
    """

    path: str
    bounds: Sequence[int]
    forms: Mapping[str, ColumnForm]
    actions_normalized: bool | None = None
    policy: str | None = None

    @property
    def pieces(self) -> int:
        """Number of pieces."""
        return len(self.bounds) - 1

    @abstractmethod
    def read(self, piece: int) -> SampleBatch:
        """Returns the rows of a piece.

        Raises:
            DataError: If the file holds something else than it said.
        """


class ArrayFile(EpisodeFile):
    """Episodes in arrays with a row for each step, one after the other.

    Rows without `new_obs` get the observation of the row behind; those that an episode was cut off at, where nothing
    tells what came after, are left out, and the row before is where it was cut off: it is a step shorter.

    Args:
        path: Where they were read from.
        arrays: By name, ours or another's (`OTHERS_NAMES`); anything that has `shape` and slices to an array.

    Raises:
        DataError: If an array is missing or not of numbers, or arrays have different numbers of rows.
    """

    def __init__(self, path: str, arrays: Mapping[str, Any]) -> None:
        self.path = path
        self._columns = {OTHERS_NAMES.get(name, name): array for name, array in arrays.items()}
        if len(self._columns) < len(arrays):
            twice = [name for name in arrays if OTHERS_NAMES.get(name, name) in arrays.keys() - {name}]
            raise DataError(
                f"{path}: got {twice[0]!r} and {OTHERS_NAMES[twice[0]]!r}, which are one column; wanted one of them"
                if twice
                else f"{path}: got several arrays for one column among {', '.join(arrays)}; wanted each column once"
            )
        note = self._columns.pop(ACTIONS_NORMALIZED, None)
        if note is not None and len(note):
            self.actions_normalized = bool(np.asarray(note[:1]).reshape(-1)[0])
        missing = [name for name in (OBS, ACTIONS, REWARDS) if name not in self._columns]
        if missing:
            raise DataError(
                f"{path}: got the arrays {', '.join(arrays) or 'none'}, wanted {', '.join(missing)}, too; "
                f"names of others that are understood: {', '.join(OTHERS_NAMES)}"
            )
        self._check_rows()
        self._ids = self._episode_ids()
        ends = self._episode_ends()
        self._settle_ids()
        self.bounds = piece_bounds(ends, PIECE_ROWS)
        self.forms = {name: ColumnForm(made.dtype.str, made.shape[1:]) for name, made in self._piece(0, 2).items()}
        self._last = np.zeros(len(self._columns[REWARDS]), bool)
        self._last[ends] = True

    def read(self, piece: int) -> SampleBatch:
        """Returns the rows of a piece."""
        start, stop = self.bounds[piece], self.bounds[piece + 1]
        columns = self._piece(start, stop)
        last = self._last[start:stop]
        if EPS_ID not in columns:
            before = int(self._last[:start].sum())
            columns[EPS_ID] = before + np.cumsum(last) - last
        kept = None
        if NEXT_OBS not in columns:
            columns[NEXT_OBS] = np.concatenate([columns[OBS][1:], columns[OBS][-1:]])
            kept = ~last | columns[TERMINATEDS]
            cut = np.flatnonzero(columns[TRUNCATEDS] & ~kept)
            cut = cut[cut > 0] - 1
            for name in (TRUNCATEDS, DONES):
                columns[name][cut[~last[cut]]] = True
        batch = SampleBatch(columns)
        return batch if kept is None or kept.all() else batch.take(np.flatnonzero(kept))

    def _check_rows(self) -> None:
        rows = {name: len(array) for name, array in self._columns.items()}
        if len(set(rows.values())) > 1:
            raise DataError(
                f"{self.path}: got arrays of different numbers of rows, {rows}, wanted one row for each step"
            )
        if not rows[REWARDS]:
            raise DataError(f"{self.path}: got no rows")
        for name in self._columns.keys() & {OBS, NEXT_OBS, ACTIONS, *_NUMBERS}:
            array = self._columns[name]
            if array.dtype.kind not in "biuf":
                raise DataError(f"{self.path}: {name!r} has dtype {array.dtype}, wanted real numbers")
            if name in _NUMBERS and np.prod(array.shape[1:]) != 1:
                raise DataError(
                    f"{self.path}: {name!r} has rows of shape {array.shape[1:]}, wanted one number for each step"
                )

    def _episode_ids(self) -> NDArray[np.int64] | None:
        """Returns which episode each row says that it is of; None where rows say nothing."""
        if EPS_ID not in self._columns:
            return None
        given = np.asarray(self._columns[EPS_ID][:]).reshape(len(self._columns[REWARDS]))
        odd = np.flatnonzero(given != np.floor(given))
        if len(odd):
            raise DataError(f"{self.path}: {EPS_ID!r}: got {given[odd[0]]} in row {odd[0]}, wanted whole numbers")
        return given.astype(np.int64)

    def _settle_ids(self) -> None:
        """Gives an episode whose number an earlier one had, that has ended, another: runs that count from 0 again.

        Raises:
            DataError: Rows of one episode are in several places, and nothing tells what each step led to.
        """
        ids = self._ids
        if ids is None or AGENT_INDEX in self._columns:
            return
        begins = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        if len(np.unique(ids[begins])) == len(begins):
            return
        ended = np.zeros(len(ids), bool)
        for name in _FLAGS:
            if name in self._columns:
                ended |= np.asarray(self._columns[name][:]).reshape(len(ids)).astype(bool)
        stops, fresh, now = [*begins[1:], len(ids)], int(ids.max()) + 1, dict[int, tuple[int, int]]()
        for begin, stop in zip(begins.tolist(), stops, strict=True):
            said = int(ids[begin])
            number, last = now.get(said, (said, -1))
            if last >= 0 and ended[last]:
                number, fresh = fresh, fresh + 1
            elif last >= 0 and NEXT_OBS not in self._columns:
                raise DataError(
                    f"{self.path}: {EPS_ID!r}: got rows of the episode {said} in several places, up to row {last} and "
                    f"from row {begin} on, and no {NEXT_OBS!r}; wanted each episode's rows together, in their order"
                )
            now[said] = (number, int(stop) - 1)
            ids[begin:stop] = number

    def _episode_ends(self) -> NDArray[np.intp]:
        """Returns the last rows of episodes."""
        rows = len(self._columns[REWARDS])
        ends = np.zeros(rows, bool)
        for name in _FLAGS:
            if name in self._columns:
                flags = np.asarray(self._columns[name][:]).reshape(rows)
                odd = np.flatnonzero((flags != 0) & (flags != 1))
                if len(odd):
                    raise DataError(f"{self.path}: {name!r}: got {flags[odd[0]]} in row {odd[0]}, wanted 0 or 1")
                ends |= flags.astype(bool)
        if self._ids is not None:
            ends[:-1] |= self._ids[1:] != self._ids[:-1]
        if not ends.any() and not {EPS_ID, *_FLAGS} & self._columns.keys():
            raise DataError(
                f"{self.path}: got no array that tells where episodes end, wanted {TERMINATEDS}, {TRUNCATEDS}, {DONES} "
                f"or {EPS_ID}"
            )
        ends[-1] = True
        return np.flatnonzero(ends)

    def _piece(self, start: int, stop: int) -> dict[str, Any]:
        columns = {}
        for name, array in self._columns.items():
            column = np.asarray(array[start:stop])
            if name in _NUMBERS:
                column = column.reshape(len(column))
            columns[name] = column.astype(bool) if name in _FLAGS else as_single(column)
        if self._ids is not None:
            columns[EPS_ID] = self._ids[start:stop]
        if TERMINATEDS not in columns:
            columns[TERMINATEDS] = columns.get(DONES, np.zeros(len(columns[REWARDS]), bool))
        if TRUNCATEDS not in columns:
            ended = columns.get(DONES, columns[TERMINATEDS])
            columns[TRUNCATEDS] = ended & ~columns[TERMINATEDS]
        columns[DONES] = columns[TERMINATEDS] | columns[TRUNCATEDS]
        return columns


def as_single(column: NDArray[Any]) -> NDArray[Any]:
    """Returns a column whose numbers are float32 where they were float64."""
    return column.astype(np.float32) if column.dtype == np.float64 else column


def piece_bounds(ends: Any, rows: int) -> list[int]:
    """Returns where pieces of whole episodes begin, each of as many rows as given or more, and where the last ends.

    Args:
        ends: The last rows of episodes, in order; the last of all rows among them.
        rows: Rows that are enough for a piece.
    """
    bounds = [0]
    for end in np.asarray(ends).tolist():
        if end + 1 - bounds[-1] >= rows:
            bounds.append(end + 1)
    final = int(ends[-1]) + 1
    return bounds if bounds[-1] == final else [*bounds, final]


def forms_of(columns: Mapping[str, Any]) -> dict[str, ColumnForm]:
    """Returns the forms of a batch's columns; "json" is the dtype of those that hold objects."""
    return {
        name: ColumnForm("json", ()) if column.dtype.hasobject or column.dtype.kind in "US"
        else ColumnForm(column.dtype.str, tuple(column.shape[1:]))
        for name, column in columns.items() if isinstance(column, np.ndarray)
    }  # fmt: skip


def check_columns(where: str, got: Mapping[str, ColumnForm], what: str, wanted: Mapping[str, ColumnForm]) -> None:
    """Checks that two parts of a dataset have the same columns, of the same shapes.

    Raises:
        DataError: If not; it names the column.
    """
    for name in (*wanted, *got):
        if name not in got or name not in wanted:
            lacking, having = (where, what) if name not in got else (what, where)
            raise DataError(f"{lacking}: column {name!r} is missing, which {having} has; wanted one dataset's columns")
    check_shapes(where, got, what, wanted)


def check_shapes(where: str, got: Mapping[str, ColumnForm], what: str, wanted: Mapping[str, ColumnForm]) -> None:
    """Checks that columns that two parts of a dataset share are of the same shapes.

    Raises:
        DataError: If not; it names the column.
    """
    for name in sorted(got.keys() & wanted.keys(), key=list(wanted).index):
        if got[name].shape != wanted[name].shape:
            raise DataError(
                f"{where}: column {name!r}: got rows of shape {got[name].shape}, wanted {wanted[name].shape}, as in "
                f"{what}; data of one input are of one form"
            )


__all__ = [
    "OTHERS_NAMES",
    "PIECE_ROWS",
    "ArrayFile",
    "ColumnForm",
    "EpisodeFile",
    "as_single",
    "check_columns",
    "check_shapes",
    "forms_of",
    "piece_bounds",
]
