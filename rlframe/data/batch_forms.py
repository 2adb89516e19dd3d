"""Other forms of a batch of rows: one row at a time, pieces, another order, padded, compressed, on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from rlframe.data import columns as names
from rlframe.data.column_dict import _get, is_per_sequence
from rlframe.data.nested import Column, leaves, map_nested
from rlframe.data.rows import BatchRows, Columns, as_seq_lens, slice_column


class BatchForms(BatchRows):
    """What a `SampleBatch` can be made into, in place or as a new batch."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields one dict per valid row: of columns with one entry per sequence only `seq_lens`, which is [1]."""
        columns = {key: value for key, value in self.items() if not is_per_sequence(key)}
        alone = {names.SEQ_LENS: np.ones(1, np.int32)} if names.SEQ_LENS in self else {}
        positions: Iterable[int] = range(self.count)
        if self.zero_padded and names.SEQ_LENS in self:
            seq_lens = as_seq_lens(_get(self, names.SEQ_LENS))
            positions = padded_positions(seq_lens, self.max_seq_len or int(seq_lens.max(initial=0))).tolist()
        for row in positions:
            yield {key: slice_column(value, row) for key, value in columns.items()} | alone

    def shuffle(self, rng: np.random.Generator | None = None) -> Self:
        """Reorders the rows at random, in place, and returns the batch.

        Args:
            rng: Source of the order; NumPy's global one, which a run's seed sets, where missing.

        Raises:
            ValueError: If the batch is cut into sequences: its rows belong together.
        """
        self._refuse_sequences("shuffle")
        # Programs written for RLlib seed NumPy's global generator, so that is the default here.
        permutation: Any = np.random.permutation if rng is None else rng.permutation
        order = permutation(self.count)
        for key, value in list(self.items()):
            self[key] = slice_column(value, order)
        return self

    def split_by_episode(self) -> list[Self]:
        """Returns one batch per run of rows with the same `eps_id`, in order.

        Without that column a new episode begins behind each row that is done; the column is added.
        """
        if names.EPS_ID not in self:
            dones = np.asarray(self.get(names.DONES, np.zeros(self.count, bool))).astype(bool)
            self[names.EPS_ID] = np.cumsum(dones) - dones
        eps_ids = np.asarray(self[names.EPS_ID])
        if len(eps_ids) == 0:
            return []
        cuts = [0, *(np.flatnonzero(eps_ids[1:] != eps_ids[:-1]) + 1).tolist(), len(eps_ids)]
        return [self[start:stop] for start, stop in pairwise(cuts)]

    def timeslices(self, size: int | None = None, num_slices: int | None = None, k: int | None = None) -> list[Self]:
        """Returns the rows in pieces; with `seq_lens` each piece ends at a sequence's end.

        Args:
            size: Rows per piece; the last may have fewer.
            num_slices: Number of pieces, whose sizes differ by at most one row; the larger ones are the last.
            k: Old name of `size`.

        Raises:
            ValueError: Unless exactly one of them is given, and is at least 1.
        """
        size = k if size is None else size
        given = [value for value in (size, num_slices) if value is not None]
        if len(given) != 1 or given[0] < 1:
            raise ValueError(f"Got size={size}, num_slices={num_slices}; wanted one of them, at least 1.")
        rows = self.count
        if size is not None:
            cuts = [*range(0, rows, size), rows]
        else:
            least, larger = divmod(rows, given[0])
            cuts = [piece * least + max(0, piece - given[0] + larger) for piece in range(given[0] + 1)]
        pieces = (self[start:stop] for start, stop in pairwise(cuts))
        return [piece for piece in pieces if piece.count > 0]

    def right_zero_pad(self, max_seq_len: int, exclude_states: bool = True) -> Self:
        """Pads each sequence at its right to `max_seq_len` rows, in place, and returns the batch.

        Args:
            max_seq_len: Rows per padded sequence.
            exclude_states: Leave `state_in_*` (one entry per sequence) as they are.

        Raises:
            ValueError: If the batch has no `seq_lens`, or a sequence is longer.
        """
        if dict.get(self, names.SEQ_LENS) is None:
            raise ValueError("Got right_zero_pad() on a batch without seq_lens; wanted one that is cut into sequences.")
        if self.zero_padded:
            if self.max_seq_len == max_seq_len:
                return self
            raise ValueError(f"The batch is padded to {self.max_seq_len} rows already; wanted {max_seq_len}.")
        self.update(_pad_columns(self, max_seq_len, exclude_states=exclude_states))
        self.zero_padded = True
        self.max_seq_len = max_seq_len
        return self

    def zero_pad(self, max_seq_len: int, exclude_states: bool = True) -> Self:
        """Does what `right_zero_pad` does (RLlib's old name)."""
        return self.right_zero_pad(max_seq_len, exclude_states)

    def to_device(self, device: Any, framework: str = "torch") -> Self:
        """Turns the columns into tensors on `device`, in place, and returns the batch.

        Columns of objects or strings, and `infos`, stay as they are; float64 becomes float32.

        Raises:
            ValueError: If the framework is not "torch".
        """
        if framework != "torch":
            raise ValueError(f"Got framework={framework!r}; wanted 'torch': other frameworks place tensors themselves.")
        from rlframe.utils.torch_utils import convert_to_torch_tensor

        self.update(_convert_columns(self, lambda leaf: convert_to_torch_tensor(leaf, device)))
        return self

    def compress(self, bulk: bool = False, columns: Iterable[str] = (names.OBS, names.NEXT_OBS)) -> Self:
        """Compresses columns in place, each as one piece (`bulk`) or row by row, so that it can still be sliced.

        Returns:
            The batch.
        """
        from rlframe.data.compression import pack_leaf

        for key in columns:
            if key in self:
                self[key] = map_nested(lambda leaf: pack_leaf(leaf, bulk=bulk), _get(self, key))
        return self

    def decompress_if_needed(self, columns: Iterable[str] = (names.OBS, names.NEXT_OBS)) -> Self:
        """Undoes `compress` in place and returns the batch."""
        from rlframe.data.compression import unpack_leaf

        for key in columns:
            if key in self:
                self[key] = map_nested(unpack_leaf, _get(self, key))
        return self

    def size_bytes(self) -> int:
        """Bytes of all arrays; objects count as their references."""
        return sum(_nbytes(value) for value in self.values())


