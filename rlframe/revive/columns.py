"""Columns of a node, in the units that the user has, and as networks see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlframe.config.faults import shorten
from rlframe.utils.errors import ConfigError, DataError

__all__ = ["Block", "Column", "Kind", "NodeScaler"]

Kind = Literal["continuous", "discrete", "category"]
KINDS: tuple[Kind, ...] = ("category", "discrete", "continuous")  # their order in the learned space


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a node's array.

    Attributes:
        name: As in the graph file.
        node: Whose array it is a column of.
        kind: `continuous`, `discrete` (equally spaced values) or `category` (values without an order).
        low: Smallest value; None until it is read from the data.
        high: Largest value, likewise.
        num: Number of values of a discrete column.
        values: Those of a category column.
        fit: Whether its error counts where the node is learned.
    """

    name: str
    node: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    num: int | None = None
    values: tuple[float, ...] | None = None
    fit: bool = True

    @property
    def width(self) -> int:
        """Numbers that it takes in the learned space."""
        return 1 if self.values is None else len(self.values)

    def on_grid(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Says of each value whether the column can have it; always where it is continuous or not ranged yet."""
        if self.values is not None:
            return np.isin(values.astype(np.float32), np.asarray(self.values, np.float32))
        if self.kind == "continuous" or self.low is None or self.high is None or self.num is None:
            return np.ones(values.shape, bool)
        step = (self.high - self.low) / max(self.num - 1, 1) or 1.0
        place = (values.astype(np.float64) - self.low) / step
        near = np.abs(place - np.rint(place)) < 1e-3
        return near & (place > -0.5) & (place < self.num - 0.5)


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of the learned space that one distribution is for.

    Attributes:
        kind: Of its columns.
        where: Its place in the learned space.
        num: Values of a category or discrete column; columns of the continuous block.
        columns: Places of its columns in the node's array.
    """

    kind: Kind
    where: slice
    num: int
    columns: tuple[int, ...]


class NodeScaler:
    """Brings a node's array into the learned space and back.

    In the learned space categories come first, as one-hot, then discrete columns, then continuous ones; numbers are
    mapped linearly from [low, high] to [-1, 1]. A column with one value is 0 there.

    Args:
        columns: In the order of the node's array, all with ranges.

    Attributes:
        columns: The same.
        dim: Columns of the array.
        width: Numbers in the learned space.
        blocks: One for each category and each discrete column, and one for all continuous columns, in their order.
        order: Columns of the array in the order of the learned space.
        fit: Which numbers of the learned space count in errors, bool `[width]`.
        middle: Middle of each column's range, float32 `[dim]`; 0 for categories.
        half: Half of each column's range, never 0, float32 `[dim]`; 1 for categories.
        low: Smallest value of each column, float32 `[dim]`.
        high: Largest value, likewise.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        for column in self.columns:
            if column.values is None and (column.low is None or column.high is None):
                raise ConfigError(
                    f"column {column.name!r} of node {column.node!r} has no range; give min and max or fit_ranges()"
                )
        self.dim = len(self.columns)
        self.order = tuple(place for kind in KINDS for place, column in enumerate(self.columns) if column.kind == kind)
        self.blocks = self._blocks()
        self.width = sum(column.width for column in self.columns)
        self.fit = np.array([self.columns[i].fit for i in self.order for _ in range(self.columns[i].width)], bool)
        self.low = np.array([_limits(column)[0] for column in self.columns], np.float32)
        self.high = np.array([_limits(column)[1] for column in self.columns], np.float32)
        numeric = np.array([column.values is None for column in self.columns])
        half = (self.high - self.low) / 2
        self.middle = np.where(numeric, self.low + half, 0).astype(np.float32)
        self.half = np.where(numeric & (half > 0), half, 1).astype(np.float32)
        self._numbers = [i for i in self.order if self.columns[i].values is None]
        self._one_hot = self.width - len(self._numbers)  # where numbers begin
        self._in_order = self._numbers == list(range(self.dim))
        self._grids = {
            place: _grid(self.columns[place]) for place in self.order if self.columns[place].kind != "continuous"
        }

    def _blocks(self) -> tuple[Block, ...]:
        blocks: list[Block] = []
        begin = 0
        continuous = tuple(i for i in self.order if self.columns[i].kind == "continuous")
        for place in self.order[: self.dim - len(continuous)]:
            column = self.columns[place]
            num = column.num if column.values is None else len(column.values)
            blocks.append(Block(column.kind, slice(begin, begin + column.width), cast("int", num), (place,)))
            begin += column.width
        if continuous:
            blocks.append(Block("continuous", slice(begin, begin + len(continuous)), len(continuous), continuous))
        return tuple(blocks)

    def scale(self, values: ArrayLike) -> NDArray[np.float32]:
        """Returns `[..., dim]` in the user's units as float32 `[..., width]` in the learned space.

        A category is the nearest of its values.
        """
        node = self.columns[0].node
        values = as_numbers(node, values)
        if values.shape[-1:] != (self.dim,):
            raise DataError(f"node {node!r} has {self.dim} columns; got an array of shape {values.shape}")
        scaled = (values - self.middle) / self.half
        if self._in_order:
            return cast("NDArray[np.float32]", scaled)
        learned = np.zeros((*values.shape[:-1], self.width), np.float32)
        learned[..., self._one_hot :] = scaled[..., self._numbers]
        for block in self.blocks:
            if block.kind == "category":
                place = block.columns[0]
                nearest = np.abs(values[..., place, None] - self._grids[place]).argmin(-1)
                learned[..., block.where] = nearest[..., None] == np.arange(block.num)
        return learned

    def unscale(self, scaled: ArrayLike, clip: bool = True) -> NDArray[np.float32]:
        """Returns `[..., width]` of the learned space as float32 `[..., dim]` in the user's units.

        Discrete values are rounded to their grid, a category is the one with the largest number.

        Args:
            scaled: In the learned space.
            clip: Whether continuous values are kept within their range.
        """
        scaled = np.asarray(scaled, np.float32)
        if not self._grids:
            values = scaled * self.half + self.middle
        else:
            values = self._unscaled_parts(scaled)
        return np.clip(values, self.low, self.high, out=values) if clip else values

    def within(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns `[..., dim]` in the user's units within the columns' ranges; discrete ones on their grid."""
        made = np.clip(values, self.low, self.high)
        for place, grid in self._grids.items():
            made[..., place] = grid[np.abs(values[..., place, None] - grid).argmin(-1)]
        return made

    def _unscaled_parts(self, scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        numbers = scaled[..., self._one_hot :]
        values = np.empty((*scaled.shape[:-1], self.dim), np.float32)
        values[..., self._numbers] = numbers * self.half[self._numbers] + self.middle[self._numbers]
        for block in self.blocks:
            (place, *_) = block.columns
            if block.kind == "discrete":
                values[..., place] = self._grids[place].take(_nearest(scaled[..., block.where.start], block.num))
            elif block.kind == "category":
                values[..., place] = self._grids[place].take(scaled[..., block.where].argmax(-1))
        return values

    def to_dict(self) -> dict[str, Any]:
        """Returns what `from_dict` makes the same scaler of; JSON can hold it."""
        return {"columns": [dataclasses.asdict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> NodeScaler:
        """Makes a scaler of what `to_dict` returned."""
        columns = []
        for column in saved["columns"]:
            values = column.get("values")
            columns.append(Column(**{**column, "values": None if values is None else tuple(values)}))
        return cls(columns)


def as_numbers(node: str, values: ArrayLike) -> NDArray[np.float32]:
    """Returns a node's values as float32; a number that it cannot hold is infinite.

    Raises:
        DataError: They are no numbers, or rows of different lengths.
    """
    try:
        with np.errstate(over="ignore"):
            return np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise DataError(f"node {node!r}: got {shorten(values)}; wanted numbers [..., columns]") from None


def _limits(column: Column) -> tuple[float, float]:
    if column.values is not None:
        return min(column.values), max(column.values)
    return cast("float", column.low), cast("float", column.high)


def _grid(column: Column) -> NDArray[np.float32]:
    """Returns the values of a category or discrete column."""
    if column.values is not None:
        return np.asarray(column.values, np.float32)
    low, high = _limits(column)
    return np.linspace(low, high, cast("int", column.num), dtype=np.float32)


def _nearest(scaled: NDArray[np.float32], num: int) -> NDArray[np.intp]:
    """Returns places on a grid of `num` values from −1 to 1."""
    places: NDArray[np.intp] = np.rint((np.clip(scaled, -1, 1) + 1) * ((num - 1) / 2)).astype(np.intp)
    return places
