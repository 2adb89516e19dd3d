"""Observations of the transitions in a replay buffer, each stored once.

A transition needs `obs` and `new_obs`, and the `new_obs` of one is nearly always the `obs` of a later one. So
transitions hold numbers of rows in one array of observations, and most rows are used twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import AGENT_INDEX, DONES, EPS_ID, N_STEPS, TERMINATEDS, TRUNCATEDS, TURN, T
from rlframe.replay.buffer_state import ObservationsState, Tail

Array = NDArray[Any]
Indexes = NDArray[np.int64]

_CHUNK_BYTES = 16 * 2**20
_CHUNK_ROWS = 4096
_AGENT_STRIDE = 1_000_003  # keeps agents of one episode apart; a chance collision is caught where contents are compared


class StepKeys(NamedTuple):
    """Which step of which trajectory each row of a batch is.

    Attributes:
        trajectory: Number of the trajectory. int64 `[B]`.
        t: Step within it of `obs`. int `[B]`.
        n_steps: Steps from `obs` to `new_obs`, or None where all are 1. int `[B]`.
        ended: Whether the trajectory ended with the row, or None if unknown. bool `[B]`.
    """

    trajectory: Array
    t: Array
    n_steps: Array | None
    ended: Array | None

    @classmethod
    def of_batch(cls, batch: Mapping[str, Any]) -> StepKeys | None:
        """Returns the keys of a batch's rows, or None if it lacks `eps_id` or `t`."""
        if EPS_ID not in batch or T not in batch:
            return None
        trajectory = batch[EPS_ID]
        if AGENT_INDEX in batch:
            trajectory = trajectory * _AGENT_STRIDE + batch[AGENT_INDEX]
        ended = batch.get(DONES)
        if ended is None and TERMINATEDS in batch and TRUNCATEDS in batch:
            ended = batch[TERMINATEDS] | batch[TRUNCATEDS]
        n_steps = batch.get(N_STEPS)
        if n_steps is not None and not np.count_nonzero(n_steps - 1):
            n_steps = None
        return cls(trajectory, batch.get(TURN, batch[T]), n_steps, ended)

    def rows(self, rows: slice) -> StepKeys:
        """Returns the keys of some of the rows."""
        n_steps = None if self.n_steps is None else self.n_steps[rows]
        ended = None if self.ended is None else self.ended[rows]
        return StepKeys(self.trajectory[rows], self.t[rows], n_steps, ended)


class _Layout(NamedTuple):
    """Where the observations of one batch of B transitions go: B rows of `obs`, then G rows of `new_obs` only.

    Attributes:
        next_place: Which of these B + G rows is the `new_obs` of each transition. int64 `[B]`.
        tails: The last transition that uses each of the G rows. int64 `[G]`.
        ends: The transitions after which a trajectory breaks off, or another one starts; the last is one. `[S]`.
    """

    next_place: Indexes
    tails: Indexes
    ends: Indexes