def padded_positions(seq_lens: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Returns where each valid row stands once every sequence is padded at its right to `length` rows.

    Args:
        seq_lens: Valid rows per sequence, int64 `[sequences]`.
        length: Rows per padded sequence, at least `max(seq_lens)`.

    Returns:
        int64 `[sum(seq_lens)]`, growing, each in `[0, sequences * length)`.

    Raises:
        ValueError: If a sequence is longer than `length`.
    """
    longest = int(seq_lens.max(initial=0))
    if longest > length:
        raise ValueError(f"Got a sequence of {longest} rows; wanted at most max_seq_len={length}.")
    starts = np.cumsum(seq_lens) - seq_lens
    shift = np.arange(len(seq_lens)) * length - starts
    positions: NDArray[np.int64] = np.arange(int(seq_lens.sum())) + np.repeat(shift, seq_lens)
    return positions


def filler(leaf: Any) -> Any:
    """Returns what padding rows of an array like `leaf` hold: 0, or for objects {} (dicts) or None."""
    if not (isinstance(leaf, np.ndarray) and leaf.dtype.hasobject):
        return 0
    return {} if len(leaf) and isinstance(leaf[0], dict) else None


def scatter_rows(leaf: Any, positions: NDArray[np.int64], rows: int) -> NDArray[Any]:
    """Returns `[rows, ...]` with the rows of `leaf` at `positions` and padding elsewhere."""
    array = np.asarray(leaf)
    if array.dtype == object:
        padded = np.empty((rows, *array.shape[1:]), dtype=object)
        padded.fill(filler(array))
    else:
        padded = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    padded[positions] = array
    return padded


def _pad_columns(columns: Mapping[str, Column], max_seq_len: int, *, exclude_states: bool = True) -> Columns:
    """Returns the columns with every sequence padded at its right to `max_seq_len` rows.

    Args:
        columns: Columns with unpadded rows and `seq_lens`.
        max_seq_len: Rows of a padded sequence.
        exclude_states: Leave `state_in_*` alone (one entry per sequence); False pads them like rows.

    Returns:
        Row columns `[sequences * max_seq_len, ...]`; all of them are padded, `infos` too.
    """
    seq_lens = as_seq_lens(columns[names.SEQ_LENS])
    positions = padded_positions(seq_lens, max_seq_len)
    rows = len(seq_lens) * max_seq_len

    def pad(leaf: Any) -> Any:
        return scatter_rows(leaf, positions, rows)

    def stays(key: str) -> bool:
        return key == names.SEQ_LENS or (exclude_states and key.startswith(names.STATE_IN_PREFIX))

    return {key: value if stays(key) else map_nested(pad, value) for key, value in columns.items()}


def _nbytes(value: Column) -> int:
    """Returns the bytes that a column's arrays hold; objects count as their references."""
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves(value))


def _convert_columns(columns: Mapping[str, Column], fn: Callable[[Any], Any]) -> Columns:
    """Returns the columns with `fn` applied to each array; `infos` and arrays of objects or strings stay."""

    def convert(leaf: Any) -> Any:
        dtype = getattr(leaf, "dtype", None)
        return leaf if isinstance(dtype, np.dtype) and dtype.kind in "OUS" else fn(leaf)

    return {key: value if key == names.INFOS else map_nested(convert, value) for key, value in columns.items()}
