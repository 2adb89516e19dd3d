"""A sum tree in NumPy: draws indexes in proportion to their values, and changes values, without touching the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
