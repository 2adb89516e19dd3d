"""SampleBatch: the rows that travel from rollout workers to learners; MultiAgentBatch: one of them per policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlframe.data import columns as names
from rlframe.data.batch_forms import BatchForms
from rlframe.data.nested import Column, first_leaf
from rlframe.data.rows import Columns

if TYPE_CHECKING:
    from rlframe.data.view_requirements import ViewRequirement

DEFAULT_POLICY_ID: Final = "default_policy"
"""The policy's name where only one is used."""

_get = dict.__getitem__
_ATTRIBUTES: Final = ("time_major", "zero_padded", "max_seq_len", "_is_training", "_count")


class SampleBatch(BatchForms):
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
            _check_lengths(self)
        elif _max_seq_len is None and len(seq_lens) > 0:
            _max_seq_len = int(max(seq_lens))
        if _max_seq_len is not None:
            self.max_seq_len = _max_seq_len

    @property
    def data(self) -> SampleBatch:
        """The batch itself; in RLlib 1.2 its columns were in a dict of this name."""
        return self

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
        cut = ""
        if names.SEQ_LENS in self:
            cut = f", {_shown(lambda: len(_get(self, names.SEQ_LENS)))} sequences"
        return f"SampleBatch({_shown(lambda: self.count)} rows{cut}: {list(self)})"


class MultiAgentBatch:
    """One SampleBatch per policy, and the number of environment steps in which they were collected.

    Where the default policy is the only one, it has the columns and methods of that policy's SampleBatch, too: RLlib
    gives programs that batch instead.

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

    def __getitem__(self, key: str) -> Any:
        """Returns a column of the default policy's rows, where that policy is the only one.

        Raises:
            TypeError: If there are other policies.
        """
        return self._alone(f"column {key!r}", f"[{key!r}]")[key]

    def __setitem__(self, key: str, value: Any) -> None:
        """Sets a column of the default policy's rows, where that policy is the only one.

        Raises:
            TypeError: If there are other policies.
        """
        self._alone(f"column {key!r}", f"[{key!r}]")[key] = value

    def __contains__(self, key: object) -> bool:
        """Returns whether the default policy's rows have a column, where that policy is the only one."""
        return set(self.policy_batches) == {DEFAULT_POLICY_ID} and key in self.policy_batches[DEFAULT_POLICY_ID]

    def __getattr__(self, name: str) -> Any:
        """Returns what the default policy's batch has under a name, where that policy is the only one."""
        if name.startswith("_") or name == "policy_batches" or not hasattr(SampleBatch, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            return getattr(self._alone(f"attribute {name!r}", f".{name}"), name)
        except TypeError as error:
            raise AttributeError(str(error)) from None

    def _alone(self, wanted: str, access: str) -> SampleBatch:
        if set(self.policy_batches) != {DEFAULT_POLICY_ID}:
            raise TypeError(
                f"A MultiAgentBatch of the policies {list(self.policy_batches)} has no {wanted}; wanted "
                f"batch.policy_batches[policy id]{access}."
            )
        return self.policy_batches[DEFAULT_POLICY_ID]

    def env_steps(self) -> int:
        """Environment steps in which the rows were collected."""
        return self.count

    def agent_steps(self) -> int:
        """Rows of all policies together."""
        return sum(batch.count for batch in self.policy_batches.values())

    total = agent_steps  # RLlib 0.8's name

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


def _shown(length: Callable[[], int]) -> str:
    """Returns a length as text; "?" where TensorFlow traces a function, whose tensors have none yet."""
    try:
        return str(length())
    except TypeError:
        return "?"


def _rebuild(cls: type[SampleBatch], columns: Columns, layout: dict[str, Any]) -> SampleBatch:
    """Undoes `SampleBatch.__reduce__`."""
    return cls.from_layout(columns, layout)


def _as_array(key: str, value: list[Any]) -> NDArray[Any]:
    try:
        return np.array(value, np.int32 if key == names.SEQ_LENS else None)
    except ValueError as error:
        raise ValueError(
            f"Column {key!r} is a list whose entries have different shapes ({error}); wanted equal shapes, or an array."
        ) from error


def _check_lengths(columns: Mapping[str, Column]) -> None:
    """Raises ValueError unless all columns that have rows have the same number of them."""
    lengths: dict[str, int] = {}
    for key, value in columns.items():
        leaf = first_leaf(value)
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape) > 0 and shape[0] is not None:  # TensorFlow traces any number of rows
            lengths[key] = int(shape[0])
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key}: {length}" for key, length in lengths.items())
        raise ValueError(f"Got columns of different numbers of rows ({listed}); wanted as many in each column.")
