"""A replay buffer of whole episodes, for policies that learn from sequences."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import BATCH_INDEXES, INFOS, SEQ_LENS, STATE_OUT_PREFIX, is_per_sequence
from rlframe.data.rows import as_seq_lens
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.replay.memory_budget import check_fits, memory_bytes
from rlframe.replay.per_policy import check_range
from rlframe.replay.transition_columns import GO_ON_WITHOUT
from rlframe.utils.errors import CheckpointError
from rlframe.utils.seeding import derive_seed, entropy_seed, make_rng
from rlframe.utils.timer import TimerStat

#: An episode: columns `[T, ...]`, and states at its start, `[1, ...]`.
Episode = dict[str, NDArray[Any]]


class EpisodeReplayBuffer:
    """The latest episodes of each policy, drawn whole, uniformly and with replacement.

    What counts as an episode is a sequence of the batches added: a whole episode with
    `batch_mode="complete_episodes"` and a `max_seq_len` that none exceeds; otherwise a piece of one, which begins with
    the recurrent state that the policy had there. `infos` and `state_out_i` are not stored.

    Args:
        capacity: Episodes kept of each policy; the oldest go first.
        learning_starts: Env steps that must have been added before `replay` gives batches.
        replay_batch_size: Steps per policy that `replay` gives at least: it draws episodes until it has as many.
        seed: Seed of the draws; None for a fresh one.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        capacity: int = 1000,
        learning_starts: int = 1000,
        replay_batch_size: int = 32,
        *,
        seed: int | None = None,
    ) -> None:
        check_range(1, capacity=capacity, replay_batch_size=replay_batch_size)
        check_range(0, learning_starts=learning_starts)
        self.capacity = capacity
        self.learning_starts = learning_starts
        self.replay_batch_size = replay_batch_size
        self.num_added = 0
        self.episodes: dict[str, _Ring] = {}
        self._seed = entropy_seed() if seed is None else seed
        self._add_batch_timer = TimerStat()
        self._replay_timer = TimerStat()

    # ---- what a plan calls ----------------------------------------------------------------------------------------

    def add_batch(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Stores every sequence, with its policy's.

        Raises:
            ValueError: If a batch is not cut into sequences, or its columns differ from those of the policy's first.
        """
        with self._add_batch_timer:
            batches = batch.policy_batches if isinstance(batch, MultiAgentBatch) else {DEFAULT_POLICY_ID: batch}
            for policy_id, rows in batches.items():
                if rows.count:
                    self._ring(policy_id).add(rows)
            self.num_added += batch.count

    def replay(self) -> SampleBatch | MultiAgentBatch | None:
        """Returns episodes of each policy, `replay_batch_size` steps or more; None before `learning_starts`.

        Where the default policy is the only one stored, the result is its SampleBatch; with others it is a
        MultiAgentBatch whose `count` is replay_batch_size.
        """
        if self.num_added < self.learning_starts or not self.episodes:
            return None
        with self._replay_timer:
            batches = {policy_id: ring.draw(self.replay_batch_size) for policy_id, ring in self.episodes.items()}
            return MultiAgentBatch.wrap_as_needed(batches, self.replay_batch_size)

    def _ring(self, policy_id: str) -> _Ring:
        ring = self.episodes.get(policy_id)
        if ring is None:
            ring = self.episodes[policy_id] = self._make_ring(policy_id, self._seed)
        return ring

    def _make_ring(self, policy_id: str, seed: int) -> _Ring:
        return _Ring(self.capacity, derive_seed(seed, "replay", policy_id))

    # ---- reports and state ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of episodes that can be drawn, of all policies."""
        return sum(len(ring.items) for ring in self.episodes.values())

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """Returns mean times of the latest calls in milliseconds, and counts for each policy.

        Args:
            debug: No effect; other buffers give more.
        """
        del debug
        stats: dict[str, Any] = {
            "add_batch_time_ms": round(1000 * self._add_batch_timer.mean, 3),
            "replay_time_ms": round(1000 * self._replay_timer.mean, 3),
        }
        for policy_id, ring in self.episodes.items():
            stats[f"policy_{policy_id}"] = ring.stats()
        return stats

    def get_host(self) -> str:
        """Returns the name of the machine this buffer is on."""
        return platform.node()

    def get_state(self, *, copy: bool = True) -> dict[str, Any]:
        """Returns everything needed to go on exactly, the draws included.

        Args:
            copy: No effect: episodes are joined for the state, which copies them.
        """
        del copy
        rings = {policy_id: ring.get_state() for policy_id, ring in self.episodes.items()}
        return {"kind": type(self).__name__, "num_added": self.num_added, "seed": self._seed, "policies": rings}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a buffer of the same capacity; what was stored here is forgotten.

        Raises:
            CheckpointError: If it is the state of another kind of buffer, or the capacity differs.
        """
        if state.get("kind") != type(self).__name__:
            raise CheckpointError(
                f"The saved replay buffer is a {state.get('kind', 'LocalReplayBuffer')}, this one a "
                f"{type(self).__name__}; set replay_buffer_config as it was when saving, or {GO_ON_WITHOUT}"
            )
        seed, num_added = int(state["seed"]), int(state["num_added"])
        restored: dict[str, _Ring] = {}
        for policy_id, saved in state["policies"].items():
            restored[policy_id] = self._make_ring(policy_id, seed)
            restored[policy_id].set_state(saved)
        self._seed, self.num_added, self.episodes = seed, num_added, restored

    def check_invariants(self) -> None:
        """Raises AssertionError if the buffer contradicts itself."""
        for ring in self.episodes.values():
            ring.check_invariants()


class _Ring:
    """The episodes of one policy: the newest takes the place of the oldest."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity = capacity
        self.items: list[Episode] = []
        self.place = 0
        self.added = 0
        self.drawn = 0
        self._rng = make_rng(seed, "episodes")
        self._layout: dict[str, tuple[Any, ...]] | None = None

    def add(self, batch: SampleBatch) -> None:
        """Stores the sequences of a batch."""
        if batch.get(SEQ_LENS) is None:
            raise ValueError(
                "The batch is not cut into sequences (it has no seq_lens), but this replay buffer stores episodes; "
                "give the policy a recurrent model, or use LocalReplayBuffer"
            )
        columns = {key: np.asarray(column) for key, column in batch.items() if _stored(key)}
        self._check_columns(columns)
        lens = as_seq_lens(batch[SEQ_LENS])
        ends = np.cumsum(lens)
        for number, (start, stop) in enumerate(zip((ends - lens).tolist(), ends.tolist(), strict=True)):
            self._put(
                {
                    # Copies: a view would keep the whole batch.
                    key: (column[number : number + 1] if is_per_sequence(key) else column[start:stop]).copy()
                    for key, column in columns.items()
                }
            )

    def _check_columns(self, columns: Episode) -> None:
        layout = {key: (column.dtype, column.shape[1:]) for key, column in columns.items()}
        if self._layout is None:
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

    def _put(self, episode: Episode) -> None:
        if not self.items:
            check_fits(self.capacity, sum(column.nbytes for column in episode.values()), memory_bytes())
        if len(self.items) < self.capacity:
            self.items.append(episode)
        else:
            self.items[self.place] = episode
        self.place = (self.place + 1) % self.capacity
        self.added += 1

    def draw(self, steps: int) -> SampleBatch:
        """Returns random episodes that have so many steps or more, one behind the other, with `seq_lens`."""
        chosen: list[Episode] = []
        lens: list[int] = []
        total = 0
        while total < steps:
            chosen.append(self.items[int(self._rng.integers(len(self.items)))])
            lens.append(_length(chosen[-1]))
            total += lens[-1]
        self.drawn += len(chosen)
        return SampleBatch.from_columns(_joined(chosen, lens))

    def stats(self) -> dict[str, Any]:
        """Returns counts of episodes, and the memory they take."""
        return {
            "added_count": self.added,
            "sampled_count": self.drawn,
            "num_entries": len(self.items),
            "num_steps": sum(map(_length, self.items)),
            "est_size_bytes": sum(column.nbytes for item in self.items for column in item.values()),
        }

    def get_state(self) -> dict[str, Any]:
        """Returns the episodes joined to one array per column, and the random stream."""
        return {
            "capacity": self.capacity,
            "place": self.place,
            "added": self.added,
            "drawn": self.drawn,
            "rng": self._rng.bit_generator.state,
            "columns": _joined(self.items, [_length(item) for item in self.items]) if self.items else {},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        if state["capacity"] != self.capacity:
            raise CheckpointError(
                f"The saved replay buffer has capacity {state['capacity']}, this one {self.capacity}; set it to "
                f"{state['capacity']}, or {GO_ON_WITHOUT}"
            )
        self.items, self._layout = [], None
        if state["columns"]:
            self.add(SampleBatch.from_columns(dict(state["columns"])))
        self.place, self.added, self.drawn = (int(state[key]) for key in ("place", "added", "drawn"))
        self._rng.bit_generator.state = state["rng"]

    def check_invariants(self) -> None:
        """Raises AssertionError if the ring contradicts itself."""
        if len(self.items) != min(self.added, self.capacity) or self.place != self.added % self.capacity:
            raise AssertionError(f"{len(self.items)} episodes, place {self.place} after {self.added} were added")
        for item in self.items:
            lengths = {len(column) for key, column in item.items() if not is_per_sequence(key)}
            if len(lengths) != 1 or lengths == {0}:
                raise AssertionError(f"An episode has columns of lengths {sorted(lengths)}")


def _stored(key: str) -> bool:
    return key not in (SEQ_LENS, INFOS, BATCH_INDEXES) and not key.startswith(STATE_OUT_PREFIX)


def _length(episode: Episode) -> int:
    return next(len(column) for key, column in episode.items() if not is_per_sequence(key))


def _joined(episodes: list[Episode], lens: list[int]) -> Episode:
    columns = {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}
    columns[SEQ_LENS] = np.array(lens, np.int32)
    return columns
