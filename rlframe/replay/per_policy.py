"""The buffer that execution plans use: one for each policy, or rows of all policies in lockstep."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from rlframe.data.columns import SEQ_LENS, STATE_IN_PREFIX, WEIGHTS
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.replay.arguments import check_mode, check_range
from rlframe.replay.buffer_state import PerPolicyState
from rlframe.replay.lockstep import alive_in_all, joint_steps
from rlframe.replay.memory_budget import memory_bytes
from rlframe.replay.prioritized_buffer import PrioritizedReplayBuffer
from rlframe.replay.sequence_store import SequenceStore
from rlframe.replay.transition_buffers import ReplayBuffer
from rlframe.utils.deprecation import DEPRECATED_VALUE
from rlframe.utils.seeding import derive_seed, entropy_seed, make_rng
from rlframe.utils.timer import TimerStat

__all__ = ["LocalReplayBuffer", "PrioritizedReplayBuffer", "ReplayBuffer"]


class LocalReplayBuffer(PerPolicyState):
    """One replay buffer per policy, filled from and replayed to an execution plan in the same process.

    Each policy has its own buffer of `capacity // num_shards` transitions; with `replay_sequence_length` above 1, of as
    many sequences where a policy has memory, so that its batches come cut into such. See `SequenceStore`.

    Args:
        num_shards: Number of buffers that share capacity and learning_starts; this is one of them.
        learning_starts: Steps that must have been added (to all shards) before `replay` gives batches.
        capacity: Transitions kept per policy (in all shards); the oldest go first.
        replay_batch_size: Transitions per policy that `replay` gives.
        prioritized_replay_alpha: How much priorities count: 0 not at all, 1 fully.
        prioritized_replay_beta: How much their bias is corrected: 0 not at all, 1 fully.
        prioritized_replay_eps: Added to every absolute TD error, so that no transition is never drawn again.
        replay_mode: "independent": each policy's transitions are drawn on their own. "lockstep": row i of every policy
            is of the same step of the same episode, so each policy has one agent, and all of them act at each step;
            draws are uniform then.
        replay_sequence_length: Rows of a sequence, those of burn-in included; `replay` gives
            `replay_batch_size // replay_sequence_length` of them, 1 at least. 1 stores transitions alone.
        replay_burn_in: Rows at the beginning of sequences that are not learned from.
        replay_zero_init_states: Whether replayed sequences begin with states of zeros, not with those stored.
        buffer_size: Old name of `capacity`; None, or RLlib's -1, where it is not used.
        final_prioritized_replay_beta: Beta at the end of annealing; None for a constant one.
        prioritized_replay_beta_annealing_timesteps: Steps added until then; None for a constant beta.
        prioritized: False for uniform buffers, at no cost for priorities.
        seed: Seed of the draws; None for a fresh one.

    Raises:
        ValueError: If an argument is out of range or refused.
    """

    _newest: weakref.ref[LocalReplayBuffer] | None = None

    def __init__(  # noqa: PLR0913, PLR0917 - the signature of RLlib 1.x
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
        *,
        final_prioritized_replay_beta: float | None = None,
        prioritized_replay_beta_annealing_timesteps: int | None = None,
        prioritized: bool = True,
        seed: int | None = None,
    ) -> None:
        check_mode(replay_mode, replay_sequence_length, replay_burn_in)
        capacity = capacity if buffer_size in (None, DEPRECATED_VALUE) else int(buffer_size)
        check_range(1, num_shards=num_shards, replay_batch_size=replay_batch_size)
        check_range(num_shards, capacity=capacity)
        check_range(
            0,
            learning_starts=learning_starts,
            prioritized_replay_alpha=prioritized_replay_alpha,
            prioritized_replay_beta=prioritized_replay_beta,
            final_prioritized_replay_beta=final_prioritized_replay_beta,
        )
        if prioritized and not prioritized_replay_eps > 0:
            raise ValueError(f"prioritized_replay_eps must be above 0, got {prioritized_replay_eps}")
        self.sequence_length, self.burn_in = replay_sequence_length, replay_burn_in
        self.zero_init_states = replay_zero_init_states
        self.capacity = capacity // num_shards
        self.learning_starts = learning_starts // num_shards
        self.replay_batch_size = replay_batch_size
        self._num_shards = num_shards
        self.lockstep = replay_mode == "lockstep"
        self.prioritized = prioritized and not self.lockstep
        self.num_added = 0
        self.replay_buffers: dict[str, ReplayBuffer] = {}
        self._alpha = prioritized_replay_alpha
        self._eps = prioritized_replay_eps
        self._beta = prioritized_replay_beta
        self._final_beta = (
            prioritized_replay_beta if final_prioritized_replay_beta is None else final_prioritized_replay_beta
        )
        self._annealing_steps = prioritized_replay_beta_annealing_timesteps
        self._seed = entropy_seed() if seed is None else seed
        self._joint_rng = make_rng(self._seed, "joint replay")
        self._add_batch_timer = TimerStat()
        LocalReplayBuffer._newest = weakref.ref(self)
        self._replay_timer = TimerStat()
        self._update_priorities_timer = TimerStat()

    @staticmethod
    def get_instance_for_testing() -> LocalReplayBuffer | None:
        """Returns the buffer of this process that was made last, None if there is none any more."""
        newest = LocalReplayBuffer._newest
        return None if newest is None else newest()

    # ---- what a plan calls ----------------------------------------------------------------------------------------

    def add_batch(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Stores every row, in the buffer of its policy (made at its first batch).

        A column `weights`, where rows have it, gives their initial priorities (its absolute value plus
        prioritized_replay_eps); without it, they get the largest priority so far.

        Raises:
            ValueError: If columns differ from those of the policy's first batch, or will not fit into memory; in
                lockstep, if policies have no row, or several, where others have one.
        """
        with self._add_batch_timer:
            batches = batch.policy_batches if isinstance(batch, MultiAgentBatch) else {DEFAULT_POLICY_ID: batch}
            if self.lockstep:
                batches = joint_steps(batches, self.replay_buffers)
            for policy_id, rows in batches.items():
                if rows.count:
                    self._buffer_for(policy_id, rows).add(rows, self._initial_priorities(rows))
            self.num_added += batch.count

    def add(self, batch: SampleBatch | MultiAgentBatch) -> None:
        """Does what `add_batch` does; its name since Ray 1.13."""
        self.add_batch(batch)

    def sample(self, num_items: int) -> MultiAgentBatch | None:
        """Returns what `replay()` does, of `num_items` transitions of each policy instead of replay_batch_size."""
        before, self.replay_batch_size = self.replay_batch_size, int(num_items)
        try:
            batch = self.replay()
        finally:
            self.replay_batch_size = before
        return None if batch is None else batch.as_multi_agent()

    def replay(self) -> SampleBatch | MultiAgentBatch | None:
        """Returns replay_batch_size transitions of each policy, or None before learning_starts steps were added.

        Of policies with memory these are sequences, one behind the other, with their lengths as `seq_lens`. Where the
        default policy is the only one stored, the result is its SampleBatch; with others it is a MultiAgentBatch whose
        `count` is replay_batch_size.
        """
        if self.num_added < self.learning_starts or not self.replay_buffers:
            return None
        with self._replay_timer:
            if self.lockstep:
                return MultiAgentBatch.wrap_as_needed(self._draw_joint_steps(), self.replay_batch_size)
            if len(self.replay_buffers) == 1 and DEFAULT_POLICY_ID in self.replay_buffers:
                return self._draw(self.replay_buffers[DEFAULT_POLICY_ID])
            batches = {policy_id: self._draw(buffer) for policy_id, buffer in self.replay_buffers.items()}
            return MultiAgentBatch(batches, self.replay_batch_size)

    def update_priorities(self, prio_dict: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> None:
        """Gives transitions the priority |TD error| + prioritized_replay_eps. Uniform buffers pass over it.

        Args:
            prio_dict: `{policy id: (batch_indexes of a replayed batch, TD errors)}`, int `[B]` and float `[B]`.

        Raises:
            ValueError: If a policy has no buffer, or a TD error is not finite.
        """
        with self._update_priorities_timer:
            for policy_id, (indexes, td_errors) in prio_dict.items():
                buffer = self.replay_buffers.get(policy_id)
                if buffer is None:
                    raise ValueError(
                        f"No replay buffer of policy {policy_id!r}; there are {sorted(self.replay_buffers)}"
                    )
                if isinstance(buffer, PrioritizedReplayBuffer):
                    buffer.update_priorities(indexes, self._priorities(td_errors))

    @property
    def beta(self) -> float:
        """How much the bias of priorities is corrected now: annealed linearly over the steps added, if asked for."""
        if not self._annealing_steps:
            return self._beta
        return self._beta + (self._final_beta - self._beta) * min(1.0, self.num_added / self._annealing_steps)

    def _buffer_for(self, policy_id: str, rows: SampleBatch) -> ReplayBuffer:
        buffer = self.replay_buffers.get(policy_id)
        if buffer is None:
            sequences = self.sequence_length > 1 and SEQ_LENS in rows
            buffer = self._make_buffer(policy_id, self._seed, self.replay_buffers, sequences)
            self.replay_buffers[policy_id] = buffer
        return buffer

    def _make_buffer(
        self, policy_id: str, seed: int, others: Mapping[str, ReplayBuffer], sequences: bool
    ) -> ReplayBuffer:
        available = memory_bytes()
        if available is not None:  # what other shards, and the buffers of other policies, will grow to is spoken for
            available = available // self._num_shards - sum(buffer.full_size_bytes for buffer in others.values())
        seed = derive_seed(seed, "replay", policy_id)
        store = SequenceStore(self.capacity, self.sequence_length, self.burn_in, available) if sequences else None
        if self.prioritized:
            return PrioritizedReplayBuffer(self.capacity, self._alpha, seed, memory_limit_bytes=available, store=store)
        return ReplayBuffer(self.capacity, seed, memory_limit_bytes=available, store=store)

    def _draw(self, buffer: ReplayBuffer) -> SampleBatch:
        count = self.replay_batch_size
        if buffer.stores_sequences:
            count = max(1, count // self.sequence_length)
        drawn = buffer.sample(count, self.beta) if isinstance(buffer, PrioritizedReplayBuffer) else buffer.sample(count)
        if buffer.stores_sequences and self.zero_init_states:
            drawn.update({key: np.zeros_like(drawn[key]) for key in drawn if key.startswith(STATE_IN_PREFIX)})
        return drawn

    def _draw_joint_steps(self) -> dict[str, SampleBatch]:
        """Returns the same steps of all policies, drawn uniformly, with replacement."""
        first, end = alive_in_all(self.replay_buffers)
        numbers = self._joint_rng.integers(first, end, self.replay_batch_size)
        return {policy_id: buffer.take(numbers) for policy_id, buffer in self.replay_buffers.items()}

    def _initial_priorities(self, rows: SampleBatch) -> ArrayLike | None:
        given = self.prioritized and WEIGHTS in rows and SEQ_LENS not in rows
        return self._priorities(rows[WEIGHTS]) if given else None

    def _priorities(self, td_errors: ArrayLike) -> ArrayLike:
        return np.abs(np.asarray(td_errors, np.float64)) + self._eps

    def __len__(self) -> int:
        """Number of transitions that can be drawn, of all policies."""
        return sum(len(buffer) for buffer in self.replay_buffers.values())
