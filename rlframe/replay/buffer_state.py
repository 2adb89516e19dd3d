"""What replay buffers save and take back, what they say of themselves, and how they are checked.

One class for each that stores something, which inherits it: so what is stored, and how, can be read without this.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import NEXT_OBS, OBS
from rlframe.replay.storable_columns import GO_ON_WITHOUT, LINK_BYTES, row_bytes
from rlframe.utils.errors import CheckpointError
from rlframe.utils.timer import TimerStat

Array = NDArray[Any]

_LOGGER = logging.getLogger("rlframe")


class Tail(NamedTuple):
    """The last `new_obs` of a trajectory that may go on in a later batch."""

    t: int
    row: int
    owner: int  # number of the transition that frees the row


class ObservationsState:
    """The part of an `ObservationStore` that saves it."""

    capacity: int
    max_rows: int
    row_bytes: Any  # properties of the store
    rows_touched: Any
    _rows: Array
    _links: NDArray[np.int64]
    _owns_next: NDArray[np.bool_]
    _free: NDArray[np.int64]
    _num_free: int
    _extent: int
    _tails: dict[int, Tail]

    def get_state(self, used: int, *, copy: bool = True) -> dict[str, Any]:
        """Returns the store as plain state.

        Args:
            used: Slots that were ever written.
            copy: False to hand out views of the arrays, valid until the next `append`, instead of copies.
        """
        tails = list(self._tails.items())
        rows, links, owns_next = self._rows[: self._extent], self._links[:, :used], self._owns_next[:used]
        return {
            "rows": rows.copy() if copy else rows,
            "links": links.copy() if copy else links,
            "owns_next": owns_next.copy() if copy else owns_next,
            "free": self._free[: self._num_free].copy(),
            "tails": np.array([(key, *tail) for key, tail in tails], np.int64).reshape(len(tails), 4),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a store of the same capacity, shape and dtype."""
        rows = np.asarray(state["rows"])
        if len(rows) > self.max_rows:
            raise ValueError(
                f"The saved replay buffer has {len(rows)} observations ({len(rows) * self.row_bytes:,} bytes), but "
                f"only {self.max_rows} fit here; restore it on a machine with more memory"
            )
        used = state["links"].shape[1]
        self._extent = len(rows)
        self._rows[: self._extent] = rows
        self._links[:, :used] = state["links"]
        self._owns_next[:] = False
        self._owns_next[:used] = state["owns_next"]
        self._num_free = len(state["free"])
        self._free[: self._num_free] = state["free"]
        self._tails = {key: Tail(*tail) for key, *tail in np.asarray(state["tails"]).tolist()}

    def check_invariants(self, oldest: int, end: int) -> None:
        """Raises AssertionError unless every row has exactly one releaser, or is free, and outlives its users.

        Args:
            oldest: Number of the oldest transition that is alive.
            end: Number that the next transition will get.
        """
        numbers = np.arange(oldest, end)
        slots = numbers % self.capacity
        owners = numbers[self._owns_next[slots]]
        released = np.concatenate([self._links[0, slots], self._links[1, owners % self.capacity]])
        everything = np.sort(np.concatenate([released, self._free[: self._num_free]]))
        if not np.array_equal(everything, np.arange(self._extent)):
            raise AssertionError("Rows of observations are lost, freed twice, or both free and in use")
        releaser = np.full(self._extent, -1)
        releaser[released] = np.concatenate([numbers, owners])
        if (releaser[self._links[1, slots]] < numbers).any():
            raise AssertionError("A transition's new_obs can be overwritten before the transition is")
        for tail in self._tails.values():
            slot = tail.owner % self.capacity
            if tail.owner >= oldest and not (self._owns_next[slot] and self._links[1, slot] == tail.row):
                raise AssertionError(f"The remembered end of a trajectory, row {tail.row}, is not what its owner has")


