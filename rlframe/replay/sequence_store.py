"""Sequences of rows in a replay buffer: pieces of trajectories, which overlap without being stored twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.data.column_dict import continues, is_per_sequence
from rlframe.data.columns import (
    BATCH_INDEXES,
    BURN_IN,
    INFOS,
    NEXT_OBS,
    OBS,
    SEQ_LENS,
    STATE_OUT_PREFIX,
    WEIGHTS,
)
from rlframe.data.rows import as_seq_lens
from rlframe.data.sample_batch import SampleBatch
from rlframe.replay.memory_budget import check_fits, memory_bytes
from rlframe.replay.storable_columns import GO_ON_WITHOUT
from rlframe.utils.errors import CheckpointError

Array = NDArray[Any]
Indexes = NDArray[np.int64]
_NOT_STORED = frozenset({SEQ_LENS, INFOS, BATCH_INDEXES, BURN_IN, WEIGHTS})


class _Trajectory(NamedTuple):
    """Rows in time order, and the recurrent states at some of them.

    Attributes:
        rows: Columns `[T, ...]`; `obs` and `new_obs` are views of one array where the one follows the other.
        states: `state_in_i [pieces, S]`, each the state before the first row of a piece.
    """

    rows: dict[str, Array]
    states: dict[str, Array]


class _Sequence(NamedTuple):
    """Rows [start, stop) of a trajectory, of which the first `burn_in` only warm up the state of piece `piece`."""

    trajectory: _Trajectory
    start: int
    stop: int
    burn_in: int
    piece: int


class SequenceStore:
    """The latest `capacity` sequences; the interface is that of `TransitionStore`.

    Batches come cut into pieces, each with the recurrent state before its first row. Without a `length` each piece is a
    sequence. With one, a sequence begins at each piece and goes on into the next pieces of its trajectory, `length`
    rows or to its end: its first `burn_in` rows are there to warm up the state that was stored, which an older policy
    made, and the others are learned from. Rows at the beginning of a trajectory have fewer than `burn_in` rows before
    them: their sequences begin with its first row, whose state is exact, and have those rows as burn-in. So each row is
    learned from, in one sequence if pieces have `length - burn_in` rows, in several if they have fewer.

    Sequences are numbered as they are added, and number i is in slot `i % capacity`; alive are those in [oldest, end).

    Args:
        capacity: Sequences kept; the oldest go first.
        length: Rows of a sequence, those of burn-in included; None for the pieces as they come.
        burn_in: Rows at the beginning that are not learned from.
        memory_limit_bytes: What it may take when full; None for the memory of the machine (or container).

    Source: Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning", section 3.
    """

    def __init__(
        self,
        capacity: int,
        length: int | None = None,
        burn_in: int = 0,
        memory_limit_bytes: int | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 sequence, got {capacity}")
        check_lengths(length, burn_in)
        self.capacity, self.length, self.burn_in = capacity, length, burn_in
        self.oldest = 0
        self.end = 0
        self.bytes_per_transition = 0
        self._limit = memory_limit_bytes
        self._items: list[_Sequence] = []
        self._layout: dict[str, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        """Number of sequences alive."""
        return self.end - self.oldest

    def add(self, batch: Mapping[str, Any]) -> tuple[int, int]:
        """Stores the sequences of a batch, in place of the oldest.

        Returns:
            The numbers of the sequences that were stored, as (first, end): of more than the capacity, the last ones.

        Raises:
            ValueError: If the batch is not cut into pieces, or its columns differ from those of the first batch.
        """
        if batch.get(SEQ_LENS) is None:
            raise ValueError(
                "The batch is not cut into sequences (it has no seq_lens), but this replay buffer stores sequences; "
                "give the policy a recurrent model, or use LocalReplayBuffer with replay_sequence_length=1"
            )
        plain = batch.copy(shallow=True).decompress_if_needed() if isinstance(batch, SampleBatch) else batch
        columns = {
            key: np.asarray(column)
            for key, column in plain.items()
            if key not in _NOT_STORED and not key.startswith(STATE_OUT_PREFIX)
        }
        self._check_columns(columns)
        made = [
            sequence
            for trajectory, starts in self._trajectories(columns, as_seq_lens(batch[SEQ_LENS]))
            for sequence in self._sequences(trajectory, starts)
        ]
        if made and not self._items:
            self.bytes_per_transition = self._bytes_of(made[0])
            check_fits(self.capacity, self.bytes_per_transition, memory_bytes() if self._limit is None else self._limit)
        made = made[-self.capacity :]
        first = self.end
        for sequence in made:
            self._put(sequence)
        return first, self.end

    def _put(self, sequence: _Sequence) -> None:
        if len(self._items) < self.capacity:
            self._items.append(sequence)
        else:
            self._items[self.end % self.capacity] = sequence
        self.end += 1
        self.oldest = max(0, self.end - self.capacity)

    def _trajectories(self, columns: dict[str, Array], lens: Indexes) -> Iterator[tuple[_Trajectory, list[int]]]:
        """Yields a batch's trajectories, each with the rows at which its pieces begin; without a length, the pieces."""
        ends = np.cumsum(lens)
        rows = {key: column for key, column in columns.items() if not is_per_sequence(key)}
        goes_on = continues(SampleBatch.from_columns(rows, int(ends[-1])))
        joined = np.zeros(len(lens), bool) if self.length is None else np.append(goes_on[ends[:-1] - 1], False)
        last = np.flatnonzero(~joined)
        for begin, end in zip(np.append(0, last[:-1] + 1).tolist(), (last + 1).tolist(), strict=True):
            start, stop = int(ends[begin] - lens[begin]), int(ends[end - 1])
            # Copies: a view would keep the whole batch.
            own = _with_shared_obs({key: column[start:stop] for key, column in rows.items()})
            states = {key: columns[key][begin:end].copy() for key in columns if is_per_sequence(key)}
            yield _Trajectory(own, states), (ends[begin:end] - lens[begin:end] - start).tolist()

    def _sequences(self, trajectory: _Trajectory, starts: Sequence[int]) -> Iterator[_Sequence]:
        """Yields the sequences of a trajectory whose pieces begin at rows `starts`."""
        rows = _length(trajectory)
        learned = rows if self.length is None else self.length - self.burn_in
        for piece, start in enumerate(starts):
            if self.burn_in == 0:
                yield _Sequence(trajectory, start, min(start + learned, rows), 0, piece)
            elif start < self.burn_in:
                yield _Sequence(trajectory, 0, min(start + learned, rows), start, 0)
            if 0 < self.burn_in < rows - start:
                stop = min(start + self.burn_in + learned, rows)
                yield _Sequence(trajectory, start, stop, self.burn_in, piece)

    def _check_columns(self, columns: dict[str, Array]) -> None:
        layout = {key: (column.dtype, column.shape[1:]) for key, column in columns.items()}
        if not self._layout:
            for key, column in columns.items():
                if column.dtype == object:
                    raise ValueError(f"Column {key!r} holds objects, wanted numbers; remove it from the batch")
            self._layout = layout
        for key in (*self._layout, *layout):
            if layout.get(key) != self._layout.get(key):
                raise ValueError(
                    f"Column {key!r}: got {layout.get(key, 'none')}, wanted {self._layout.get(key, 'none')} as in the "
                    "first batch added to this replay buffer; make all batches alike"
                )

    # ---- what is drawn --------------------------------------------------------------------------------------------

    def gather(self, slots: Indexes) -> dict[str, Array]:
        """Returns the sequences in `slots` one behind the other: row columns `[B, ...]`, states and `seq_lens`.

        Where sequences have burn-in, `burn_in` says which rows it is. bool `[B]`.
        """
        chosen = [self._items[slot] for slot in slots.tolist()]
        columns = {
            key: np.concatenate([item.trajectory.rows[key][item.start : item.stop] for item in chosen])
            for key in chosen[0].trajectory.rows
        }
        for key in chosen[0].trajectory.states:
            columns[key] = np.stack([item.trajectory.states[key][item.piece] for item in chosen])
        lens = np.array([item.stop - item.start for item in chosen], np.int32)
        if self.burn_in:
            step = np.arange(lens.sum()) - np.repeat(np.cumsum(lens) - lens, lens)
            columns[BURN_IN] = step < np.repeat([item.burn_in for item in chosen], lens)
        columns[SEQ_LENS] = lens
        return columns

    def lengths(self, slots: Indexes) -> list[int]:
        """Returns the rows of the sequences in `slots`."""
        return [self._items[slot].stop - self._items[slot].start for slot in slots.tolist()]

    def slots_of(self, numbers: Indexes) -> Indexes:
        """Returns the slots of sequences. int64 `[S]`."""
        return numbers % self.capacity

    def numbers_of(self, slots: Indexes) -> Indexes:
        """Returns the numbers of the sequences now in `slots`. int64 `[S]`."""
        return self.oldest + (slots - self.oldest) % self.capacity

    # ---- reports and state ----------------------------------------------------------------------------------------

    @property
    def num_steps(self) -> int:
        """Rows of all sequences; those that are in several count as often."""
        return sum(item.stop - item.start for item in self._items)

    def size_bytes(self) -> int:
        """Returns the bytes in use."""
        return sum(self.bytes_by_column().values())

    def bytes_by_column(self) -> dict[str, int]:
        """Returns the bytes in use, column by column; `obs` stands for `new_obs` where they are one array."""
        sizes: dict[str, int] = {}
        for trajectory in self._alive():
            for key, column in (*trajectory.rows.items(), *trajectory.states.items()):
                sizes[key] = sizes.get(key, 0) + _own_bytes(trajectory, key, column)
        return sizes

    def _alive(self) -> list[_Trajectory]:
        """Returns the trajectories that have sequences, in the order in which they were added."""
        newest_last = (self._items[number % self.capacity] for number in range(self.oldest, self.end))
        return list({id(item.trajectory): item.trajectory for item in newest_last}.values())

    def _bytes_of(self, sequence: _Sequence) -> int:
        """Returns what a sequence adds to the rows that it shares with others: about its rows that are learned from."""
        trajectory = sequence.trajectory
        of_rows = sum(_own_bytes(trajectory, key, column) for key, column in trajectory.rows.items())
        of_states = sum(column[:1].nbytes for column in trajectory.states.values())
        learned = sequence.stop - sequence.start - sequence.burn_in
        return of_rows * learned // _length(trajectory) + of_states

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns the store as plain state: trajectories joined, and where the sequences lie in them.

        Args:
            copy: No effect: trajectories are joined for the state, which copies them.
        """
        del copy
        alive = self._alive()
        place = {id(trajectory): index for index, trajectory in enumerate(alive)}
        table = [(place[id(item.trajectory)], *item[1:]) for item in self._items]
        rows = {key: np.concatenate([part.rows[key] for part in alive]) for key in (alive[0].rows if alive else ())}
        states = {
            key: np.concatenate([part.states[key] for part in alive]) for key in (alive[0].states if alive else ())
        }
        return {
            "capacity": self.capacity,
            "length": self.length,
            "burn_in": self.burn_in,
            "end": self.end,
            "sequences": np.array(table, np.int64).reshape(-1, 5),
            "trajectories": np.array([_length(part) for part in alive], np.int64),
            "pieces": np.array([_pieces(part) for part in alive], np.int64),
            "columns": rows,
            "states": states,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a store of the same capacity, length and burn-in; what was stored here is forgotten.

        Raises:
            CheckpointError: If one of these differs.
        """
        for key, wanted in (("capacity", self.capacity), ("length", self.length), ("burn_in", self.burn_in)):
            if state[key] != wanted:
                raise CheckpointError(
                    f"The saved replay buffer has {key} {state[key]}, this one {wanted}; set it to {state[key]}, or "
                    f"{GO_ON_WITHOUT}"
                )
        alive = []
        row = piece = 0
        for length, pieces in zip(state["trajectories"].tolist(), state["pieces"].tolist(), strict=True):
            rows = _with_shared_obs({key: column[row : row + length] for key, column in state["columns"].items()})
            states = {key: column[piece : piece + pieces].copy() for key, column in state["states"].items()}
            alive.append(_Trajectory(rows, states))
            row, piece = row + length, piece + pieces
        self._items = [_Sequence(alive[item[0]], *item[1:]) for item in state["sequences"].tolist()]
        self.end = int(state["end"])
        self.oldest = max(0, self.end - self.capacity)
        self._layout = {}
        if alive:
            self.bytes_per_transition = self._bytes_of(self._items[0])
            self._check_columns({**alive[0].rows, **alive[0].states})

    def check_invariants(self) -> None:
        """Raises AssertionError if the store contradicts itself."""
        if len(self._items) != min(self.end, self.capacity) or self.oldest != max(0, self.end - self.capacity):
            raise AssertionError(f"{len(self._items)} sequences, oldest {self.oldest} after {self.end} were added")
        for item in self._items:
            lengths = {len(column) for column in item.trajectory.rows.values()}
            if len(lengths) != 1 or not 0 <= item.start + item.burn_in < item.stop <= min(lengths):
                raise AssertionError(f"A sequence has rows {item[1:3]} of columns of lengths {sorted(lengths)}")