class ObservationStore(ObservationsState):
    """Rows of observations, shared between transitions that follow each other.

    Transitions have numbers, counted up as they are added; transition i lives in slot `i % capacity`, and the caller
    says which is the oldest one alive. Within a batch, `new_obs` is looked for `n_steps` rows on; across batches, where
    a trajectory stopped is remembered by its number and `t`. An observation is shared only if the contents are equal,
    so what comes out is what went in, whatever the numbers say.

    A row is freed with the last transition that uses it. That needs no count of users: the last user of an `obs` is
    the transition that has it as `obs` (those that have it as `new_obs` came before), and the last user of a row that
    is nobody's `obs` owns it until a later batch adopts it. Free rows are used again before new ones are touched, and
    untouched memory is not committed, so a buffer costs (1 + 1 / mean trajectory length) rows per transition.

    Args:
        capacity: Slots of transitions.
        shape: Shape of one observation.
        dtype: Its dtype.
        max_rows: Most rows that may be used, at least 2; None for two per transition, which always suffices. When they
            run out, transitions are dropped before the capacity is reached.
    """

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: Any, max_rows: int | None = None) -> None:
        self.capacity = capacity
        self.max_rows = 2 * capacity if max_rows is None else max(2, min(max_rows, 2 * capacity))
        self._rows: Array = np.empty((self.max_rows, *shape), dtype)
        self._links = np.zeros((2, capacity), np.int64)
        self._owns_next = np.zeros(capacity, bool)
        self._free = np.empty(self.max_rows, np.int64)
        self._num_free = 0
        self._extent = 0
        self._tails: dict[int, Tail] = {}
        by_size = _CHUNK_BYTES // max(1, self.row_bytes)
        self._chunk = max(1, min(self.max_rows // 2, capacity, _CHUNK_ROWS, max(32, by_size)))

    @property
    def row_bytes(self) -> int:
        """Size of one observation in bytes."""
        return self._rows.itemsize * int(np.prod(self._rows.shape[1:]))

    @property
    def rows_touched(self) -> int:
        """Rows that were ever written, which is what is committed of the memory."""
        return self._extent

    @property
    def rows_used(self) -> int:
        """Rows that transitions use now."""
        return self._extent - self._num_free

    def append(self, number: int, oldest: int, obs: Array, new_obs: Array, keys: StepKeys | None) -> int:
        """Stores the observations of B new transitions, in place of the oldest.

        Args:
            number: Number of the first new transition; those before it have been added.
            oldest: Number of the oldest transition that is alive.
            obs: `[B, ...]`, B not above the capacity.
            new_obs: `[B, ...]`.
            keys: Which steps they are, or None to store both observations of each.

        Returns:
            The number of the oldest transition that is alive afterwards.
        """
        if len(obs) <= self._chunk:
            return self._append_chunk(number, oldest, obs, new_obs, keys)
        for start in range(0, len(obs), self._chunk):
            rows = slice(start, start + self._chunk)
            part = None if keys is None else keys.rows(rows)
            oldest = self._append_chunk(number + start, oldest, obs[rows], new_obs[rows], part)
        return oldest

    def gather(self, slots: Indexes) -> tuple[Array, Array]:
        """Returns `obs` and `new_obs` of the transitions in `slots`: halves of one fresh array. Each `[B, ...]`."""
        pair = self._rows.take(self._links.take(slots, 1, None, "clip"), 0, None, "clip")
        return pair[0], pair[1]

    def _append_chunk(self, number: int, oldest: int, obs: Array, new_obs: Array, keys: StepKeys | None) -> int:
        count = len(obs)
        if not count:
            return oldest
        layout = _lay_out(obs, new_obs, keys)
        kept = {} if keys is None else self._adopt(oldest, obs, keys, layout)
        num_rows = count + len(layout.tails) - len(kept)
        oldest = self._make_room(number, oldest, count, num_rows)
        rows = self._take_rows(num_rows)
        if kept:
            rows = _insert_kept(rows, kept)
        self._rows[rows[:count]] = obs
        self._rows[rows[count:]] = new_obs[layout.tails]
        slots = self._slots(number, number + count)
        self._links[0, slots] = rows[:count]
        self._links[1, slots] = rows.take(layout.next_place)
        self._owns_next[slots] = False
        self._owns_next[(layout.tails + number) % self.capacity] = True
        if keys is not None:
            self._remember_tails(number, rows, layout, keys)
        return oldest

    def _slots(self, first: int, end: int) -> Any:
        """Returns the slots of transitions `first` to `end - 1`: a slice where they do not wrap around."""
        start = first % self.capacity
        if start + end - first <= self.capacity:
            return slice(start, start + end - first)
        return np.arange(first, end) % self.capacity

    # ---- what is shared with earlier batches ----------------------------------------------------------------------

    def _adopt(self, oldest: int, obs: Array, keys: StepKeys, layout: _Layout) -> dict[int, int]:
        """Takes over the stored ends of the trajectories that go on in this batch, as `{place in the batch: row}`."""
        kept: dict[int, int] = {}
        if not self._tails:
            return kept
        for place in (0, *(layout.ends[:-1] + 1).tolist()):
            trajectory = int(keys.trajectory[place])
            tail = self._tails.get(trajectory)
            if tail is None or tail.owner < oldest or tail.t != keys.t[place]:
                continue
            if (self._rows[tail.row] == obs[place]).all():
                del self._tails[trajectory]
                self._owns_next[tail.owner % self.capacity] = False
                kept[place] = tail.row
        return kept

    def _remember_tails(self, number: int, rows: Indexes, layout: _Layout, keys: StepKeys) -> None:
        """Notes where the trajectories stopped that may go on in a later batch; forgets those that ended."""
        count = len(keys.t)
        for place in layout.ends.tolist():
            trajectory = int(keys.trajectory[place])
            self._tails.pop(trajectory, None)  # a new entry goes to the end: entries are in the order of their owners
            group = int(layout.next_place[place]) - count
            if group >= 0 and not (keys.ended is not None and keys.ended[place]):
                next_t = int(keys.t[place]) + (1 if keys.n_steps is None else int(keys.n_steps[place]))
                self._tails[trajectory] = Tail(next_t, int(rows[count + group]), number + int(layout.tails[group]))

    # ---- rows -----------------------------------------------------------------------------------------------------

    def _make_room(self, number: int, oldest: int, count: int, num_rows: int) -> int:
        """Drops the transitions that are overwritten, and more where rows are short; returns the new oldest."""
        keep_from = max(oldest, number + count - self.capacity)
        self._free_rows_of(oldest, keep_from)
        short = num_rows - self._num_free - (self.max_rows - self._extent)
        while short > 0 and keep_from < number:
            until = min(number, keep_from + short)  # each frees at least its own `obs`
            self._free_rows_of(keep_from, until)
            keep_from = until
            short = num_rows - self._num_free - (self.max_rows - self._extent)
        self._forget_tails(keep_from)
        return keep_from

    def _forget_tails(self, oldest: int) -> None:
        """Forgets the remembered ends whose owners are gone; those of the oldest owners come first."""
        while self._tails:
            trajectory, tail = next(iter(self._tails.items()))
            if tail.owner >= oldest:
                return
            del self._tails[trajectory]

    def _free_rows_of(self, first: int, end: int) -> None:
        """Frees the rows whose last user is one of the transitions `first` to `end - 1`."""
        if end <= first:
            return
        slots = self._slots(first, end)
        for rows in (self._links[0, slots], self._links[1, slots][self._owns_next[slots]]):
            self._free[self._num_free : self._num_free + len(rows)] = rows
            self._num_free += len(rows)

    def _take_rows(self, count: int) -> Indexes:
        """Returns `count` rows to write to: freed ones first."""
        reused = min(count, self._num_free)
        self._num_free -= reused
        rows = self._free[self._num_free : self._num_free + reused].copy()
        if reused == count:
            return rows
        fresh = np.arange(self._extent, self._extent + count - reused)
        self._extent += count - reused
        return np.concatenate([rows, fresh])


def _lay_out(obs: Array, new_obs: Array, keys: StepKeys | None) -> _Layout:
    """Finds the observations that a batch has several times: contents decide, `n_steps` say where to look."""
    count = len(obs)
    if keys is None:
        every = np.arange(count)
        return _Layout(every + count, every, every)
    if keys.n_steps is not None:
        return _lay_out_n_step(obs, new_obs, keys, keys.n_steps)
    next_place = np.arange(1, count + 1)
    alone = (~_same(new_obs[:-1], obs[1:])).nonzero()[0]
    if not len(alone):
        last = next_place[-1:] - 1
        return _Layout(next_place, last, last)
    alone = np.append(alone, count - 1)
    next_place[alone] = np.arange(count, count + len(alone))
    return _Layout(next_place, alone, alone)


def _lay_out_n_step(obs: Array, new_obs: Array, keys: StepKeys, n_steps: Array) -> _Layout:
    """Does the same where `new_obs` can be several steps on."""
    trajectory, t = keys.trajectory, keys.t
    count = len(t)
    places = np.arange(count)
    next_place = np.minimum(places + n_steps, count - 1)
    shared = _same(new_obs, obs.take(next_place, axis=0, mode="clip")) & (next_place > places)
    alone = (~shared).nonzero()[0]
    # Transitions in a row that lead to one and the same observation, as those at the end of a fragment do. Those of two
    # trajectories get a row each, however equal: each may go on in a later batch, and adopt its row then.
    left, right = alone[:-1], alone[1:]
    same = _same(new_obs[left], new_obs[right]) & (trajectory[left] == trajectory[right])
    last_of_group = np.append(~same, True)
    next_place[alone] = count + last_of_group.cumsum() - last_of_group
    breaks = (trajectory[1:] != trajectory[:-1]) | (t[1:] != t[:-1] + 1)
    return _Layout(next_place, alone[last_of_group], np.append(breaks.nonzero()[0], count - 1))


def _same(left: Array, right: Array) -> NDArray[np.bool_]:
    """Returns which rows of two arrays `[B, ...]` are equal. bool `[B]`."""
    same: NDArray[np.bool_] = left == right
    if same.ndim > 1:
        same = np.logical_and.reduce(same, axis=tuple(range(1, same.ndim)))
    return same


def _insert_kept(rows: Indexes, kept: dict[int, int]) -> Indexes:
    """Returns `rows` with the rows that are stored already put in at their places, which ascend."""
    merged = np.empty(len(rows) + len(kept), np.int64)
    start = 0
    for before, (place, row) in enumerate(kept.items()):
        merged[start:place] = rows[start - before : place - before]
        merged[place] = row
        start = place + 1
    merged[start:] = rows[start - len(kept) :]
    return merged
