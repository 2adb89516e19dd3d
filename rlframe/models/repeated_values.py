"""Observations of variable-length lists, as a model sees them."""

from __future__ import annotations

from typing import Any


class RepeatedValues:
    """A batch of lists, padded with zeros to `max_len`, and their true lengths.

    Args:
        values: An array or nested structure of arrays, leaves `[B, max_len, ...]`.
        lengths: Length of every list. `[B]`, integers that may be stored as floats.
        max_len: Longest list.
    """

    def __init__(self, values: Any, lengths: Any, max_len: int) -> None:
        self.values = values
        self.lengths = lengths
        self.max_len = max_len

    def unbatch_repeat_dim(self) -> list[Any]:
        """Returns `max_len` structures, the i-th with item i (or padding) of every list, leaves `[B, ...]`."""
        return [_select(self.values, lambda leaf, i=i: leaf[:, i]) for i in range(self.max_len)]

    def unbatch_all(self) -> list[list[Any]]:
        """Returns per row the list of its items, without padding, lists within them too; needs concrete values."""
        return [_items(RepeatedValues(self._row(b), length, self.max_len)) for b, length in enumerate(self.lengths)]

    def _row(self, b: int) -> Any:
        return _select(self.values, lambda leaf: leaf[b])

    def __repr__(self) -> str:
        return f"RepeatedValues(values={self.values!r}, lengths={self.lengths!r}, max_len={self.max_len})"


def _items(row: RepeatedValues) -> list[Any]:
    """Returns the items of one list, leaves `[max_len, ...]`."""
    return [_unbatched(_select(row.values, lambda leaf, i=i: leaf[i])) for i in range(int(row.lengths))]


def _unbatched(values: Any) -> Any:
    """Returns one item with its own lists as such."""
    if isinstance(values, dict):
        return {key: _unbatched(child) for key, child in values.items()}
    if isinstance(values, tuple):
        return tuple(_unbatched(child) for child in values)
    return _items(values) if isinstance(values, RepeatedValues) else values


def _select(values: Any, pick: Any) -> Any:
    """Applies `pick` to all leaves; a nested RepeatedValues keeps its structure."""
    if isinstance(values, dict):
        return {key: _select(child, pick) for key, child in values.items()}
    if isinstance(values, tuple):
        return tuple(_select(child, pick) for child in values)
    if isinstance(values, RepeatedValues):
        return RepeatedValues(_select(values.values, pick), pick(values.lengths), values.max_len)
    return pick(values)
