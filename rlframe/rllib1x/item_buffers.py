"""RLlib's replay buffers for programs that derive from them: each keeps the items that it was given, whole.

An item is a batch of any number of rows: an episode, a sequence, a row. `add(item, weight)` stores it as one,
`sample(n)` draws n of them and gives their rows one behind the other, so that rows of an item stay together and in
order. Programs' own `add_batch`, `add`, `sample`, `_encode_sample` and `replay` find the attributes that RLlib 1.9's
had. The buffers of built-in plans, `rlframe.replay`, keep rows in arrays, which takes a fraction of time and memory.
"""

from __future__ import annotations

import collections
import platform
import random
import weakref
from abc import ABCMeta
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlframe.data.columns import BATCH_INDEXES, SEQ_LENS, WEIGHTS
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.data.sequences import timeslice_along_seq_lens_with_overlap
from rlframe.replay import per_policy, prioritized_buffer, transition_buffers
from rlframe.replay.arguments import check_mode, check_range
from rlframe.replay.storable_columns import GO_ON_WITHOUT
from rlframe.rllib1x.item_state import pack_items, unpack_items
from rlframe.rllib1x.segment_tree import MinSegmentTree, SumSegmentTree
from rlframe.rllib1x.small import warn_replay_capacity
from rlframe.utils.deprecation import DEPRECATED_VALUE
from rlframe.utils.errors import CheckpointError
from rlframe.utils.seeding import make_rng
from rlframe.utils.timer import TimerStat
from rlframe.utils.window_stat import WindowStat

_ALL_POLICIES = "__all__"
_WINDOW = 1000

Item = SampleBatch | MultiAgentBatch


