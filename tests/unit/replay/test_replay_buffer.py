"""Replay buffers: what is drawn how often, with which weights, and what is refused."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution import replay_buffer
from rlframe.replay import memory_budget, per_policy
from rlframe.replay.per_policy import LocalReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from tests.helpers.transitions import fragment


def filled(rows: int = 20, **arguments: Any) -> PrioritizedReplayBuffer:
    buffer = PrioritizedReplayBuffer(**{"capacity": 100, "seed": 0, **arguments})
    buffer.add(fragment(0, 0, rows))
    return buffer


def times_drawn(buffer: PrioritizedReplayBuffer, rounds: int = 300) -> Any:
    """Returns how often each transition is drawn, as a share."""
    counts = np.zeros(buffer.capacity)
    for _ in range(rounds):
        np.add.at(counts, buffer.sample(64, 0.4)["batch_indexes"] % buffer.capacity, 1)
    return counts / counts.sum()


def test_text_beside_the_transitions_is_kept_however_long() -> None:
    buffer = ReplayBuffer(30, seed=0)
    for first, name in ((0, "best_0"), (10, "average_policy_0"), (20, "b")):
        batch = fragment(0, first, 10)
        batch["source"] = [name] * 10
        buffer.add(batch)
    drawn = buffer.sample(300)
    for first, name in ((0, "best_0"), (10, "average_policy_0"), (20, "b")):
        assert set(drawn["source"][drawn["t"] // 10 == first // 10].tolist()) == {name}


# ---- uniform ------------------------------------------------------------------------------------------------------


def test_uniform_sample_draws_all_equally() -> None:
    buffer = ReplayBuffer(50, seed=0)
    buffer.add(fragment(0, 0, 80))
    drawn = np.concatenate([buffer.sample(100)["t"] for _ in range(200)])
    counts = np.bincount(drawn, minlength=80)
    assert not counts[:30].any()
    assert (np.abs(counts[30:] - 400) < 5 * 20).all()


def test_uniform_sample_after_early_drops_draws_what_is_left() -> None:
    batch = fragment(0, 0, 2, ends=True)
    row = batch.size_bytes() // 2 + 17 - batch["obs"].nbytes // 2
    buffer = ReplayBuffer(1000, seed=0, memory_limit_bytes=1000 * row)
    buffer.add(batch)
    store = buffer._store._observations
    assert store is not None
    store.max_rows = 12
    for episode in range(1, 9):
        buffer.add(fragment(episode, 0, 2, ends=True))
        buffer.check_invariants()
    assert len(buffer) < 10
    assert set(buffer.sample(200)["rewards"].tolist()) == {100.0 * e + t for e in (5, 6, 7, 8) for t in (0, 1)} - (
        {500.0} if len(buffer) == 7 else set()
    )


def test_uniform_buffer_ignores_weights_given_and_keeps_a_weights_column() -> None:
    buffer = ReplayBuffer(10, seed=0)
    batch = fragment(0, 0, 2)
    batch["weights"] = np.full(2, 0.5, np.float32)
    buffer.add(batch, weight=3.0)
    assert buffer.sample(1)["weights"].tolist() == [0.5]


# ---- by priority --------------------------------------------------------------------------------------------------


def test_prioritized_sample_frequencies_follow_priority_to_the_alpha() -> None:
    buffer = filled(4, alpha=0.5)
    buffer.update_priorities([0, 1, 2, 3], [1.0, 4.0, 9.0, 16.0])
    np.testing.assert_allclose(times_drawn(buffer)[:4], np.array([1, 2, 3, 4]) / 10, atol=0.01)


def test_prioritized_sample_weights_are_as_worked_by_hand() -> None:
    buffer = filled(2, alpha=1.0)
    buffer.update_priorities([0, 1], [1.0, 4.0])
    batch = buffer.sample(50, beta=0.5)
    # (N p)**-beta over its largest value: 1 for the rare one, (1 / 4)**0.5 for the other.
    assert batch["weights"].dtype == np.float32
    assert set(batch["weights"].tolist()) == {1.0, 0.5}
    assert (batch["weights"] == np.where(batch["batch_indexes"] == 0, 1.0, 0.5)).all()
    assert (buffer.sample(50, beta=0.0)["weights"] == 1).all()


def test_prioritized_new_items_get_the_largest_priority_so_far() -> None:
    buffer = filled(2, alpha=1.0)
    buffer.update_priorities([0], [7.0])
    buffer.update_priorities([0], [2.0])
    buffer.add(fragment(1, 0, 1))
    assert buffer._tree.values[:3].tolist() == [2.0, 1.0, 7.0]


def test_prioritized_add_with_weights_uses_them() -> None:
    buffer = PrioritizedReplayBuffer(4, alpha=2.0, seed=0)
    buffer.add(fragment(0, 0, 2), weight=3.0)
    buffer.add(fragment(0, 2, 2), weight=np.array([1.0, 2.0]))
    assert buffer._tree.values.tolist() == [9.0, 9.0, 1.0, 4.0]
    buffer.add(fragment(1, 0, 6), weight=np.arange(1.0, 7.0))
    assert sorted(buffer._tree.values.tolist()) == [9.0, 16.0, 25.0, 36.0]
    buffer.check_invariants()


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, [1.0, 0.0, 1.0, 1.0], [1.0, 2.0]])
def test_prioritized_add_with_wrong_weight_raises_and_stores_nothing(weight: Any) -> None:
    buffer = PrioritizedReplayBuffer(10, seed=0)
    with pytest.raises(ValueError, match=r"finite and above 0|one per row"):
        buffer.add(fragment(0, 0, 4), weight=weight)
    assert len(buffer) == 0


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_update_priorities_not_above_zero_raises_and_changes_nothing(wrong: float) -> None:
    buffer = filled(4)
    with pytest.raises(ValueError, match="finite and above 0"):
        buffer.update_priorities([0, 1], [5.0, wrong])
    assert buffer._tree.values[:4].tolist() == [1.0] * 4


@pytest.mark.parametrize(("indexes", "priorities"), [([20], [1.0]), ([-1], [1.0]), ([0, 1], [1.0]), ([[0]], [[1.0]])])
def test_update_priorities_of_impossible_indexes_raises(indexes: Any, priorities: Any) -> None:
    with pytest.raises(ValueError, match=r"Indexes must be|wanted one"):
        filled(20).update_priorities(indexes, priorities)


def test_update_priorities_passes_over_what_was_overwritten() -> None:
    buffer = PrioritizedReplayBuffer(8, alpha=1.0, seed=0)
    buffer.add(fragment(0, 0, 8))
    drawn = buffer.sample(64)["batch_indexes"]
    buffer.add(fragment(0, 8, 4))
    buffer.update_priorities(drawn, np.full(64, 0.25))
    # Slots 0..3 hold new transitions now, which must not get the priorities of the old ones.
    assert buffer._tree.values.tolist() == [1.0] * 4 + [0.25] * 4
    buffer.update_priorities(buffer.sample(64)["batch_indexes"], np.full(64, 0.5))
    assert buffer._tree.values.tolist() == [0.5] * 8


def test_update_priorities_of_nothing_changes_nothing() -> None:
    buffer = filled(4)
    buffer.update_priorities([], [])
    assert buffer._tree.values[:4].tolist() == [1.0] * 4


@pytest.mark.parametrize("alpha", [0.0, 0.6, 3.0])
def test_extreme_priorities_stay_finite_and_drawable(alpha: float) -> None:
    buffer = filled(4, alpha=alpha)
    buffer.update_priorities([0, 1, 2, 3], [1e-308, 1e-300, 1e300, 1e308])
    buffer.add(fragment(1, 0, 2))
    buffer.check_invariants()
    assert np.isfinite(buffer.sample(32, 1.0)["weights"]).all()


def test_batch_indexes_wrap_around_to_the_transitions_drawn() -> None:
    buffer = PrioritizedReplayBuffer(8, seed=0)
    for start in range(0, 52, 4):
        buffer.add(fragment(0, start, 4))
        batch = buffer.sample(16)
        assert (batch["batch_indexes"] == batch["t"]).all()


@pytest.mark.parametrize("arguments", [{"alpha": -0.1}, {"alpha": float("nan")}, {"capacity": 0}])
def test_prioritized_constructor_out_of_range_raises(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        PrioritizedReplayBuffer(**arguments)


@pytest.mark.parametrize("beta", [-0.1, float("nan")])
def test_sample_with_beta_out_of_range_raises(beta: float) -> None:
    with pytest.raises(ValueError, match="beta"):
        filled().sample(4, beta)


def test_early_dropped_transitions_have_no_priority() -> None:
    buffer = filled(4, alpha=0.6)
    store = buffer._store._observations
    assert store is not None
    store.max_rows = 12
    for episode in range(1, 9):
        buffer.add(fragment(episode, 0, 2, ends=True))
        buffer.check_invariants()
    assert buffer.sample(100)["eps_id"].min() >= 5


# ---- memory -------------------------------------------------------------------------------------------------------


def image_batch() -> dict[str, Any]:
    frames = np.zeros((5, 84, 84, 4), np.uint8)
    return {"obs": frames[:4], "new_obs": frames[1:], "rewards": np.ones(4, np.float32)}


def test_add_that_cannot_fit_raises_with_numbers() -> None:
    buffer = ReplayBuffer(1_000_000, memory_limit_bytes=24 * 2**30)
    # 2 * 28,224 bytes of observations (no eps_id, so both), 4 of the reward, 17 of links.
    message = (
        r"capacity 1,000,000 needs 56,469,000,000 bytes .*56,469 bytes per .*largest capacity that fits is 456,353"
    )
    with pytest.raises(ValueError, match=message):
        buffer.add(image_batch())
    shared = {**image_batch(), "eps_id": np.zeros(4, int), "t": np.arange(4)}
    with pytest.raises(ValueError, match="28,261 bytes per transition"):
        ReplayBuffer(1_000_000, memory_limit_bytes=24 * 2**30).add(shared)


def test_add_of_most_of_the_memory_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ReplayBuffer(100, memory_limit_bytes=100 * 56_469).add(image_batch())
        assert "100 %" in caplog.text
        caplog.clear()
        ReplayBuffer(100, memory_limit_bytes=200 * 56_469).add(image_batch())
        assert not caplog.text


def test_memory_of_the_machine_is_known_here() -> None:
    memory = memory_budget.memory_bytes()
    assert memory is None or memory > 2**20


def test_memory_unknown_is_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(memory_budget.os, "sysconf")
    assert memory_budget.memory_bytes() is None
    memory_budget.check_fits(10**12, 10**6, None)


def test_container_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "one").write_text("max\n")
    (tmp_path / "two").write_text("4096\n")
    monkeypatch.setattr(memory_budget, "_CGROUP_LIMITS", [str(tmp_path / name) for name in ("one", "two", "three")])
    assert memory_budget.memory_bytes() == 4096


def test_local_buffers_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_policy, "memory_bytes", lambda: 150 * 56_469)
    buffer = LocalReplayBuffer(capacity=100, prioritized=False)
    batch = SampleBatch(image_batch())
    buffer.add_batch(MultiAgentBatch({"first": batch}, 4))
    with pytest.raises(ValueError, match="largest capacity that fits is 50"):
        buffer.add_batch(MultiAgentBatch({"second": batch}, 4))


def test_stats_count_rows_and_bytes() -> None:
    buffer = filled(20, capacity=16)
    assert len(buffer) == 16
    buffer.sample(5)
    stats = buffer.stats()
    assert stats == {
        "added_count": 16,
        "added_count_wrapped": 0,
        "eviction_started": False,
        "sampled_count": 5,
        "est_size_bytes": buffer.size_bytes(),
        "num_entries": 16,
    }
    debug = buffer.stats(debug=True)
    assert debug["bytes_by_column"]["obs"] == 17 * 8
    assert debug["max_priority"] == debug["mean_power"] == 1.0
    assert debug["full_size_bytes"] > 0
    buffer.add(fragment(0, 20, 3))
    assert (buffer.stats()["added_count_wrapped"], buffer.stats()["eviction_started"]) == (3, True)


# ---- per policy ---------------------------------------------------------------------------------------------------


def test_local_replay_begins_at_learning_starts() -> None:
    buffer = LocalReplayBuffer(learning_starts=6, replay_batch_size=8, capacity=100, seed=0)
    assert buffer.replay() is None
    buffer.add_batch(fragment(0, 0, 4))
    assert buffer.replay() is None
    buffer.add_batch(fragment(0, 4, 4))
    batch = buffer.replay()
    assert isinstance(batch, SampleBatch)
    assert batch.count == 8
    assert {"weights", "batch_indexes"} <= set(batch)


def test_local_uniform_has_no_priorities() -> None:
    buffer = LocalReplayBuffer(learning_starts=0, replay_batch_size=8, prioritized=False, seed=0)
    assert buffer.replay() is None
    buffer.add_batch(fragment(0, 0, 4))
    batch = buffer.replay()
    assert isinstance(batch, SampleBatch)
    assert "weights" not in batch
    buffer.update_priorities({"default_policy": ([0], [1.0])})
    assert type(buffer.replay_buffers["default_policy"]) is ReplayBuffer


def test_local_shards_share_capacity_and_learning_starts() -> None:
    buffer = LocalReplayBuffer(num_shards=4, learning_starts=16, capacity=40)
    buffer.add_batch(fragment(0, 0, 4))
    assert buffer.replay() is not None
    assert buffer.replay_buffers["default_policy"].capacity == 10


def test_local_priorities_are_absolute_errors_plus_eps() -> None:
    buffer = LocalReplayBuffer(prioritized_replay_alpha=1.0, prioritized_replay_eps=0.5, learning_starts=0)
    buffer.add_batch(fragment(0, 0, 3))
    buffer.update_priorities({"default_policy": (np.array([0, 1]), np.array([-2.0, 0.0], np.float32))})
    inner = buffer.replay_buffers["default_policy"]
    assert isinstance(inner, PrioritizedReplayBuffer)
    assert inner._tree.values[:3].tolist() == [2.5, 0.5, 1.0]
    with pytest.raises(ValueError, match="no_such"):
        buffer.update_priorities({"no_such": ([0], [1.0])})
    with pytest.raises(ValueError, match="finite"):
        buffer.update_priorities({"default_policy": ([0], [float("nan")])})


def test_local_weights_column_is_the_initial_priority() -> None:
    buffer = LocalReplayBuffer(prioritized_replay_alpha=1.0, prioritized_replay_eps=0.5)
    batch = fragment(0, 0, 2)
    batch["weights"] = np.array([1.5, 0.0], np.float32)
    buffer.add_batch(batch)
    inner = buffer.replay_buffers["default_policy"]
    assert isinstance(inner, PrioritizedReplayBuffer)
    assert inner._tree.values[:2].tolist() == [2.0, 0.5]


def test_local_beta_is_constant_unless_annealed() -> None:
    buffer = LocalReplayBuffer(prioritized_replay_beta=0.4, prioritized_replay_beta_annealing_timesteps=100)
    buffer.add_batch(fragment(0, 0, 50))
    assert buffer.beta == 0.4
    annealed = LocalReplayBuffer(
        prioritized_replay_beta=0.4, final_prioritized_replay_beta=1.0, prioritized_replay_beta_annealing_timesteps=100
    )
    assert annealed.beta == 0.4
    annealed.add_batch(fragment(0, 0, 50))
    assert annealed.beta == pytest.approx(0.7)
    annealed.add_batch(fragment(1, 0, 150))
    assert annealed.beta == 1.0


def test_local_several_policies_replay_a_multi_agent_batch() -> None:
    buffer = LocalReplayBuffer(learning_starts=0, replay_batch_size=5, seed=0)
    policies = {"red": fragment(0, 0, 4), "blue": fragment(1, 0, 2), "idle": fragment(2, 0, 4)[:0]}
    buffer.add_batch(MultiAgentBatch(policies, 4))
    assert buffer.num_added == 4
    assert sorted(buffer.replay_buffers) == ["blue", "red"]
    batch = buffer.replay()
    assert isinstance(batch, MultiAgentBatch)
    assert batch.count == 5
    assert set(batch.policy_batches["red"]["eps_id"]) == {0}
    assert set(batch.policy_batches["blue"]["eps_id"]) == {1}
    assert len(buffer) == 6


def test_local_stats_and_host() -> None:
    buffer = LocalReplayBuffer(learning_starts=0)
    buffer.add_batch(fragment(0, 0, 4))
    buffer.replay()
    stats = buffer.stats()
    assert stats["policy_default_policy"]["added_count"] == 4
    assert stats["policy_default_policy"]["sampled_count"] == 1
    assert all(stats[f"{name}_time_ms"] >= 0 for name in ("add_batch", "replay", "update_priorities"))
    assert "max_priority" in buffer.stats(debug=True)["policy_default_policy"]
    assert isinstance(buffer.get_host(), str)


@pytest.mark.parametrize("prioritized", [True, False])
def test_local_damaged_state_leaves_an_empty_buffer_and_says_so(
    prioritized: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> LocalReplayBuffer:
        return LocalReplayBuffer(learning_starts=30, capacity=50, prioritized=prioritized, seed=0)

    buffer, twin = make(), make()
    buffer.add_batch(SampleBatch.concat_samples([fragment(0, 0, 20), fragment(1, 0, 20)]))
    state = buffer.get_state()
    rows = state["buffers"]["default_policy"]["store"]["observations"]["links"]
    rows[0, 20] = rows[1, 19]  # two trajectories had one row for their ends
    with caplog.at_level(logging.WARNING, logger="rlframe"):
        twin.set_state(state)
    assert "left empty (Rows of observations are lost, freed twice" in caplog.text
    assert len(twin) == 0
    twin.add_batch(fragment(2, 0, 20))
    assert twin.replay() is None  # learning_starts counts anew
    twin.add_batch(fragment(3, 0, 20))
    assert isinstance(twin.replay(), SampleBatch)
    twin.check_invariants()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replay_mode": "anything"}, "'independent' or 'lockstep'"),
        ({"replay_sequence_length": 0}, "replay_sequence_length must be at least 1, got 0"),
        (
            {"replay_burn_in": 4, "replay_sequence_length": 4},
            "below replay_sequence_length.*got 4 and 4: nothing would",
        ),
        ({"replay_sequence_length": 20, "replay_mode": "lockstep"}, "joint steps are single rows"),
        ({"replay_batch_size": 0}, "replay_batch_size"),
        ({"num_shards": 0}, "num_shards"),
        ({"num_shards": 5, "capacity": 4}, "capacity must be at least 5"),
        ({"prioritized_replay_eps": 0.0}, "prioritized_replay_eps"),
        ({"prioritized_replay_beta": -1.0}, "prioritized_replay_beta"),
        ({"prioritized_replay_alpha": -1.0}, "alpha"),
        ({"final_prioritized_replay_beta": -1.0}, "final_prioritized_replay_beta"),
    ],
)
def test_local_constructor_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalReplayBuffer(**arguments)


def test_local_buffer_that_draws_uniformly_has_no_use_for_eps() -> None:
    LocalReplayBuffer(prioritized=False, prioritized_replay_eps=0.0)


def test_module_is_imported_without_ray() -> None:
    code = "import sys, rlframe.replay.per_policy; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_module_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="NoSuch"):
        replay_buffer.NoSuch  # noqa: B018


def test_old_names_of_the_capacity() -> None:
    assert LocalReplayBuffer(num_shards=2, buffer_size=600).capacity == 300
    assert LocalReplayBuffer(capacity=70, buffer_size=-1).capacity == 70
    assert (ReplayBuffer(size=7).capacity, PrioritizedReplayBuffer(size=9).capacity) == (7, 9)


def test_the_newest_buffer_is_found_while_it_lives() -> None:
    buffer = LocalReplayBuffer()
    assert LocalReplayBuffer.get_instance_for_testing() is buffer
    del buffer
    assert LocalReplayBuffer.get_instance_for_testing() is None


def test_what_a_buffer_holds_is_read_by_rllibs_names() -> None:
    buffer = ReplayBuffer(15, seed=0)
    assert (len(buffer._storage), buffer._next_idx) == (0, 0)
    rows = fragment(0, 0, 20)
    for start in (0, 10):
        buffer.add(rows[start : start + 10])
    assert (len(buffer._storage), buffer._next_idx) == (15, 5)
    for place, row in ((0, 5), (-1, 19)):
        item = buffer._storage[place]
        assert item.count == 1
        np.testing.assert_array_equal(item["obs"][0], rows["obs"][row])
        np.testing.assert_array_equal(item["new_obs"][0], rows["new_obs"][row])
    assert [item["rewards"][0] for item in buffer._storage[2:4]] == rows["rewards"][7:9].tolist()
    assert sum(item.count for item in buffer._storage) == 15
    with pytest.raises(IndexError):
        buffer._storage[15]