class StoreState:
    """The part of a `TransitionStore` that saves it, and says how large it is."""

    capacity: int
    oldest: int
    end: int
    _schema: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
    _columns: dict[str, Array]
    _observations: Any  # an ObservationStore, or None
    _allocate: Any  # a method of the store

    def size_bytes(self) -> int:
        """Returns the bytes that have been written to."""
        used = min(self.end, self.capacity)
        total = sum(used * row_bytes(column) for column in self._columns.values())
        if self._observations is not None:
            total += self._observations.rows_touched * self._observations.row_bytes + used * LINK_BYTES
        return total

    def bytes_by_column(self) -> dict[str, int]:
        """Returns the bytes that have been written to, column by column; `obs` stands for `new_obs` where shared."""
        used = min(self.end, self.capacity)
        sizes = {name: used * row_bytes(column) for name, column in self._columns.items()}
        if self._observations is not None:
            sizes[OBS] = self._observations.rows_touched * self._observations.row_bytes
        return sizes

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns the used part of the store as plain state; `copy=False` gives views, valid until the next `add`."""
        used = min(self.end, self.capacity)
        columns = {name: column[:used] for name, column in self._columns.items()}
        store = self._observations
        return {
            "capacity": self.capacity,
            "oldest": self.oldest,
            "end": self.end,
            "columns": {name: column.copy() if copy else column for name, column in columns.items()},
            "observations": None if store is None else store.get_state(used, copy=copy),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a store of the same capacity; what was stored here is forgotten.

        Raises:
            CheckpointError: If the capacity differs.
            ValueError: If the full buffer will not fit into memory.
        """
        if state["capacity"] != self.capacity:
            raise CheckpointError(
                f"The saved replay buffer has capacity {state['capacity']}, this one {self.capacity}; set it to "
                f"{state['capacity']}, or {GO_ON_WITHOUT}"
            )
        schema = {name: (column.dtype, column.shape[1:]) for name, column in state["columns"].items()}
        saved = state["observations"]
        if saved is not None:
            schema[OBS] = schema[NEXT_OBS] = (saved["rows"].dtype, saved["rows"].shape[1:])
        self._schema, self._columns, self._observations = {}, {}, None
        if schema:
            self._allocate(schema, copies=1)
        for name, column in state["columns"].items():
            self._columns[name][: len(column)] = column
        if self._observations is not None:
            self._observations.set_state(saved)
        self.oldest, self.end = int(state["oldest"]), int(state["end"])

    def check_invariants(self) -> None:
        """Raises AssertionError if the store contradicts itself."""
        if not 0 <= self.end - self.oldest <= self.capacity or self.oldest < 0:
            raise AssertionError(f"Transitions [{self.oldest}, {self.end}) in {self.capacity} slots")
        if self._observations is not None:
            self._observations.check_invariants(self.oldest, self.end)


