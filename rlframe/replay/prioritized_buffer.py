"""The buffer that draws transitions by priority, from a tree of sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlframe.data.columns import BATCH_INDEXES, INFOS, SEQ_LENS, WEIGHTS
from rlframe.data.sample_batch import SampleBatch
from rlframe.replay.buffer_state import PrioritiesState
from rlframe.replay.sequence_store import SequenceStore
from rlframe.replay.transition_buffers import Indexes, ReplayBuffer

_EXTREME_POWER = 1e200
"""Largest priority ** alpha that is stored; the smallest is its inverse. Sums of a million of them are finite."""


class PrioritizedReplayBuffer(PrioritiesState, ReplayBuffer):
    """The latest `capacity` transitions, drawn in proportion to priority ** alpha.

    A transition that is added without a weight gets the largest priority given so far (1 at first), so that it is soon
    drawn. Draws are stratified: one from each of B equal parts of the total.

    Weights correct the bias that drawing by priority brings. They are divided by the largest one of the *batch*, as in
    DeepMind's agents; Schaul et al. divide by the largest of the whole buffer, where one rarely drawn transition makes
    every other weight small.

    Args:
        capacity: Transitions kept; the oldest go first.
        alpha: 0 draws uniformly, 1 in proportion to priorities.
        seed: Seed of the draws; None for a fresh one.
        size: Old name of `capacity`.
        rng: Generator of the draws, in place of `seed`.
        memory_limit_bytes: What a full buffer may take; None for the memory of the machine (or container).
        store: A store of sequences, of which the capacity counts; None stores single transitions.

    Source: Schaul et al. 2016, "Prioritized Experience Replay", sections 3.3 and 3.4.
    """

    _not_stored = frozenset({INFOS, BATCH_INDEXES, WEIGHTS})

    def __init__(  # noqa: PLR0913 - those of uniform buffers, and alpha
        self,
        capacity: int = 10_000,
        alpha: float = 1.0,
        seed: int | None = None,
        *,
        size: int | None = None,
        rng: np.random.Generator | None = None,
        memory_limit_bytes: int | None = None,
        store: SequenceStore | None = None,
    ) -> None:
        super().__init__(capacity, seed, size=size, rng=rng, memory_limit_bytes=memory_limit_bytes, store=store)
        if not 0 <= alpha < np.inf:
            raise ValueError(f"alpha must be 0 or more, got {alpha}")
        self._alpha = float(alpha)
        self._largest = _EXTREME_POWER ** (1 / max(1.0, self._alpha))
        self._tree = SumTree(self.capacity)
        self._max_priority = 1.0

    def add(self, item: Mapping[str, Any], weight: ArrayLike | None = None) -> None:
        """Stores every row of a batch, in place of the oldest transitions.

        Args:
            item: Columns `[B, ...]`, a SampleBatch or a dict. A column `weights` is not stored, nor read.
            weight: Initial priorities, above 0: float `[B]` or one for all rows. None for the largest so far.

        Raises:
            ValueError: If columns differ from those of the first batch, the full buffer will not fit into memory, or a
                weight is not above 0.
        """
        priorities = None if weight is None else _checked_priorities(weight)
        if priorities is not None and priorities.ndim and priorities.shape != (_num_rows(item),):
            raise ValueError(f"Got weights of shape {priorities.shape} for {_num_rows(item)} rows; wanted one per row")
        oldest = self._store.oldest
        first, end = self._store.add(item)
        numbers = np.arange(first, end)
        if priorities is None:
            self._set(numbers, self._max_priority**self._alpha)
        else:
            self._prioritize(numbers, priorities[-len(numbers) :] if priorities.ndim else priorities)
        not_overwritten = max(oldest, end - self.capacity)
        if (
            self._store.oldest > not_overwritten
        ):  # dropped for want of memory; with many rows, even some of the new ones
            self._set(np.arange(not_overwritten, self._store.oldest), 0.0)

    def sample(self, num_items: int, beta: float = 1.0) -> SampleBatch:
        """Returns `num_items` transitions drawn by priority, with replacement, and two more columns.

        `weights` are (p_min / p) ** beta, with p_min the smallest drawn: float32 `[B]` in (0, 1]. `batch_indexes` say
        for `update_priorities` which transitions they are: int64 `[B]`. Rows of a sequence have that of the sequence.

        Args:
            num_items: Transitions to draw, B.
            beta: 0 does not correct for the priorities, 1 does fully.

        Raises:
            ValueError: If the buffer is empty, `num_items` below 1 or `beta` below 0.
        """
        self._check_sample(num_items)
        if not beta >= 0:
            raise ValueError(f"beta must be 0 or more, got {beta}")
        slots = self._tree.sample(num_items, self._rng)
        drawn = self._tree.get(slots)
        columns = self._store.gather(slots)
        weights, numbers = ((drawn.min() / drawn) ** beta).astype(np.float32), self._store.numbers_of(slots)
        lens = columns.get(SEQ_LENS)
        columns[WEIGHTS] = weights if lens is None else np.repeat(weights, lens)
        columns[BATCH_INDEXES] = numbers if lens is None else np.repeat(numbers, lens)
        self._num_sampled += num_items
        return SampleBatch.from_columns(columns)

    def update_priorities(self, idxes: ArrayLike, priorities: ArrayLike) -> None:
        """Gives transitions new priorities; those that have been overwritten since they were drawn are passed over.

        Args:
            idxes: `batch_indexes` of a sampled batch. int `[B]`; where one stands twice, the last priority
                counts.
            priorities: Above 0. float `[B]`.

        Raises:
            ValueError: If a priority is not above 0 or not finite, an index was never given, or lengths differ.
        """
        numbers = np.asarray(idxes, np.int64)
        values = _checked_priorities(priorities)
        if numbers.shape != values.shape or numbers.ndim != 1:
            raise ValueError(f"Got {numbers.shape} indexes and {values.shape} priorities; wanted one [B] of each")
        if not len(numbers):
            return
        store = self._store
        lowest = numbers.min()
        if lowest < 0 or numbers.max() >= store.end:
            raise ValueError(f"Indexes must be those of a sampled batch, in [0, {store.end}); got {numbers.tolist()}")
        if lowest < store.oldest:
            alive = numbers >= store.oldest
            numbers, values = numbers[alive], values[alive]
        self._prioritize(numbers, values)

    def _prioritize(self, numbers: Indexes, priorities: NDArray[np.float64]) -> None:
        if len(numbers):
            # A power that rounds to 0 would never be drawn again, one that overflows would be drawn always.
            priorities = priorities.clip(1 / self._largest, self._largest)
            self._max_priority = max(self._max_priority, float(priorities.max()))
            self._set(numbers, priorities**self._alpha)

    def _set(self, numbers: Indexes, powers: ArrayLike) -> None:
        self._tree.set(self._store.slots_of(numbers), powers)


def _checked_priorities(priorities: ArrayLike) -> NDArray[np.float64]:
    """Returns priorities as float64; raises ValueError unless all are finite and above 0."""
    values = np.asarray(priorities, np.float64)
    if values.size and not (values.min() > 0 and values.max() < np.inf):  # NaN fails the first
        wrong = values.reshape(-1)[~((values > 0) & (values < np.inf)).reshape(-1)]
        raise ValueError(f"Priorities must be finite and above 0; got {wrong[:5].tolist()} among {values.size}")
    return values


def _num_rows(item: Mapping[str, Any]) -> int:
    return item.count if isinstance(item, SampleBatch) else len(next(iter(item.values())))


FAN_OUT = 16
"""Values per block. Measured from 8 to 128 (`benchmarks/README.md`): wider blocks cost more additions than calls."""
MAX_TOP = 4096
"""Most sums of the topmost level, which is searched as one list of running totals instead of block by block."""


class SumTree:
    """Non-negative values with their sums, block by block, level by level.

    A level is an array `[blocks, fan_out]`; the sum of each block is one value of the level above. The levels end where
    at most `max_top` sums are left. Drawing looks those up by their running totals, then goes down one level at a time,
    all draws at once. Changing values adds up again the blocks that were touched: a sum is always the sum of what
    stands below it, bit by bit, however often values change, so nothing drifts and a restored tree draws the same.

    Args:
        capacity: Number of values; all are 0 at first.
        fan_out: Values per block, a power of two.
        max_top: Most sums that the topmost level may have.
    """

    def __init__(self, capacity: int, *, fan_out: int = FAN_OUT, max_top: int = MAX_TOP) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        if fan_out < 2 or fan_out & (fan_out - 1):
            raise ValueError(f"fan_out must be a power of two of at least 2, got {fan_out}")
        self.capacity = capacity
        self._fan_out = fan_out
        self._shift = fan_out.bit_length() - 1
        self._levels: list[NDArray[np.float64]] = []
        blocks = capacity
        while not self._levels or blocks > max_top:
            blocks = -(-blocks // fan_out)
            self._levels.append(np.zeros((blocks, fan_out)))
        self._top = np.zeros(blocks)
        self._flat = [level.reshape(-1) for level in self._levels]
        self._sums = [*self._flat[1:], self._top]
        self._scratch = (np.zeros(0, np.int64), np.zeros((0, fan_out + 1)))

    @property
    def values(self) -> NDArray[np.float64]:
        """All values, as a view that must not be written to. float64 `[capacity]`."""
        return self._flat[0][: self.capacity]

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self._top.cumsum()[-1])

    @property
    def size_bytes(self) -> int:
        """Memory of the tree in bytes."""
        return self._top.nbytes + sum(level.nbytes for level in self._levels)

    def get(self, indexes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the values at `indexes`. float64 `[B]`."""
        return self._flat[0].take(indexes)

    def set(self, indexes: NDArray[np.int64], values: ArrayLike) -> None:
        """Sets the values at `indexes`; of an index that stands there several times, the last value counts.

        Args:
            indexes: int64 `[B]`, each in [0, capacity).
            values: Finite and not negative. float `[B]`, or one number for all.
        """
        self._flat[0][indexes] = values
        for level, flat, sums in zip(self._levels, self._flat, self._sums, strict=True):
            if len(indexes) * self._fan_out >= len(flat):
                np.add.reduce(level, axis=1, out=sums[: len(level)])
                indexes = np.arange(len(level))
            else:
                indexes = indexes >> self._shift
                sums[indexes] = np.add.reduce(level.take(indexes, axis=0, mode="clip"), axis=1)

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws `count` indexes, one from each of `count` equal parts of the total (stratified, with replacement).

        Args:
            count: Draws, at least 1.
            rng: Gives `count` uniform numbers.

        Returns:
            Indexes in ascending order; none of them has the value 0. int64 `[count]`.

        Raises:
            ValueError: If all values are 0.

        Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.3 and appendix B.2.1.
        """
        rows, prefix = self._scratch_for(count)
        running = self._top.cumsum()
        total = running[-1]
        if not total > 0:
            raise ValueError("Cannot draw from a sum tree whose values are all 0")
        mass = (rng.random(count) + rows) * (total / count)
        if mass[-1] >= total:  # rounding; mass ascends, so only its end can reach the total
            np.minimum(mass, np.nextafter(total, 0.0), out=mass)
        node: NDArray[np.int64] = running.searchsorted(mass, side="right")
        mass -= np.where(node > 0, running.take(node - 1, mode="wrap"), 0.0)
        sums_before, sums_upto = prefix.reshape(-1), prefix[:, 1:]
        first_of_row = rows * (self._fan_out + 1)
        for level in reversed(self._levels):
            level.take(node, axis=0, mode="clip").cumsum(axis=1, out=sums_upto)
            child = np.count_nonzero(sums_upto <= mass[:, None], axis=1)
            if child.max() == self._fan_out:
                child = np.minimum(child, self._last_positive(sums_upto))
            mass -= sums_before.take(first_of_row + child, mode="clip")
            node = (node << self._shift) + child
        return node

    @staticmethod
    def _last_positive(sums_upto: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the last child with a value in each row of running totals; it is meant where rounding led past it."""
        return np.asarray(np.count_nonzero(sums_upto < sums_upto[:, -1:], axis=1))

    def _scratch_for(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Returns 0..count-1, and room for running totals whose first column is 0. Kept, as calls repeat one count."""
        if len(self._scratch[0]) != count:
            self._scratch = (np.arange(count), np.zeros((count, self._fan_out + 1)))
        return self._scratch

    def check_invariants(self) -> None:
        """Raises AssertionError if a value is negative or not finite, or a sum is not that of its block."""
        if not np.isfinite(self._flat[0]).all() or (self._flat[0] < 0).any():
            raise AssertionError("The sum tree holds a value that is negative or not finite")
        if self._flat[0][self.capacity :].any():
            raise AssertionError("The sum tree holds a value beyond its capacity")
        for height, (level, sums) in enumerate(zip(self._levels, self._sums, strict=True)):
            wrong = np.nonzero(np.add.reduce(level, axis=1) != sums[: len(level)])[0]
            if len(wrong):
                raise AssertionError(f"Level {height}: the sum of block {wrong[0]} is not the sum of its values")
