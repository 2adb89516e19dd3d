"""A replay buffer of whole episodes, for policies that learn from sequences."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.replay.arguments import check_range
from rlframe.replay.sequence_store import SequenceStore
from rlframe.replay.storable_columns import GO_ON_WITHOUT
from rlframe.utils.errors import CheckpointError
from rlframe.utils.seeding import derive_seed, entropy_seed, make_rng
from rlframe.utils.timer import TimerStat


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
        self.episodes: dict[str, _Episodes] = {}
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
                    self._episodes_of(policy_id).store.add(rows)
            self.num_added += batch.count

    def replay(self) -> SampleBatch | MultiAgentBatch | None:
        """Returns episodes of each policy, `replay_batch_size` steps or more; None before `learning_starts`.

        Where the default policy is the only one stored, the result is its SampleBatch; with others it is a
        MultiAgentBatch whose `count` is replay_batch_size.
        """
        if self.num_added < self.learning_starts or not self.episodes:
            return None
        with self._replay_timer:
            batches = {policy_id: kept.draw(self.replay_batch_size) for policy_id, kept in self.episodes.items()}
            return MultiAgentBatch.wrap_as_needed(batches, self.replay_batch_size)

    def _episodes_of(self, policy_id: str) -> _Episodes:
        kept = self.episodes.get(policy_id)
        if kept is None:
            kept = self.episodes[policy_id] = self._make_episodes(policy_id, self._seed)
        return kept

    def _make_episodes(self, policy_id: str, seed: int) -> _Episodes:
        return _Episodes(self.capacity, derive_seed(seed, "replay", policy_id))

    # ---- reports and state ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of episodes that can be drawn, of all policies."""
        return sum(len(kept.store) for kept in self.episodes.values())

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
        for policy_id, kept in self.episodes.items():
            stats[f"policy_{policy_id}"] = kept.stats()
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
        rings = {policy_id: kept.get_state() for policy_id, kept in self.episodes.items()}
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
        restored: dict[str, _Episodes] = {}
        for policy_id, saved in state["policies"].items():
            restored[policy_id] = self._make_episodes(policy_id, seed)
            restored[policy_id].set_state(saved)
        self._seed, self.num_added, self.episodes = seed, num_added, restored

    def check_invariants(self) -> None:
        """Raises AssertionError if the buffer contradicts itself."""
        for kept in self.episodes.values():
            kept.store.check_invariants()


class _Episodes:
    """The episodes of one policy: the newest takes the place of the oldest."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.store = SequenceStore(capacity)
        self.drawn = 0
        self._rng = make_rng(seed, "episodes")

    def draw(self, steps: int) -> SampleBatch:
        """Returns random episodes that have so many steps or more, one behind the other, with `seq_lens`."""
        chosen: list[int] = []
        total = 0
        while total < steps:
            chosen.append(int(self._rng.integers(len(self.store))))
            total += self.store.lengths(np.array(chosen[-1:]))[0]
        self.drawn += len(chosen)
        return SampleBatch.from_columns(self.store.gather(np.array(chosen)))

    def stats(self) -> dict[str, Any]:
        """Returns counts of episodes, and the memory they take."""
        return {
            "added_count": self.store.end,
            "sampled_count": self.drawn,
            "num_entries": len(self.store),
            "num_steps": self.store.num_steps,
            "est_size_bytes": self.store.size_bytes(),
        }

    def get_state(self) -> dict[str, Any]:
        """Returns the episodes, and the random stream."""
        return {"store": self.store.get_state(), "drawn": self.drawn, "rng": self._rng.bit_generator.state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.store.set_state(state["store"])
        self.drawn = int(state["drawn"])
        self._rng.bit_generator.state = state["rng"]