def check_lengths(length: int | None, burn_in: int) -> None:
    """Raises ValueError where sequences of `length` rows have no row behind `burn_in` ones."""
    if burn_in < 0 or (length is not None and not 0 <= burn_in < length):
        raise ValueError(
            f"replay_burn_in must be at least 0 and below replay_sequence_length, which counts it; got {burn_in} and "
            f"{length}: nothing would be left to learn from"
        )


def _with_shared_obs(rows: dict[str, Array]) -> dict[str, Array]:
    """Returns copies of row columns; `obs` and `new_obs` become views of one array where the one follows the other."""
    own = {key: column.copy() for key, column in rows.items() if key not in (OBS, NEXT_OBS)}
    obs, new_obs = rows.get(OBS), rows.get(NEXT_OBS)
    pair = {key: column for key, column in ((OBS, obs), (NEXT_OBS, new_obs)) if column is not None}
    if obs is not None and new_obs is not None and obs.dtype == new_obs.dtype and np.array_equal(obs[1:], new_obs[:-1]):
        history = np.concatenate([obs, new_obs[-1:]])
        return {OBS: history[:-1], NEXT_OBS: history[1:], **own}
    return {**{key: column.copy() for key, column in pair.items()}, **own}


def _own_bytes(trajectory: _Trajectory, key: str, column: Array) -> int:
    """Returns the bytes of a column, of which those shared with `obs` are that column's."""
    obs = trajectory.rows.get(OBS)
    if key == NEXT_OBS and obs is not None and column.base is not None and column.base is obs.base:
        return 0
    if key == OBS and column.base is not None:
        return column.base.nbytes
    return column.nbytes


def _length(trajectory: _Trajectory) -> int:
    return len(next(iter(trajectory.rows.values())))


def _pieces(trajectory: _Trajectory) -> int:
    """Returns how many states a trajectory has of each kind; 0 where there are none."""
    return len(next(iter(trajectory.states.values()), ()))
