"""RLlib's segment trees: an operation over any run of a list in O(log n), one value at a time.

The replay buffers here have a tree of their own, `replay.prioritized_buffer.SumTree`, which works on arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

_NEUTRAL: dict[Any, float] = {operator.add: 0.0, operator.mul: 1.0, min: float("inf"), max: float("-inf")}


class SegmentTree:
    """A list of `capacity` values, and what `operation` makes of any run of them.

    Reading and writing values is list access, `tree[i]`. Both a value and a run cost O(log capacity).

    Attributes:
        value: The tree as a heap: node i stands above nodes 2i and 2i + 1, and the values are its second half.

    Args:
        capacity: Number of values, a power of two.
        operation: An associative function of two values.
        neutral_element: What `operation` leaves the other value as it is with, and what all values are at first. None
            for that of `operator.add`, `operator.mul`, `min` or `max`.

    Raises:
        ValueError: If the capacity is no power of two, or the neutral element has to be said and is not.
    """

    def __init__(
        self, capacity: int, operation: Callable[[Any, Any], Any], neutral_element: float | None = None
    ) -> None:
        if capacity < 1 or capacity & (capacity - 1):
            raise ValueError(f"Got capacity={capacity}; wanted a power of two of at least 1")
        if neutral_element is None:
            if operation not in _NEUTRAL:
                raise ValueError(f"Got operation={operation} without its neutral_element; say which it is")
            neutral_element = _NEUTRAL[operation]
        self.capacity = capacity
        self.operation = operation
        self.neutral_element = neutral_element
        self.value: list[Any] = [neutral_element] * (2 * capacity)

    def reduce(self, start: int = 0, end: int | None = None) -> Any:
        """Returns the operation over values `[start, end)`, in order; the neutral element of none.

        Args:
            start: The first value.
            end: The value after the last one; negative ones count from the end, None is the end.
        """
        stop = self.capacity if end is None else end + self.capacity * (end < 0)
        left, right = self.neutral_element, self.neutral_element
        low, high = start + self.capacity, stop + self.capacity
        while low < high:
            if low & 1:
                left = self.operation(left, self.value[low])
                low += 1
            if high & 1:
                high -= 1
                right = self.operation(self.value[high], right)
            low, high = low >> 1, high >> 1
        return self.operation(left, right)

    def __setitem__(self, idx: int, val: float) -> None:
        node = self._node(idx)
        self.value[node] = val
        while node > 1:
            node >>= 1
            self.value[node] = self.operation(self.value[2 * node], self.value[2 * node + 1])

    def __getitem__(self, idx: int) -> Any:
        return self.value[self._node(idx)]

    def _node(self, idx: int) -> int:
        if not 0 <= idx < self.capacity:
            raise IndexError(f"Got value {idx}; wanted one of 0 to {self.capacity - 1}")
        return int(idx) + self.capacity

    def get_state(self) -> dict[str, Any]:
        """Returns the values."""
        return {"values": self.value[self.capacity :]}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the values of a tree with the same capacity.

        Raises:
            ValueError: If they are more or fewer.
        """
        values = list(state["values"])
        if len(values) != self.capacity:
            raise ValueError(f"Got {len(values)} values; wanted the {self.capacity} of a tree of this capacity")
        self.value[self.capacity :] = values
        for node in range(self.capacity - 1, 0, -1):
            self.value[node] = self.operation(self.value[2 * node], self.value[2 * node + 1])


class SumSegmentTree(SegmentTree):
    """A segment tree of sums, all values 0 at first.

    Args:
        capacity: Number of values, a power of two.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, operator.add)

    def sum(self, start: int = 0, end: int | None = None) -> Any:
        """Returns the sum of values `[start, end)`; see `reduce`."""
        return self.reduce(start, end)

    def find_prefixsum_idx(self, prefixsum: float) -> int:
        """Returns the largest index before which the values sum up to at most `prefixsum`.

        With values that are probabilities, and a uniform number for `prefixsum`, that draws an index by probability.

        Raises:
            ValueError: If it is negative or above the sum of all values (but for rounding, 1e-5).
        """
        if not 0 <= prefixsum <= self.value[1] + 1e-5:
            raise ValueError(f"Got prefixsum={prefixsum}; wanted one between 0 and the sum of all, {self.value[1]}")
        node = 1
        while node < self.capacity:
            node *= 2
            if self.value[node] <= prefixsum:
                prefixsum -= self.value[node]
                node += 1
        return node - self.capacity


class MinSegmentTree(SegmentTree):
    """A segment tree of minima, all values infinite at first.

    Args:
        capacity: Number of values, a power of two.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, min)

    def min(self, start: int = 0, end: int | None = None) -> Any:
        """Returns the least of values `[start, end)`; see `reduce`."""
        return self.reduce(start, end)