class BufferState:
    """The part of a `ReplayBuffer` that saves it, and says what it has."""

    capacity: Any  # properties of the buffer
    stores_sequences: Any
    full_size_bytes: Any
    _store: Any
    _rng: np.random.Generator
    _num_sampled: int

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns counts of transitions and the memory used.

        Args:
            debug: Also give `full_size_bytes` and `bytes_by_column`.
        """
        store = self._store
        stats: dict[str, Any] = {
            "added_count": store.end,
            "added_count_wrapped": store.end % store.capacity,
            "eviction_started": store.oldest > 0,
            "sampled_count": self._num_sampled,
            "est_size_bytes": self.size_bytes(),
            "num_entries": len(store),
        }
        if debug:
            stats.update(full_size_bytes=self.full_size_bytes, bytes_by_column=store.bytes_by_column())
        return stats

    def size_bytes(self) -> int:
        """Returns the bytes of memory in use."""
        return int(self._store.size_bytes())

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns everything needed to go on exactly, the draws included.

        Args:
            copy: False to hand out views of the stored arrays, valid until the next `add`: enough for a state that is
                written to disk at once, and no second buffer in memory.
        """
        return {
            "kind": type(self).__name__,
            "sequences": self.stores_sequences,
            "store": self._store.get_state(copy=copy),
            "num_sampled": self._num_sampled,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a buffer of the same class and capacity; what was stored here is forgotten.

        Raises:
            CheckpointError: If it is of another kind, capacity or exponent.
        """
        if state["kind"] != type(self).__name__:
            raise CheckpointError(
                f"The saved replay buffer is a {state['kind']}, this one a {type(self).__name__}; set "
                f"prioritized_replay as it was when saving, or {GO_ON_WITHOUT}"
            )
        self._store.set_state(state["store"])
        self._num_sampled = int(state["num_sampled"])
        self._rng.bit_generator.state = state["rng"]

    def check_invariants(self) -> None:
        """Raises AssertionError if the buffer contradicts itself."""
        self._store.check_invariants()


class PrioritiesState(BufferState):
    """The part of a `PrioritizedReplayBuffer` that saves it, and says what it has."""

    _alpha: float
    _max_priority: float
    _tree: Any  # a `SumTree`

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns counts of transitions and the memory used.

        Args:
            debug: Also give `full_size_bytes`, `bytes_by_column`, `max_priority`, `mean_power` (priority ** alpha).
        """
        stats = super().stats(debug)
        if debug:
            mean = self._tree.total / max(1, len(self._store))
            stats.update(max_priority=self._max_priority, mean_power=mean)
        return stats

    def size_bytes(self) -> int:
        """Returns the bytes of memory in use."""
        return super().size_bytes() + int(self._tree.size_bytes)

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns everything needed to go on exactly, the draws included.

        Args:
            copy: False to hand out views of the stored arrays, valid until the next `add` or `update_priorities`.
        """
        powers = self._tree.values[: min(self._store.end, self.capacity)]
        state = super().get_state(copy=copy)
        state.update(powers=powers.copy() if copy else powers, alpha=self._alpha, max_priority=self._max_priority)
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a buffer of the same class, capacity and alpha; what was stored here is forgotten.

        Raises:
            CheckpointError: If it is of another kind, capacity or exponent.
        """
        if state.get("alpha", self._alpha) != self._alpha:
            raise CheckpointError(
                f"The saved replay buffer has prioritized_replay_alpha {state['alpha']}, this one {self._alpha}; set "
                f"it as it was when saving, or {GO_ON_WITHOUT}"
            )
        super().set_state(state)
        powers = np.zeros(self.capacity)
        powers[: len(state["powers"])] = state["powers"]
        self._tree.set(np.arange(self.capacity), powers)
        self._max_priority = float(state["max_priority"])

    def check_invariants(self) -> None:
        """Raises AssertionError if the buffer contradicts itself."""
        super().check_invariants()
        self._tree.check_invariants()
        alive = np.zeros(self.capacity, bool)
        alive[np.arange(self._store.oldest, self._store.end) % self.capacity] = True
        if not np.array_equal(alive, self._tree.values > 0):
            raise AssertionError("A transition has no priority, or an empty slot has one")


class PerPolicyState:
    """The part of a `LocalReplayBuffer` that saves it, and says what it has."""

    lockstep: bool
    num_added: int
    replay_buffers: dict[str, Any]
    _seed: int
    _joint_rng: np.random.Generator
    _add_batch_timer: TimerStat
    _replay_timer: TimerStat
    _update_priorities_timer: TimerStat
    _make_buffer: Any  # a method of the buffer

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns mean times of the latest calls in milliseconds, and the `stats` of each policy's buffer.

        Args:
            debug: Also give what the buffers' `stats(debug=True)` add.
        """
        stats: dict[str, Any] = {
            "add_batch_time_ms": round(1000 * self._add_batch_timer.mean, 3),
            "replay_time_ms": round(1000 * self._replay_timer.mean, 3),
            "update_priorities_time_ms": round(1000 * self._update_priorities_timer.mean, 3),
        }
        for policy_id, buffer in self.replay_buffers.items():
            stats[f"policy_{policy_id}"] = buffer.stats(debug=debug)
        return stats

    def get_host(self) -> str:
        """Returns the name of the machine this buffer is on."""
        return platform.node()

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns everything needed to go on exactly, the draws included.

        Args:
            copy: False to hand out views of the stored arrays, valid until the buffer changes: enough for a state that
                is written to disk at once, and no second buffer in memory.
        """
        buffers = {policy_id: buffer.get_state(copy=copy) for policy_id, buffer in self.replay_buffers.items()}
        state = {"num_added": self.num_added, "seed": self._seed, "buffers": buffers}
        return {**state, "joint_rng": self._joint_rng.bit_generator.state} if self.lockstep else state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a buffer with the same arguments; what was stored here is forgotten.

        A state that contradicts itself, as checkpoints of early versions can, leaves an empty buffer: a warning says
        so, and `replay` waits for learning_starts steps again.

        Raises:
            CheckpointError: If only one of the two is prioritised, or in lockstep, or capacity or alpha differ; then
                the buffer is as it was.
        """
        if ("joint_rng" in state) != self.lockstep:
            saved = "lockstep" if "joint_rng" in state else "independent"
            raise CheckpointError(
                f"The saved replay buffer has multiagent.replay_mode={saved!r}, this one has not; set it as it was "
                f"when saving, or {GO_ON_WITHOUT}"
            )
        seed, num_added = int(state["seed"]), int(state["num_added"])
        restored: dict[str, Any] = {}
        for policy_id, saved in state["buffers"].items():
            restored[policy_id] = self._make_buffer(policy_id, seed, restored, bool(saved.get("sequences")))
            restored[policy_id].set_state(saved)
        try:
            self._check_buffers(restored)
        except AssertionError as fault:
            _LOGGER.warning(
                "The saved replay buffer contradicts itself and is left empty (%s): transitions of early versions "
                "could overwrite each other where n_step was above 1. Learning waits until learning_starts steps are "
                "sampled again",
                fault,
            )
            restored, num_added = {}, 0
        if self.lockstep:
            self._joint_rng.bit_generator.state = state["joint_rng"]
        self._seed, self.num_added, self.replay_buffers = seed, num_added, restored

    def check_invariants(self) -> None:
        """Raises AssertionError if a buffer contradicts itself."""
        self._check_buffers(self.replay_buffers)

    def _check_buffers(self, buffers: Mapping[str, Any]) -> None:
        for buffer in buffers.values():
            buffer.check_invariants()
        if self.lockstep and len({buffer.numbers[1] for buffer in buffers.values()}) > 1:
            raise AssertionError("Policies in lockstep have different numbers of rows")
