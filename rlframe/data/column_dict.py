"""A dict of columns: how many rows it has, `dones` that are computed, reads that are watched, ends of trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from rlframe.data import columns as names
from rlframe.data.access_watch import WatchedColumns
from rlframe.data.columns import DONES, IS_TRAINING, SEQ_LENS, STATE_IN_PREFIX, TERMINATEDS, TRUNCATEDS
from rlframe.data.nested import Column, first_leaf

BoolArray: TypeAlias = NDArray[np.bool_]
_get = dict.__getitem__
_MISSING: Final = object()
_BEHAVIOUR_LOGITS: Final = "behaviour_logits"
"""RLlib 0.8's name of the inputs of the distribution that acted."""


def is_per_sequence(column: str) -> bool:
    """Returns whether `column` has one entry per sequence, not per row, in a batch that has `seq_lens`."""
    return column == SEQ_LENS or column.startswith(STATE_IN_PREFIX)


class ColumnDict(WatchedColumns, dict[str, Any]):
    """The item access of a `SampleBatch`.

    `batch["dones"]` is computed where only `terminateds` (and `truncateds`) are stored; `batch["is_training"]` is a
    flag, not a column. What `items()` and `values()` give is what is stored: neither computed nor converted.
    """

    # Defaults live on the class, so that a batch built by `from_columns` sets no attribute at all.
    time_major: bool | None = None
    zero_padded: bool = False
    max_seq_len: int | None = None
    _count: int | None = None
    _is_training: Any = None

    @classmethod
    def from_columns(cls, columns: Mapping[str, Column], count: int | None = None) -> Self:
        """Returns a batch of the columns as they are: nothing is checked, converted or copied.

        Args:
            columns: Arrays with equally many rows.
            count: Number of rows; where missing, that of the first column.
        """
        batch = cls.__new__(cls)
        dict.update(batch, columns)
        if count is not None:
            batch._count = count
        return batch

    @property
    def count(self) -> int:
        """Number of rows; where the batch has `seq_lens`, the valid ones only."""
        if self._count is not None:
            return self._count
        seq_lens = dict.get(self, names.SEQ_LENS)
        if seq_lens is not None and len(seq_lens) > 0:
            return int(sum(seq_lens) if isinstance(seq_lens, list) else seq_lens.sum())
        for key, value in self.items():
            if not is_per_sequence(key):
                leaf = value if isinstance(value, np.ndarray) else first_leaf(value)
                if not hasattr(leaf, "__len__") or getattr(leaf, "shape", None) == ():
                    continue  # a number that stands beside columns, or None
                return int(leaf.shape[0] * leaf.shape[1]) if self.time_major else len(leaf)
        return 0

    @count.setter
    def count(self, rows: int) -> None:
        self._count = rows

    def __len__(self) -> int:
        return self.count

    def agent_steps(self) -> int:
        """Number of rows."""
        return self.count

    def env_steps(self) -> int:
        """Number of environment steps: with one agent, the rows."""
        return self.count

    def columns(self, keys: Iterable[str]) -> list[Any]:
        """Returns the named columns, in the order given."""
        return [self[key] for key in keys]

    def _like(self, columns: Mapping[str, Column]) -> Self:
        """Returns a batch of other columns with this one's flags."""
        batch = type(self).from_columns(columns)
        if self.__dict__:
            kept = {key: value for key, value in self.__dict__.items() if key not in ("_watch", "_count")}
            batch.__dict__.update(kept)
            if self._watch is not None:
                batch.set_get_interceptor(self._watch.interceptor)
        return batch

    def _refuse_sequences(self, what: str) -> None:
        if dict.get(self, names.SEQ_LENS) is not None:
            raise ValueError(f"Got {what}() on a batch with seq_lens; wanted a batch that is not cut into sequences.")

    # --- columns ----------------------------------------------------------------------------------------------

    def _rows(self, rows: slice) -> Any:
        raise TypeError(f"Got slice {rows} of a {type(self).__name__}, which has no rows")

    def __getitem__(self, key: Any) -> Any:
        if self._watch is None and key.__class__ is str:
            return _get(self, key)
        if isinstance(key, slice):
            return self._rows(key)
        value = _get(self, key)
        if self._watch is None or key in (IS_TRAINING, _BEHAVIOUR_LOGITS):
            return value
        return self._watch.read(key, value)

    def __missing__(self, key: str) -> Any:
        if key == IS_TRAINING:
            return self.is_training
        if key == DONES and TERMINATEDS in self:
            return self._derive_dones()
        if key == _BEHAVIOUR_LOGITS and names.ACTION_DIST_INPUTS in self:
            return self[names.ACTION_DIST_INPUTS]
        raise KeyError(names.absent(key, self))

    def _derive_dones(self) -> Any:
        terminateds = _get(self, TERMINATEDS)
        truncateds = dict.get(self, TRUNCATEDS)
        return terminateds if truncateds is None else terminateds | truncateds

    def __setitem__(self, key: str, value: Any) -> None:
        if key == IS_TRAINING:
            self._is_training = value
            return
        if self._watch is not None:
            self._watch.wrote(key, is_new=key not in self)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        dict.__delitem__(self, key)
        if self._watch is not None:
            self._watch.removed(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Returns `batch[key]` (derived `dones` included), or the default where there is no such column."""
        if key in self or (key == DONES and TERMINATEDS in self) or key == IS_TRAINING:
            return self[key]
        return default

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Removes a column and returns it, or the default where there is no such column."""
        if key not in self:
            if default is _MISSING:
                raise KeyError(names.absent(key, self))
            return default
        value = self[key]
        del self[key]
        return value

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Sets columns as `dict.update` does."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Sets a column where there is none; returns what is there."""
        if key not in self:
            self[key] = default
        return self[key]

    @property
    def is_training(self) -> Any:
        """Whether the batch is learnt from (False until `set_training` said otherwise)."""
        return False if self._is_training is None else self._is_training

    @is_training.setter
    def is_training(self, training: Any) -> None:
        self._is_training = training

    def set_training(self, training: Any = True) -> None:
        """Sets the `is_training` flag."""
        self._is_training = training


# --- where trajectories end -----------------------------------------------------------------------------------


def continues(batch: ColumnDict) -> BoolArray:
    """Returns whether row i+1 is the step after row i, in the same episode and of the same agent. bool `[B-1]`.

    Rows are taken to follow each other where the batch has neither `t` nor `eps_id`. A row that is done is followed
    by nothing.
    """
    dones = batch.get(DONES)
    follows = np.ones(max(batch.count - 1, 0), bool) if dones is None else ~np.asarray(dones[:-1], bool)
    steps = batch.get(names.TURN, batch.get(names.T))
    if steps is not None:
        follows &= steps[1:] == steps[:-1] + 1
    for key in (names.EPS_ID, names.AGENT_INDEX):
        ids = batch.get(key)
        if ids is not None:
            follows &= ids[1:] == ids[:-1]
    return follows


def trajectory_ends(batch: ColumnDict) -> BoolArray:
    """Returns whether each row is the last of its trajectory in this batch (done, cut off, or the last row). `[B]`."""
    ends = np.ones(batch.count, bool)
    np.logical_not(continues(batch), out=ends[:-1])
    return ends


def terminal_rows(batch: ColumnDict) -> BoolArray:
    """Returns `terminateds` `[B]`, or `dones` in batches of old code, which knows no difference.

    Dones that say something else than `terminateds` and `truncateds` together were written by such code, too.

    Raises:
        KeyError: If the batch has neither.
    """
    if TERMINATEDS not in batch:
        return np.asarray(batch[DONES], bool)
    terminateds = np.asarray(batch[TERMINATEDS], bool)
    if DONES not in batch:
        return terminateds
    dones = np.asarray(batch[DONES], bool)
    union = terminateds | np.asarray(batch[TRUNCATEDS], bool) if TRUNCATEDS in batch else terminateds
    return terminateds if (dones == union).all() else dones
