"""Replay buffers after any sequence of operations: nothing lost, nothing mixed up, nothing overwritten too early."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.replay.per_policy import LocalReplayBuffer, PrioritizedReplayBuffer
from rlframe.replay.prioritized_buffer import SumTree
from tests.helpers.transitions import check_transitions, fragment

QUICK = settings(max_examples=40, deadline=None)


class Episodes:
    """Environments that step at their own pace; some lose rows, some end."""

    def __init__(self, alphabet: int | None = None) -> None:
        self.alphabet = alphabet
        self.next_t: dict[int, tuple[int, int]] = {}
        self.count = 0

    def step(self, env: int, rows: int, n: int, ends: bool, skips: int) -> SampleBatch:
        if env not in self.next_t:
            self.next_t[env] = (self.count, 0)
            self.count += 1
        episode, t = self.next_t[env]
        batch = fragment(episode, t + skips, rows, n=n, ends=ends, alphabet=self.alphabet)
        self.next_t[env] = (episode, t + skips + rows)
        if ends:
            del self.next_t[env]
        return batch


steps = st.tuples(
    st.integers(0, 3),  # environment
    st.integers(1, 9),  # rows
    st.integers(1, 4),  # n of n-step
    st.booleans(),  # ends
    st.sampled_from([0, 0, 0, 1]),  # steps that never arrive
)
adds = st.lists(steps, min_size=1, max_size=3)
operations = st.lists(st.tuples(adds, st.sampled_from(["", "strip", "update", "restore"])), min_size=1, max_size=25)


def apply(buffer: PrioritizedReplayBuffer, what: str, rng: np.random.Generator) -> PrioritizedReplayBuffer:
    if what == "update":
        batch = buffer.sample(8, 0.5)
        buffer.update_priorities(batch["batch_indexes"], 10 ** rng.uniform(-6, 6, 8))
    if what == "restore":
        twin = PrioritizedReplayBuffer(buffer.capacity, 0.6, seed=5)
        twin.set_state(buffer.get_state())
        return twin
    return buffer


@QUICK
@given(
    operations=operations,
    capacity=st.integers(1, 40),
    chunk=st.sampled_from([1, 3, 4096]),
    rows=st.integers(4, 90),
    alphabet=st.sampled_from([None, 1, 2, 5]),
)
def test_any_operations_leave_every_transition_as_it_was_stored(
    operations: list[Any], capacity: int, chunk: int, rows: int, alphabet: int | None
) -> None:
    episodes, rng = Episodes(alphabet), np.random.default_rng(0)
    buffer = PrioritizedReplayBuffer(capacity, 0.6, seed=0)
    expected: list[tuple[int, int, int]] = []
    for adds, what in operations:
        batch = SampleBatch.concat_samples([episodes.step(*step) for step in adds])
        if what == "strip" and len(adds) > 1:  # interleaved rows of several trajectories
            batch = batch.take(np.argsort(batch["t"], kind="stable"))
        buffer.add(batch)
        store = buffer._store._observations
        assert store is not None
        store.max_rows = min(store.max_rows, max(rows, store.rows_touched))
        store._chunk = min(store._chunk, chunk, store.max_rows // 2)
        expected += zip(batch["eps_id"].tolist(), batch["t"].tolist(), batch["n_steps"].tolist(), strict=True)
        buffer = apply(buffer, what, rng)
        buffer.check_invariants()
        alive = SampleBatch(buffer._store.gather(np.arange(buffer._store.oldest, buffer._store.end) % capacity))
        check_transitions(alive, alphabet)
        got = list(zip(alive["eps_id"].tolist(), alive["t"].tolist(), alive["n_steps"].tolist(), strict=True))
        assert 1 <= len(got) <= min(capacity, len(expected))
        assert got == expected[len(expected) - len(got) :]
        check_transitions(buffer.sample(8), alphabet)


@QUICK
@given(
    fan_out=st.sampled_from([2, 4, 16]),
    max_top=st.integers(1, 8),
    capacity=st.integers(1, 200),
    writes=st.lists(st.lists(st.tuples(st.integers(0, 199), st.floats(0, 1e9)), min_size=1, max_size=30), max_size=20),
)
def test_any_writes_leave_a_tree_that_draws_only_what_has_a_value(
    fan_out: int, max_top: int, capacity: int, writes: list[list[tuple[int, float]]]
) -> None:
    tree = SumTree(capacity, fan_out=fan_out, max_top=max_top)
    wanted = np.zeros(capacity)
    for write in writes:
        indexes = np.array([index % capacity for index, _ in write])
        values = [value for _, value in write]
        tree.set(indexes, values)
        for index, value in zip(indexes, values, strict=True):
            wanted[index] = value
        tree.check_invariants()
        np.testing.assert_array_equal(tree.values, wanted)
        np.testing.assert_allclose(tree.total, wanted.sum(), rtol=1e-12)
        if tree.total > 0:
            drawn = tree.sample(16, np.random.default_rng(0))
            assert (wanted[drawn] > 0).all()
            assert (np.diff(drawn) >= 0).all()


joint_adds = st.tuples(st.integers(0, 2), st.integers(1, 9), st.booleans(), st.integers(0, 2**16))


@QUICK
@given(adds=st.lists(joint_adds, min_size=1, max_size=20), capacity=st.integers(1, 40), policies=st.integers(1, 4))
def test_lockstep_draws_are_of_the_same_steps_of_all_policies(adds: list[Any], capacity: int, policies: int) -> None:
    episodes = Episodes()
    buffer = LocalReplayBuffer(
        capacity=capacity, learning_starts=0, replay_batch_size=16, replay_mode="lockstep", seed=1
    )
    stored: list[tuple[int, int]] = []
    for env, rows, ends, shuffle in adds:
        batch = episodes.step(env, rows, 1, ends, 0)
        parts = {}
        for agent in range(policies):  # rows of every policy in an order of its own
            order = np.random.default_rng(shuffle + agent).permutation(rows)
            parts[f"p{agent}"] = batch.take(order)
            parts[f"p{agent}"]["agent"] = np.full(rows, agent)
        buffer.add_batch(MultiAgentBatch(parts, rows))
        stored += zip(batch["eps_id"].tolist(), batch["t"].tolist(), strict=True)
        buffer.check_invariants()
        drawn = buffer.replay()
        assert isinstance(drawn, MultiAgentBatch)
        first = drawn.policy_batches["p0"]
        for agent in range(policies):
            own = drawn.policy_batches[f"p{agent}"]
            check_transitions(own)
            assert (own["agent"] == agent).all()
            np.testing.assert_array_equal(own["eps_id"], first["eps_id"])
            np.testing.assert_array_equal(own["t"], first["t"])
        assert set(zip(first["eps_id"].tolist(), first["t"].tolist(), strict=True)) <= set(stored[-capacity:])
