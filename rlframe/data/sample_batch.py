"""SampleBatch: the rows that travel from rollout workers to learners; MultiAgentBatch: one of them per policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlframe.data import columns as names
from rlframe.data.column_dict import ColumnDict
from rlframe.data.columns import is_per_sequence
from rlframe.data.compression import pack_leaf, unpack_leaf
from rlframe.data.nested import Column, first_leaf, map_nested
from rlframe.data.rows import (
    Columns,
    as_seq_lens,
    check_lengths,
    concat_columns,
    convert_columns,
    nbytes,
    pad_columns,
    padded_positions,
    sequence_at,
    slice_column,
    slice_sequences,
)

if TYPE_CHECKING:
    from rlframe.data.view_requirements import ViewRequirement

DEFAULT_POLICY_ID: Final = "default_policy"
"""The policy's name where only one is used."""

_get = dict.__getitem__
_ATTRIBUTES: Final = ("time_major", "zero_padded", "max_seq_len", "_is_training", "_count")


class SampleBatch(ColumnDict):
    """A dict of columns, each an array `[B, ...]` or a dict or tuple of such, with methods for rows.

    Reading and writing columns is dict access (see `ColumnDict`); `batch[a:b]` are rows.

    Attributes:
        time_major: Rows are laid out `[T, B, ...]`, not `[B, ...]`.
        zero_padded: Every sequence is padded to `max_seq_len` rows.
        max_seq_len: Longest sequence allowed, for batches with `seq_lens`.
    """

    OBS: Final = names.OBS
    CUR_OBS: Final = names.OBS
    NEXT_OBS: Final = names.NEXT_OBS
    ACTIONS: Final = names.ACTIONS
    REWARDS: Final = names.REWARDS
    PREV_ACTIONS: Final = names.PREV_ACTIONS
    PREV_REWARDS: Final = names.PREV_REWARDS
    TERMINATEDS: Final = names.TERMINATEDS
    TRUNCATEDS: Final = names.TRUNCATEDS
    DONES: Final = names.DONES
    INFOS: Final = names.INFOS
    SEQ_LENS: Final = names.SEQ_LENS
    T: Final = names.T
    ACTION_DIST_INPUTS: Final = names.ACTION_DIST_INPUTS
    ACTION_PROB: Final = names.ACTION_PROB
    ACTION_LOGP: Final = names.ACTION_LOGP
    EPS_ID: Final = names.EPS_ID
    ENV_ID: Final = names.ENV_ID
    UNROLL_ID: Final = names.UNROLL_ID
    AGENT_INDEX: Final = names.AGENT_INDEX
    VF_PREDS: Final = names.VF_PREDS
    ADVANTAGES: Final = names.ADVANTAGES
    VALUE_TARGETS: Final = names.VALUE_TARGETS
    WEIGHTS: Final = names.WEIGHTS
    BATCH_INDEXES: Final = names.BATCH_INDEXES
    DISCOUNTS: Final = names.DISCOUNTS
    N_STEPS: Final = names.N_STEPS

    # Defaults live on the class, so that a batch built by `from_columns` sets no attribute at all.
    time_major: bool | None = None
    zero_padded: bool = False
    max_seq_len: int | None = None
    _count: int | None = None

    def __init__(
        self,
        *args: Any,
        _time_major: bool | None = None,
        _zero_padded: bool = False,
        _max_seq_len: int | None = None,
        _is_training: Any = None,
        **kwargs: Any,
    ) -> None:
        """Takes what `dict` takes; lists become arrays.

        Args:
            *args: A mapping of columns, or pairs.
            _time_major: Rows are `[T, B, ...]`.
            _zero_padded: Sequences are padded to `_max_seq_len`.
            _max_seq_len: Longest sequence allowed; where missing, the longest of `seq_lens`.
            _is_training: Value of the `is_training` flag.
            **kwargs: Further columns.

        Raises:
            ValueError: If columns have different numbers of rows (not checked where `seq_lens` is given).
        """
        super().__init__(*args, **kwargs)
        if _time_major is not None:
            self.time_major = _time_major
        if _zero_padded:
            self.zero_padded = True
        if _is_training is None:
            _is_training = dict.pop(self, names.IS_TRAINING, None)
        if _is_training is not None:
            self._is_training = _is_training
        for key, value in self.items():
            if isinstance(value, list):
                dict.__setitem__(self, key, _as_array(key, value))
        seq_lens = dict.get(self, names.SEQ_LENS)
        if seq_lens is None:
            check_lengths(self)
        elif _max_seq_len is None and len(seq_lens) > 0:
            _max_seq_len = int(max(seq_lens))
        if _max_seq_len is not None:
            self.max_seq_len = _max_seq_len

    @classmethod
    def from_columns(cls, columns: Mapping[str, Column], count: int | None = None) -> SampleBatch:
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

    # --- size -------------------------------------------------------------------------------------------------

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
                return int(leaf.shape[0] * leaf.shape[1]) if self.time_major else len(leaf)
        return 0

    @count.setter
    def count(self, rows: int) -> None:
        self._count = rows

    @property
    def data(self) -> SampleBatch:
        """The batch itself; in RLlib 1.2 its columns were in a dict of this name."""
        return self

    def __len__(self) -> int:
        return self.count

    def agent_steps(self) -> int:
        """Number of rows."""
        return self.count

    def env_steps(self) -> int:
        """Number of environment steps: with one agent, the rows."""
        return self.count

    def size_bytes(self) -> int:
        """Bytes of all arrays; objects count as their references."""
        return sum(nbytes(value) for value in self.values())

    def columns(self, keys: Iterable[str]) -> list[Any]:
        """Returns the named columns, in the order given."""
        return [self[key] for key in keys]

    # --- copies and rows ----------------------------------------------------------------------------------------

    def _like(self, columns: Mapping[str, Column]) -> SampleBatch:
        """Returns a batch of other columns with this one's flags."""
        batch = type(self).from_columns(columns)
        if self.__dict__:
            kept = {key: value for key, value in self.__dict__.items() if key not in ("_watch", "_count")}
            batch.__dict__.update(kept)
            if self._watch is not None:
                batch.set_get_interceptor(self._watch.interceptor)
        return batch

    def copy(self, shallow: bool = False) -> SampleBatch:
        """Returns a copy with its own arrays, or (`shallow`) one that shares them."""
        if shallow:
            batch = self._like(self)
            if self._watch is not None and batch._watch is not None:
                batch._watch.converted.update(self._watch.converted)
        else:
            batch = self._like({key: map_nested(_copy_leaf, value) for key, value in self.items()})
        batch._count = self._count
        return batch

    def __copy__(self) -> SampleBatch:
        return self.copy(shallow=True)

    def layout(self) -> dict[str, Any]:
        """Returns what is known of the batch beside its columns: padding, axes, flags; see `from_layout`."""
        return {key: value for key, value in self.__dict__.items() if key in _ATTRIBUTES}

    @classmethod
    def from_layout(cls, columns: Mapping[str, Column], layout: Mapping[str, Any]) -> SampleBatch:
        """Returns the batch of which `columns` and `layout()` were taken."""
        batch = cls.from_columns(columns)
        batch.__dict__.update(layout)
        return batch

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), dict(self), self.layout())

    def _rows(self, rows: slice) -> SampleBatch:
        """Returns rows `[start, stop)`; with `seq_lens`, both are moved down to the start of their sequence."""
        if self.time_major:
            raise ValueError("Got rows of a time-major batch; wanted a batch-major one: rows are slices of axis 0.")
        seq_lens = dict.get(self, names.SEQ_LENS)
        if seq_lens is None or len(seq_lens) == 0:
            sliced: Columns = {}
            for key, value in self.items():
                sliced[key] = value[rows] if value.__class__ is np.ndarray else slice_column(value, rows)
            return self._like(sliced)
        start, stop, step = rows.indices(self.count)
        if step != 1:
            raise ValueError(f"Got a slice with step {step} of a batch with seq_lens; wanted step 1.")
        return self._sequences(as_seq_lens(seq_lens), start, stop)

    def slice(self, start: int, end: int, state_start: int | None = None, state_end: int | None = None) -> SampleBatch:
        """Returns rows `[start, end)`, as views; of a batch that is cut into sequences, parts of its sequences too.

        `batch[start:end]` moves both ends to the start of a sequence; here the first and last sequence are cut where
        the rows are. A sequence that is cut at its front keeps the state it began with.

        Args:
            start: First row, at least 0.
            end: Row after the last one.
            state_start: First sequence of the rows, where the caller knows it; with `state_end`.
            state_end: Sequence after the last one.

        Raises:
            ValueError: If the batch is time-major or zero-padded, or only one of the two sequences is given.
        """
        if self.time_major or self.zero_padded:
            raise ValueError("Got slice() of a time-major or zero-padded batch; wanted one with its plain rows.")
        if (state_start is None) != (state_end is None):
            raise ValueError(f"Got state_start={state_start}, state_end={state_end}; wanted both or none.")
        rows = range(self.count)[start:end]
        given = dict.get(self, names.SEQ_LENS)
        if given is None or len(given) == 0:
            return self._rows(slice(rows.start, rows.stop))
        seq_lens = as_seq_lens(given)
        ends = np.cumsum(seq_lens)
        first = int(np.searchsorted(ends, rows.start, side="right")) if state_start is None else state_start
        last = int(np.searchsorted(ends, rows.stop, side="left")) + 1 if state_end is None else state_end
        last = first if not rows else last
        cut = self._like(slice_sequences(self, first, last, rows.start, rows.stop))
        begun = np.maximum(ends - seq_lens, rows.start)[first:last]
        dict.__setitem__(cut, names.SEQ_LENS, (np.minimum(ends[first:last], rows.stop) - begun).astype(np.int32))
        return cut

    def _sequences(self, seq_lens: NDArray[np.int64], start: int, stop: int) -> SampleBatch:
        first, last = sequence_at(seq_lens, start), sequence_at(seq_lens, stop)
        if self.zero_padded:
            length = self.max_seq_len or int(seq_lens.max(initial=0))
            ends = first * length, last * length
        else:
            ends = int(seq_lens[:first].sum()), int(seq_lens[:last].sum())
        return self._like(slice_sequences(self, first, last, *ends))

    def take(self, rows: NDArray[np.integer[Any]] | Sequence[int]) -> SampleBatch:
        """Returns the rows with the given numbers, copied.

        Raises:
            ValueError: If the batch is cut into sequences.
        """
        self._refuse_sequences("take")
        index = np.asarray(rows)
        return self._like({key: slice_column(value, index) for key, value in self.items()})

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields one dict per valid row; columns with one entry per sequence are left out."""
        columns = {key: value for key, value in self.items() if not is_per_sequence(key)}
        positions: Iterable[int] = range(self.count)
        if self.zero_padded and names.SEQ_LENS in self:
            seq_lens = as_seq_lens(_get(self, names.SEQ_LENS))
            positions = padded_positions(seq_lens, self.max_seq_len or int(seq_lens.max(initial=0))).tolist()
        for row in positions:
            yield {key: slice_column(value, row) for key, value in columns.items()}

    def shuffle(self, rng: np.random.Generator | None = None) -> SampleBatch:
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

    def _refuse_sequences(self, what: str) -> None:
        if dict.get(self, names.SEQ_LENS) is not None:
            raise ValueError(f"Got {what}() on a batch with seq_lens; wanted a batch that is not cut into sequences.")

    def split_by_episode(self) -> list[SampleBatch]:
        """Returns one batch per run of rows with the same `eps_id`, in order."""
        eps_ids = np.asarray(self[names.EPS_ID])
        if len(eps_ids) == 0:
            return []
        cuts = [0, *(np.flatnonzero(eps_ids[1:] != eps_ids[:-1]) + 1).tolist(), len(eps_ids)]
        return [self[start:stop] for start, stop in pairwise(cuts)]

    def timeslices(
        self, size: int | None = None, num_slices: int | None = None, k: int | None = None
    ) -> list[SampleBatch]:
        """Returns the rows in pieces; with `seq_lens` each piece ends at a sequence's end.

        Args:
            size: Rows per piece; the last may have fewer.
            num_slices: Number of pieces, whose sizes differ by at most one row.
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
            cuts = [rows * piece // given[0] for piece in range(given[0] + 1)]
        pieces = (self[start:stop] for start, stop in pairwise(cuts))
        return [piece for piece in pieces if piece.count > 0]

    # --- joining --------------------------------------------------------------------------------------------------

    @staticmethod
    def concat_samples(samples: Sequence[Any]) -> Any:
        """Returns the batches' rows one after the other; empty batches are skipped.

        Args:
            samples: SampleBatches, or MultiAgentBatches if the first is one.

        Raises:
            ValueError: If columns, padding, `max_seq_len` of padded batches or `time_major` differ.
        """
        if any(isinstance(sample, MultiAgentBatch) for sample in samples):
            return MultiAgentBatch.concat_samples(samples)
        parts = [sample for sample in samples if sample.count > 0] or list(samples[:1])
        if not parts:
            return SampleBatch()
        if len(parts) == 1:
            return parts[0].copy(shallow=True)
        max_seq_len = _common_max_seq_len(parts)
        joined = parts[0]._like(concat_columns(parts, time_major=bool(parts[0].time_major)))
        if max_seq_len is not None:
            joined.max_seq_len = max_seq_len
        return joined

    def concat(self, other: SampleBatch) -> SampleBatch:
        """Returns this batch's rows followed by the other's."""
        joined: SampleBatch = self.concat_samples([self, other])
        return joined

    def as_multi_agent(self) -> MultiAgentBatch:
        """Returns a MultiAgentBatch with this batch as the default policy's."""
        return MultiAgentBatch({DEFAULT_POLICY_ID: self}, self.count)

    @property
    def policy_batches(self) -> Mapping[str, SampleBatch]:
        """The batch as that of the default policy, read only: RLlib's buffers hand out a `MultiAgentBatch` always.

        Plans that were written for those read `samples.policy_batches[policy_id]`. To change what is in it, take
        `as_multi_agent()`.
        """
        return MappingProxyType({DEFAULT_POLICY_ID: self})

    # --- in-place conversions ---------------------------------------------------------------------------------------

    def right_zero_pad(self, max_seq_len: int, exclude_states: bool = True) -> SampleBatch:
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
        self.update(pad_columns(self, max_seq_len, exclude_states=exclude_states))
        self.zero_padded = True
        self.max_seq_len = max_seq_len
        return self

    def zero_pad(self, max_seq_len: int, exclude_states: bool = True) -> SampleBatch:
        """Does what `right_zero_pad` does (RLlib's old name)."""
        return self.right_zero_pad(max_seq_len, exclude_states)

    def to_device(self, device: Any, framework: str = "torch") -> SampleBatch:
        """Turns the columns into tensors on `device`, in place, and returns the batch.

        Columns of objects or strings, and `infos`, stay as they are; float64 becomes float32.

        Raises:
            ValueError: If the framework is not "torch".
        """
        if framework != "torch":
            raise ValueError(f"Got framework={framework!r}; wanted 'torch': other frameworks place tensors themselves.")
        from rlframe.utils.torch_utils import convert_to_torch_tensor

        self.update(convert_columns(self, lambda leaf: convert_to_torch_tensor(leaf, device)))
        return self

    def compress(self, bulk: bool = False, columns: Iterable[str] = (names.OBS, names.NEXT_OBS)) -> None:
        """Compresses columns in place, each as one piece (`bulk`) or row by row, so that it can still be sliced."""
        for key in columns:
            if key in self:
                self[key] = map_nested(lambda leaf: pack_leaf(leaf, bulk=bulk), _get(self, key))

    def decompress_if_needed(self, columns: Iterable[str] = (names.OBS, names.NEXT_OBS)) -> SampleBatch:
        """Undoes `compress` in place and returns the batch."""
        for key in columns:
            if key in self:
                self[key] = map_nested(unpack_leaf, _get(self, key))
        return self

    def get_single_step_input_dict(
        self, view_requirements: Mapping[str, ViewRequirement], index: int | str = "last"
    ) -> SampleBatch:
        """Returns the model's input for one step, with B=1.

        Args:
            view_requirements: What the model wants to see, by column.
            index: A row, or "last" for the step after the last row (to bootstrap from its value).
        """
        from rlframe.data.view_requirements import single_step_columns

        columns = single_step_columns(self, self.count, view_requirements, index)
        return SampleBatch(columns, seq_lens=np.ones(1, np.int32))

    def __repr__(self) -> str:
        cut = "" if names.SEQ_LENS not in self else f", {len(_get(self, names.SEQ_LENS))} sequences"
        return f"SampleBatch({self.count} rows{cut}: {list(self)})"


class MultiAgentBatch:
    """One SampleBatch per policy, and the number of environment steps in which they were collected.

    Attributes:
        policy_batches: `{policy id: SampleBatch}`.
        count: Environment steps (not rows).
    """

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        """Keeps the batches; plain dicts of columns become SampleBatches."""
        self.policy_batches: dict[str, SampleBatch] = {
            policy: batch if isinstance(batch, SampleBatch) else SampleBatch(batch)
            for policy, batch in policy_batches.items()
        }
        self.count = int(env_steps)

    def env_steps(self) -> int:
        """Environment steps in which the rows were collected."""
        return self.count

    def agent_steps(self) -> int:
        """Rows of all policies together."""
        return sum(batch.count for batch in self.policy_batches.values())

    def __len__(self) -> int:
        return self.count

    def timeslices(self, k: int) -> list[MultiAgentBatch]:
        """Returns pieces of `k` environment steps each, ordered by episode and time; the last may have fewer.

        Rows of one environment step (same `eps_id` and `t`) stay together.
        """
        if k < 1:
            raise ValueError(f"Got k={k}; wanted at least 1 environment step per piece.")
        batches = {policy: batch for policy, batch in self.policy_batches.items() if batch.count}
        if not batches:
            return []
        steps = {
            policy: np.stack([np.asarray(batch[names.EPS_ID]), np.asarray(batch[names.T])], axis=1)
            for policy, batch in batches.items()
        }
        distinct, ranks = np.unique(np.concatenate(list(steps.values())), axis=0, return_inverse=True)
        rank_of = np.split(ranks.reshape(-1), np.cumsum([len(rows) for rows in steps.values()])[:-1])
        pieces = []
        for start in range(0, len(distinct), k):
            stop = min(start + k, len(distinct))
            parts = {}
            for (policy, batch), rank in zip(batches.items(), rank_of, strict=True):
                rows = np.flatnonzero((rank >= start) & (rank < stop))
                if len(rows):
                    parts[policy] = batch.take(rows[np.argsort(rank[rows], kind="stable")])
            pieces.append(MultiAgentBatch(parts, stop - start))
        return pieces

    @staticmethod
    def wrap_as_needed(policy_batches: Mapping[str, SampleBatch], env_steps: int) -> SampleBatch | MultiAgentBatch:
        """Returns the plain SampleBatch where the default policy's is the only one, else a MultiAgentBatch."""
        if len(policy_batches) == 1 and DEFAULT_POLICY_ID in policy_batches:
            return policy_batches[DEFAULT_POLICY_ID]
        return MultiAgentBatch(policy_batches, env_steps)

    @staticmethod
    def concat_samples(samples: Sequence[Any]) -> MultiAgentBatch:
        """Returns the rows of all batches, policy by policy, and the sum of their environment steps.

        SampleBatches among them count as the default policy's.
        """
        gathered: dict[str, list[SampleBatch]] = {}
        env_steps = 0
        for sample in samples:
            batch = sample.as_multi_agent()
            env_steps += batch.count
            for policy, part in batch.policy_batches.items():
                gathered.setdefault(policy, []).append(part)
        joined = {policy: SampleBatch.concat_samples(parts) for policy, parts in gathered.items()}
        return MultiAgentBatch(joined, env_steps)

    def concat(self, other: SampleBatch | MultiAgentBatch) -> MultiAgentBatch:
        """Returns this batch's rows followed by the other's."""
        return self.concat_samples([self, other])

    def as_multi_agent(self) -> MultiAgentBatch:
        """Returns this batch."""
        return self

    def copy(self, shallow: bool = False) -> MultiAgentBatch:
        """Returns a copy with its own arrays, or (`shallow`) one that shares them."""
        return self._map(lambda batch: batch.copy(shallow))

    def _map(self, fn: Callable[[SampleBatch], SampleBatch]) -> MultiAgentBatch:
        return MultiAgentBatch({policy: fn(batch) for policy, batch in self.policy_batches.items()}, self.count)

    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(batch.size_bytes() for batch in self.policy_batches.values())

    def compress(self, bulk: bool = False, columns: Iterable[str] = (names.OBS, names.NEXT_OBS)) -> None:
        """Compresses columns of every policy's batch in place."""
        keys = tuple(columns)
        for batch in self.policy_batches.values():
            batch.compress(bulk, keys)

    def decompress_if_needed(self, columns: Iterable[str] = (names.OBS, names.NEXT_OBS)) -> MultiAgentBatch:
        """Undoes `compress` in place and returns the batch."""
        keys = tuple(columns)
        for batch in self.policy_batches.values():
            batch.decompress_if_needed(keys)
        return self

    def __repr__(self) -> str:
        return f"MultiAgentBatch({self.count} env steps: {self.policy_batches})"


def _rebuild(cls: type[SampleBatch], columns: Columns, layout: dict[str, Any]) -> SampleBatch:
    """Undoes `SampleBatch.__reduce__`."""
    return cls.from_layout(columns, layout)


def _copy_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    clone = getattr(leaf, "clone", None)
    return leaf if clone is None else clone()


def _as_array(key: str, value: list[Any]) -> NDArray[Any]:
    try:
        return np.array(value)
    except ValueError as error:
        raise ValueError(
            f"Column {key!r} is a list whose entries have different shapes ({error}); wanted equal shapes, or an array."
        ) from error


def _common_max_seq_len(parts: Sequence[SampleBatch]) -> int | None:
    """Returns `max_seq_len` of the joined batch; raises ValueError unless the parts are laid out alike."""
    first = parts[0]
    for part in parts[1:]:
        if part.zero_padded != first.zero_padded or bool(part.time_major) != bool(first.time_major):
            raise ValueError(
                "Got batches of which only some are zero-padded or time-major "
                f"(zero_padded {first.zero_padded} and {part.zero_padded}, time_major {first.time_major} and "
                f"{part.time_major}); wanted all alike."
            )
        differ = (part.max_seq_len is None) != (first.max_seq_len is None)
        if differ and (_longest(part) is None or _longest(first) is None):
            raise ValueError(
                f"Got batches with max_seq_len {first.max_seq_len} and {part.max_seq_len}, and without seq_lens; "
                "wanted it in all or in none."
            )
        if first.zero_padded and part.max_seq_len != first.max_seq_len:
            raise ValueError(
                f"Got batches padded to {first.max_seq_len} and {part.max_seq_len} rows; wanted one length."
            )
    if all(part.max_seq_len is None for part in parts):
        return None
    return max(_longest(part) or 0 for part in parts)


def _longest(part: SampleBatch) -> int | None:
    """Returns `max_seq_len`; of sequences that a worker cut, which carry none, the longest of `seq_lens`."""
    seq_lens = dict.get(part, names.SEQ_LENS)
    if part.max_seq_len is not None or seq_lens is None or len(seq_lens) == 0:
        return part.max_seq_len
    return int(max(seq_lens))