class ReplayBuffer(metaclass=ABCMeta):  # noqa: B024 - so that buffers of arrays can be registered as such
    """The latest items, drawn uniformly with replacement.

    Items that are replaced when capacity is reached are the oldest ones. They keep all columns, `infos` too.

    Args:
        capacity: Rows kept, of all items together; an item may reach beyond it.
        size: Old name of `capacity`.
    """

    def __init__(self, capacity: int = 10_000, size: int | None = None) -> None:
        self.capacity = int(capacity if size in (None, DEPRECATED_VALUE) else size)
        check_range(1, capacity=self.capacity)
        self._storage: list[Any] = []
        self._next_idx = 0
        self._hit_count = np.zeros(self.capacity)
        self._eviction_started = False
        self._num_timesteps_added = 0
        self._num_timesteps_added_wrap = 0
        self._num_timesteps_sampled = 0
        self._num_sampled = 0
        self._evicted_hit_stats = WindowStat("evicted_hit", _WINDOW)
        self._est_size_bytes = 0
        # Programs' own draws are of the `random` module, which the config's seed sets: so these follow from it, too.
        self._rng = make_rng(random.getrandbits(31), "replay")

    @property
    def _maxsize(self) -> int:
        """The capacity, as it was called up to RLlib 1.4."""
        return self.capacity

    def __len__(self) -> int:
        """Number of items."""
        return len(self._storage)

    def add(self, item: Item, weight: float | None = None) -> None:
        """Stores an item, in place of the oldest one where there is no more room.

        Args:
            item: Rows that stay together.
            weight: Not used here; the initial priority in a buffer with priorities.

        Raises:
            ValueError: If it has no rows, or a full buffer will not fit into memory.
        """
        del weight
        if item.count < 1:
            raise ValueError(f"Got an item without rows, {item}; wanted one row at least")
        if not self._num_timesteps_added:
            warn_replay_capacity(item=item, num_items=max(1, self.capacity // item.count))
        if self._next_idx < len(self._storage):
            self._est_size_bytes -= self._storage[self._next_idx].size_bytes()
            self._storage[self._next_idx] = item
        else:
            self._storage.append(item)
        self._est_size_bytes += item.size_bytes()
        self._num_timesteps_added += item.count
        self._num_timesteps_added_wrap += item.count
        if self._num_timesteps_added_wrap < self.capacity:
            self._next_idx += 1
        else:
            self._begin_again()
        if self._eviction_started and self._next_idx < self.capacity:
            self._evicted_hit_stats.push(self._hit_count[self._next_idx])
            self._hit_count[self._next_idx] = 0

    def _begin_again(self) -> None:
        """Makes the first item the next one to be replaced. Those behind the newest are older than all, and leave.

        RLlib kept them: where items grew longer, as episodes do, it replayed the first ones until training ended.
        """
        first, end = self._next_idx + 1, len(self._storage)
        self._est_size_bytes -= sum(item.size_bytes() for item in self._storage[first:])
        del self._storage[first:]
        self._forget(first, end)
        self._eviction_started, self._num_timesteps_added_wrap, self._next_idx = True, 0, 0

    def _forget(self, first: int, end: int) -> None:  # noqa: B027 - there is nothing to do without priorities
        """Hook: items `[first, end)` have been dropped."""

    def _encode_sample(self, idxes: Sequence[int]) -> Any:
        """Returns the rows of the items at these places, one item behind the other."""
        np.add.at(self._hit_count, np.asarray(idxes, np.int64), 1)
        batch = SampleBatch.concat_samples([self._storage[place] for place in idxes]).decompress_if_needed()
        self._num_timesteps_sampled += batch.count
        self._num_sampled += len(idxes)
        return batch

    def sample(self, num_items: int) -> Any:
        """Returns the rows of `num_items` items; of none an empty batch, also where there are none.

        Raises:
            ValueError: If there are no items, and some are asked for.
        """
        if num_items:
            self._check_not_empty()
        return self._encode_sample(self._rng.integers(0, len(self._storage), num_items).tolist())

    def _check_not_empty(self) -> None:
        if not self._storage:
            raise ValueError("The replay buffer is empty; add an item before sampling")

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns counts of rows and items, and the memory used; with `debug` how often replaced items were drawn."""
        stats = {
            "added_count": self._num_timesteps_added,
            "added_count_wrapped": self._num_timesteps_added_wrap,
            "eviction_started": self._eviction_started,
            "sampled_count": self._num_timesteps_sampled,
            "est_size_bytes": self._est_size_bytes,
            "num_entries": len(self._storage),
        }
        return {**stats, **self._evicted_hit_stats.stats()} if debug else stats

    def get_state(self) -> dict[str, Any]:
        """Returns everything needed to go on exactly, the draws included, but for draws of a program's own."""
        return {
            **self.stats(),
            "kind": "items",
            "capacity": self.capacity,
            "items": pack_items(self._storage),
            "next_idx": int(self._next_idx),
            "hit_count": self._hit_count[: len(self._storage)].copy(),
            "num_sampled": self._num_sampled,
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a buffer of the same capacity; what was stored here is forgotten.

        Raises:
            CheckpointError: If the capacity differs, or rows were stored, not items.
        """
        if state.get("kind") != "items":
            raise CheckpointError(
                f"The saved replay buffer is a {state.get('kind')} of rows, this one, a {type(self).__name__}, keeps "
                f"items; {GO_ON_WITHOUT}"
            )
        if state["capacity"] != self.capacity:
            raise CheckpointError(
                f"The saved replay buffer has capacity {state['capacity']}, this one {self.capacity}; set it to "
                f"{state['capacity']}, or {GO_ON_WITHOUT}"
            )
        self._storage = unpack_items(state["items"])
        self._next_idx = state["next_idx"]
        self._hit_count[:] = 0
        self._hit_count[: len(self._storage)] = state["hit_count"]
        self._eviction_started = state["eviction_started"]
        self._num_timesteps_added = state["added_count"]
        self._num_timesteps_added_wrap = state["added_count_wrapped"]
        self._num_timesteps_sampled = state["sampled_count"]
        self._num_sampled = state["num_sampled"]
        self._est_size_bytes = state["est_size_bytes"]
        self._rng.bit_generator.state = state["rng"]


class PrioritizedReplayBuffer(ReplayBuffer):
    """The latest items, drawn in proportion to priority ** alpha.

    Args:
        capacity: Rows kept, of all items together; an item may reach beyond it.
        alpha: How much priorities count, above 0.
        size: Old name of `capacity`.
    """

    def __init__(self, capacity: int = 10_000, alpha: float = 1.0, size: int | None = None) -> None:
        super().__init__(capacity, size)
        if not alpha > 0:
            raise ValueError(f"alpha must be above 0, got {alpha}")
        self._alpha = alpha
        places = 1 << (self.capacity - 1).bit_length()
        self._it_sum = SumSegmentTree(places)
        self._it_min = MinSegmentTree(places)
        self._max_priority = 1.0
        self._prio_change_stats = WindowStat("reprio", _WINDOW)

    def add(self, item: Item, weight: float | None = None) -> None:
        """Stores an item, in place of the oldest one where there is no more room.

        Args:
            item: Rows that stay together.
            weight: Its priority, above 0; None for the largest so far.

        Raises:
            ValueError: If it has no rows, or a full buffer will not fit into memory.
        """
        place = self._next_idx
        super().add(item, weight)
        self._set_power(place, (self._max_priority if weight is None else weight) ** self._alpha)

    def _set_power(self, place: int, power: float) -> None:
        self._it_sum[place] = power
        self._it_min[place] = power

    def _forget(self, first: int, end: int) -> None:
        for place in range(first, end):
            self._it_sum[place], self._it_min[place] = 0.0, float("inf")

    def _sample_proportional(self, num_items: int) -> list[int]:
        """Returns the places of items that were drawn by priority."""
        total, last = self._it_sum.sum(0, len(self._storage)), len(self._storage) - 1
        return [min(last, self._it_sum.find_prefixsum_idx(self._rng.random() * total)) for _ in range(num_items)]

    def sample(self, num_items: int, beta: float = 1.0) -> Any:
        """Returns the rows of `num_items` items, with two more columns that all rows of an item have the same value in.

        `weights` correct the bias, relative to the item that is drawn least of all; `batch_indexes` are the items'
        places, for `update_priorities`. Items of several policies have neither.

        Args:
            num_items: Items to draw.
            beta: How much the bias is corrected: 0 not at all, 1 fully.

        Raises:
            ValueError: If there are no items, or beta is below 0.
        """
        check_range(0, beta=beta)
        self._check_not_empty()
        places = self._sample_proportional(num_items)
        batch = self._encode_sample(places)
        if isinstance(batch, SampleBatch):
            sizes = [_num_rows(self._storage[place]) for place in places]
            powers = np.array([self._it_sum[place] for place in places])
            weights = (self._it_min.min() / powers) ** beta
            batch[WEIGHTS] = np.repeat(weights.astype(np.float32), sizes)
            batch[BATCH_INDEXES] = np.repeat(np.array(places, np.int64), sizes)
        return batch

    def update_priorities(self, idxes: ArrayLike, priorities: ArrayLike) -> None:
        """Gives items new priorities.

        Args:
            idxes: `batch_indexes` of a sampled batch, int `[B]`; where one stands several times, the last counts.
            priorities: Above 0, float `[B]`.

        Raises:
            ValueError: If a priority is not above 0, an index has no item, or lengths differ.
        """
        places, values = np.asarray(idxes, np.int64), np.asarray(priorities, np.float64)
        if places.shape != values.shape or places.ndim != 1:
            raise ValueError(f"Got {places.shape} indexes and {values.shape} priorities; wanted one [B] of each")
        for place, priority in zip(places.tolist(), values.tolist(), strict=True):
            if not 0 < priority < float("inf"):
                raise ValueError(f"Priorities must be finite and above 0; got {priority}")
            if not 0 <= place < len(self._storage):
                raise ValueError(f"Indexes must be those of a sampled batch, below {len(self)}; got {place}")
            power = priority**self._alpha
            self._prio_change_stats.push(power - self._it_sum[place])
            self._set_power(place, power)
            self._max_priority = max(self._max_priority, priority)

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns counts of rows and items, and the memory used; with `debug` also how priorities changed."""
        stats = super().stats(debug)
        return {**stats, **self._prio_change_stats.stats()} if debug else stats

    def get_state(self) -> dict[str, Any]:
        """Returns everything needed to go on exactly, the draws included, but for draws of a program's own."""
        powers = np.array([self._it_sum[place] for place in range(len(self._storage))], np.float64)
        return {**super().get_state(), "powers": powers, "max_priority": float(self._max_priority)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a buffer of the same capacity; what was stored here is forgotten.

        Raises:
            CheckpointError: If the capacity differs, it has no priorities, or rows were stored, not items.
        """
        if state.get("kind") == "items" and "powers" not in state:
            raise CheckpointError(f"The saved replay buffer has no priorities, this one has; {GO_ON_WITHOUT}")
        super().set_state(state)
        self._forget(0, self._it_sum.capacity)
        for place, power in enumerate(np.asarray(state["powers"]).tolist()):
            self._set_power(place, power)
        self._max_priority = state["max_priority"]


class LocalReplayBuffer(metaclass=ABCMeta):  # noqa: B024 - as above
    """One buffer of items for each policy: what programs derive from. Called itself, it is the one of arrays.

    Args:
        num_shards: Number of buffers that share capacity and learning_starts; this is one of them.
        learning_starts: Steps that must have been added (to all shards) before `replay` gives batches.
        capacity: Rows kept per policy (in all shards); the oldest items go first.
        replay_batch_size: Items per policy that `replay` gives. Of sequences, rows: divided by their length.
        prioritized_replay_alpha: How much priorities count, above 0.
        prioritized_replay_beta: How much their bias is corrected: 0 not at all, 1 fully.
        prioritized_replay_eps: Added to every absolute TD error.
        replay_mode: "independent" or "lockstep": an item has the rows of all policies.
        replay_sequence_length: Rows of an item, as `add_batch` cuts them; above 1, batches of policies with memory are
            cut where their sequences are.
        replay_burn_in: Rows before it that a sequence gets, too.
        replay_zero_init_states: Whether sequences begin with states of zeros, not with those stored.
        buffer_size: Old name of `capacity`.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Returns a buffer of arrays, unless a class derives from this one."""
        return per_policy.LocalReplayBuffer(*args, **kwargs) if cls is LocalReplayBuffer else super().__new__(cls)

    def __init__(
        self,
        num_shards: int = 1,
        learning_starts: int = 1000,
        capacity: int = 10_000,
        replay_batch_size: int = 1,
        prioritized_replay_alpha: float = 0.6,
        prioritized_replay_beta: float = 0.4,
        prioritized_replay_eps: float = 1e-6,
        replay_mode: str = "independent",
        replay_sequence_length: int = 1,
        replay_burn_in: int = 0,
        replay_zero_init_states: bool = True,
        buffer_size: int | None = None,
    ) -> None:
        check_mode(replay_mode, 1 if replay_mode == "lockstep" else replay_sequence_length, replay_burn_in)
        capacity = capacity if buffer_size in (None, DEPRECATED_VALUE) else int(buffer_size)
        check_range(1, num_shards=num_shards, replay_batch_size=replay_batch_size)
        check_range(num_shards, capacity=capacity)
        self.replay_starts = learning_starts // num_shards
        self.capacity = self.buffer_size = capacity // num_shards
        self.replay_batch_size = replay_batch_size
        if replay_sequence_length > 1:
            self.replay_batch_size = max(1, replay_batch_size // replay_sequence_length)
        self.prioritized_replay_beta = prioritized_replay_beta
        self.prioritized_replay_eps = prioritized_replay_eps
        self.replay_mode = replay_mode
        self.replay_sequence_length = replay_sequence_length
        self.replay_burn_in = replay_burn_in
        self.replay_zero_init_states = replay_zero_init_states
        self.replay_buffers: Any = collections.defaultdict(
            lambda: PrioritizedReplayBuffer(self.capacity, alpha=prioritized_replay_alpha)
        )
        self.add_batch_timer = TimerStat()
        self.replay_timer = TimerStat()
        self.update_priorities_timer = TimerStat()
        self.num_added = 0
        self._fake_batch: Any = None
        per_policy.LocalReplayBuffer._newest = weakref.ref(self)  # type: ignore[arg-type]

    get_instance_for_testing = staticmethod(per_policy.LocalReplayBuffer.get_instance_for_testing)

    def get_host(self) -> str:
        """Returns the name of the machine this buffer is on."""
        return platform.node()

    def add_batch(self, batch: Item) -> None:
        """Stores a batch's rows: each as an item, or cut into sequences, or (in lockstep) with those of all policies.

        A column `weights`, where rows have it, gives the item's priority: its mean.
        """
        batch = batch.copy()
        parts = MultiAgentBatch({DEFAULT_POLICY_ID: batch}, batch.count) if isinstance(batch, SampleBatch) else batch
        with self.add_batch_timer:
            if self.replay_mode == "lockstep":
                for joint in parts.timeslices(self.replay_sequence_length):
                    self.replay_buffers[_ALL_POLICIES].add(joint, weight=None)
            else:
                for policy_id, rows in parts.policy_batches.items():
                    for item in self._items_of(rows):
                        given = item.get(WEIGHTS)
                        weight = None if given is None or not len(given) else float(np.mean(given))
                        self.replay_buffers[policy_id].add(item, weight=weight)
        self.num_added += parts.count

    def _items_of(self, rows: SampleBatch) -> Sequence[SampleBatch]:
        if self.replay_sequence_length == 1 or SEQ_LENS not in rows:
            return rows.timeslices(self.replay_sequence_length)
        return timeslice_along_seq_lens_with_overlap(
            rows, pre_overlap=self.replay_burn_in, zero_init_states=self.replay_zero_init_states
        )

    def replay(self) -> Any:
        """Returns the rows of replay_batch_size items of each policy; None before learning_starts steps were added."""
        if self._fake_batch:
            fake = SampleBatch(self._fake_batch)
            return MultiAgentBatch({DEFAULT_POLICY_ID: fake}, fake.count)
        if self.num_added < self.replay_starts or not self.replay_buffers:
            return None
        with self.replay_timer:
            count, beta = self.replay_batch_size, self.prioritized_replay_beta
            if self.replay_mode == "lockstep":
                return self.replay_buffers[_ALL_POLICIES].sample(count, beta=beta)
            samples = {policy_id: buffer.sample(count, beta=beta) for policy_id, buffer in self.replay_buffers.items()}
            return MultiAgentBatch(samples, count)

    def update_priorities(self, prio_dict: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> None:
        """Gives items the priority |TD error| + prioritized_replay_eps.

        Args:
            prio_dict: `{policy id: (batch_indexes of a replayed batch, TD errors)}`, int `[B]` and float `[B]`.
        """
        with self.update_priorities_timer:
            for policy_id, (places, td_errors) in prio_dict.items():
                priorities = np.abs(np.asarray(td_errors, np.float64)) + self.prioritized_replay_eps
                self.replay_buffers[policy_id].update_priorities(places, priorities)

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns mean times of the latest calls in milliseconds, and the `stats` of each policy's buffer."""
        stats: dict[str, Any] = {
            "add_batch_time_ms": round(1000 * self.add_batch_timer.mean, 3),
            "replay_time_ms": round(1000 * self.replay_timer.mean, 3),
            "update_priorities_time_ms": round(1000 * self.update_priorities_timer.mean, 3),
        }
        return {**stats, **{f"policy_{pid}": each.stats(debug=debug) for pid, each in self.replay_buffers.items()}}

    def get_state(self) -> dict[str, Any]:
        """Returns the count of steps and the state of each policy's buffer.

        Raises:
            ValueError: If the buffers are of a class that cannot be saved.
        """
        return {"num_added": self.num_added, "replay_buffers": {pid: b.get_state() for pid, b in self._savable()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a buffer with the same arguments; what was stored here is forgotten.

        Raises:
            CheckpointError: If capacities differ, or rows were stored, not items.
        """
        if "replay_buffers" not in state:
            raise CheckpointError(
                f"The saved replay buffer holds rows, this one, a {type(self).__name__}, items; {GO_ON_WITHOUT}"
            )
        for policy_id, saved in state["replay_buffers"].items():
            self.replay_buffers[policy_id].set_state(saved)
        self.num_added = state["num_added"]

    def _savable(self) -> Iterator[tuple[str, Any]]:
        for policy_id, buffer in self.replay_buffers.items():
            if not hasattr(buffer, "get_state"):
                raise ValueError(
                    f"{type(self).__name__}.replay_buffers[{policy_id!r}] is a {type(buffer).__name__}, which has no "
                    "get_state() and set_state(); write them, or leave replay buffers out of checkpoints with "
                    "store_buffer_in_checkpoints: False, which was RLlib's default"
                )
            yield policy_id, buffer


ReplayBuffer.register(transition_buffers.ReplayBuffer)
PrioritizedReplayBuffer.register(prioritized_buffer.PrioritizedReplayBuffer)
LocalReplayBuffer.register(per_policy.LocalReplayBuffer)


def _num_rows(item: SampleBatch) -> int:
    """Returns the rows of an item's columns, those of padding included."""
    return (item.max_seq_len or 0) * len(item[SEQ_LENS]) if item.zero_padded else item.count
