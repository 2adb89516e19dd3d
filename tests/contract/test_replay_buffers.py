"""What every replay buffer promises, checked on each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.replay.per_policy import LocalReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from rlframe.utils.errors import CheckpointError
from tests.helpers.transitions import check_transitions, fragment

CAPACITY = 24
KINDS = ("uniform", "prioritized", "local uniform", "local prioritized")


def make(kind: str, capacity: int = CAPACITY, seed: int | None = 0) -> Any:
    if kind == "uniform":
        return ReplayBuffer(capacity, seed)
    if kind == "prioritized":
        return PrioritizedReplayBuffer(capacity, 0.6, seed)
    return LocalReplayBuffer(
        capacity=capacity, learning_starts=0, replay_batch_size=16, prioritized=kind == "local prioritized", seed=seed
    )


def draw(buffer: Any) -> SampleBatch:
    """Draws 16 transitions, and gives those drawn new priorities where there are any."""
    batch: SampleBatch
    if isinstance(buffer, LocalReplayBuffer):
        batch = buffer.replay()  # type: ignore[assignment]
        if "batch_indexes" in batch:
            buffer.update_priorities({"default_policy": (batch["batch_indexes"], batch["rewards"] % 7)})
    elif isinstance(buffer, PrioritizedReplayBuffer):
        batch = buffer.sample(16, 0.4)
        buffer.update_priorities(batch["batch_indexes"], batch["rewards"] % 7 + 0.1)
    else:
        batch = buffer.sample(16)
    return batch


def run(buffer: Any, start: int, rounds: int) -> list[dict[str, Any]]:
    """Alternates storing four rows and drawing; returns the columns drawn."""
    drawn = []
    for at in range(start, start + 4 * rounds, 4):
        buffer.add_batch(fragment(at // 40, at % 40, 4, n=1 + at % 3, ends=at % 40 == 36))
        drawn.append(dict(draw(buffer)))
    return drawn


def assert_same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> None:
    for ours, theirs in zip(left, right, strict=True):
        assert list(ours) == list(theirs)
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_draws_are_transitions_as_they_were_stored(kind: str) -> None:
    buffer = make(kind)
    for columns in run(buffer, 0, 60):
        check_transitions(SampleBatch(columns))
        buffer.check_invariants()


def test_draws_are_sample_batches_with_all_columns_and_their_dtypes(kind: str) -> None:
    buffer = make(kind)
    stored = fragment(0, 0, 8)
    buffer.add_batch(stored)
    batch = draw(buffer)
    assert type(batch) is SampleBatch
    assert batch.count == 16
    for name, column in stored.items():
        assert batch[name].dtype == column.dtype
        assert batch[name].shape == (16, *column.shape[1:])


def test_only_the_latest_transitions_are_drawn(kind: str) -> None:
    buffer = make(kind)
    run(buffer, 0, 10)
    buffer.add_batch(fragment(9, 0, CAPACITY))
    assert len(buffer) == CAPACITY
    assert set(draw(buffer)["eps_id"]) == {9}


def test_batch_larger_than_capacity_leaves_its_end(kind: str) -> None:
    buffer = make(kind)
    buffer.add_batch(fragment(0, 0, 3 * CAPACITY + 5))
    assert len(buffer) == CAPACITY
    buffer.check_invariants()
    for _ in range(10):
        batch = draw(buffer)
        check_transitions(batch)
        assert batch["t"].min() >= 2 * CAPACITY + 5


def test_drawn_batches_are_not_changed_by_what_comes_later(kind: str) -> None:
    buffer = make(kind)
    first = run(buffer, 0, 1)[0]
    before = {name: column.copy() for name, column in first.items()}
    run(buffer, 4, 20)
    assert_same([first], [before])


def test_changing_batches_does_not_change_what_is_stored(kind: str) -> None:
    buffer = make(kind)
    stored = fragment(0, 0, 8)
    buffer.add_batch(stored)
    stored["obs"][:] = stored["new_obs"][:] = -1
    draw(buffer)["obs"][:] = -1
    check_transitions(draw(buffer))


def test_same_seed_draws_the_same(kind: str) -> None:
    assert_same(run(make(kind, seed=3), 0, 20), run(make(kind, seed=3), 0, 20))
    with pytest.raises(AssertionError):
        assert_same(run(make(kind, seed=3), 0, 20), run(make(kind, seed=4), 0, 20))
    assert len(make(kind, seed=None)) == 0


@pytest.mark.parametrize("rounds", [0, 1, 3, 15])
def test_restored_buffer_goes_on_exactly(kind: str, rounds: int) -> None:
    buffer, twin = make(kind), make(kind, seed=99)
    run(buffer, 0, rounds)
    run(twin, 400, 7)  # what it held is forgotten
    state = buffer.get_state()
    expected = run(buffer, 4 * rounds, 20)
    twin.set_state(state)
    twin.check_invariants()
    assert len(twin) == min(4 * rounds, CAPACITY)
    assert_same(run(twin, 4 * rounds, 20), expected)


def test_state_follows_the_convention_and_holds_only_what_is_used(kind: str) -> None:
    buffer = make(kind, capacity=100_000)
    run(buffer, 0, 3)

    def size(state: Any) -> int:
        if isinstance(state, dict):
            assert all(isinstance(key, str) for key in state)
            return sum(size(value) for value in state.values())
        if isinstance(state, np.ndarray):
            assert state.dtype != object
            return state.nbytes
        assert state is None or isinstance(state, (int, float, bool, str))
        return 8

    assert size(buffer.get_state()) < 3000
    assert size(buffer.get_state(copy=False)) < 3000


def test_state_of_another_capacity_is_refused(kind: str) -> None:
    buffer, other, twin = make(kind), make(kind, capacity=30), make(kind, capacity=30)
    run(buffer, 0, 2)
    for one in (other, twin):
        run(one, 80, 2)
    with pytest.raises(CheckpointError, match=r"capacity 24.*store_buffer_in_checkpoints=False"):
        other.set_state(buffer.get_state())
    assert_same(run(other, 88, 3), run(twin, 88, 3))  # it is as it was


def test_state_of_another_kind_is_refused(kind: str) -> None:
    buffer = make(kind)
    run(buffer, 0, 2)
    other = {"uniform": "prioritized", "prioritized": "uniform"}
    other |= {f"local {ours}": f"local {theirs}" for ours, theirs in other.items()}
    with pytest.raises(CheckpointError, match="prioritized_replay"):
        make(other[kind]).set_state(buffer.get_state())


def _without(name: str) -> Any:
    def change(batch: SampleBatch) -> None:
        del batch[name]

    return change


def _with(name: str, value: Any) -> Any:
    def change(batch: SampleBatch) -> None:
        batch[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("rewards"), "'rewards' is missing"),
        (_with("extra", np.zeros(4)), "'extra' is new"),
        (_with("rewards", np.zeros(4, complex)), r"'rewards': got rows of complex128 \(\), wanted float32 \(\)"),
        (_with("obs", np.zeros((4, 2), np.complex64)), r"'obs': got rows of complex64 \(2,\), wanted float32 \(2,\)"),
        (_with("obs", np.zeros((4, 3), np.float32)), r"'obs': got rows of float32 \(3,\), wanted float32 \(2,\)"),
        (_with("actions", np.zeros((4, 1), int)), r"'actions': got rows of int64 \(1,\), wanted int64 \(\)"),
        (_with("rewards", np.zeros(5, np.float32)), "5 rows, wanted 4"),
        (_with("actions", ({"a": 1},)), "'actions' is a tuple"),
        (_with("actions", np.array(["a"] * 4)), "'actions': got rows of <U1"),
        (_with("actions", np.array(3)), "single value"),
        (_with("seq_lens", np.array([4])), "cut into sequences"),
    ],
)
def test_batches_unlike_the_first_are_refused_and_not_stored(kind: str, change: Any, message: str) -> None:
    buffer = make(kind)
    run(buffer, 0, 4)
    other = fragment(5, 0, 4)
    change(other)
    with pytest.raises(ValueError, match=message):
        buffer.add_batch(other)
    buffer.check_invariants()
    assert len(buffer) == 16
    for columns in run(buffer, 16, 10):
        check_transitions(SampleBatch(columns))


@pytest.mark.parametrize(
    ("name", "first", "second", "stored"),
    [
        ("actions", np.int32, np.int64, np.int64),
        ("actions", np.int64, np.int32, np.int64),
        ("rewards", np.int64, np.float32, np.float64),
        ("rewards", np.float32, np.float64, np.float32),
        ("obs", np.float32, np.float64, np.float32),
    ],
)
def test_numbers_of_another_dtype_are_stored_as_joined_batches_would_have_them(
    kind: str, name: str, first: Any, second: Any, stored: Any
) -> None:
    buffer, seen = make(kind), []
    for start, dtype in ((0, first), (4, second)):
        batch = fragment(5, start, 4)
        for column in (name, "new_obs") if name == "obs" else (name,):
            batch[column] = batch[column].astype(dtype)
        seen += batch[name].tolist()
        buffer.add_batch(batch)
    drawn = draw(buffer)[name]
    assert drawn.dtype == stored
    assert {str(np.asarray(row, stored).tolist()) for row in seen} >= {str(row.tolist()) for row in drawn}


def test_bytes_are_no_observations_beside_floats(kind: str) -> None:
    buffer = make(kind)
    batch = fragment(5, 0, 4)
    for name in ("obs", "new_obs"):
        batch[name] = batch[name].astype(np.uint8)
    buffer.add_batch(batch)
    with pytest.raises(ValueError, match=r"'obs': got rows of float32 \(2,\), wanted uint8"):
        buffer.add_batch(fragment(5, 4, 4))


def test_infos_are_not_stored(kind: str) -> None:
    buffer = make(kind)
    batch = fragment(0, 0, 4)
    batch["infos"] = np.array([{"x": 1}] * 4)
    buffer.add_batch(batch)
    assert "infos" not in draw(buffer)


def test_compressed_observations_are_stored_unpacked(kind: str) -> None:
    buffer = make(kind)
    for start in (0, 4):
        batch = fragment(0, start, 4)
        batch.compress()
        buffer.add_batch(batch)
        assert batch["obs"].dtype == object
    check_transitions(draw(buffer))


def test_lists_and_transitions_without_a_place_in_an_episode_are_stored(kind: str) -> None:
    buffer = make(kind)
    for n in range(20):
        batch = SampleBatch(obs=[[n, 0], [n, 1]], new_obs=[[n, 1], [n, 2]], rewards=[n + 0.5, n + 0.5])
        buffer.add_batch(batch)
        buffer.check_invariants()
        drawn = draw(buffer)
        assert (drawn["obs"][:, 0] == drawn["new_obs"][:, 0]).all()
        assert (drawn["obs"][:, 1] + 1 == drawn["new_obs"][:, 1]).all()
        assert (drawn["obs"][:, 0] + 0.5 == drawn["rewards"]).all()


def test_batches_without_next_observations_are_stored(kind: str) -> None:
    buffer = make(kind)
    for start in range(0, 60, 4):
        batch = fragment(0, start, 4)
        del batch["new_obs"]
        buffer.add_batch(batch)
    drawn = draw(buffer)
    assert (drawn["obs"][:, 0] == drawn["t"]).all()
    twin = make(kind)
    twin.set_state(buffer.get_state())
    assert_same([dict(draw(twin))], [dict(draw(buffer))])


@pytest.mark.parametrize("bare", ["uniform", "prioritized"])
def test_sampling_what_is_not_there_raises(bare: str) -> None:
    buffer = make(bare)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(4)
    buffer.add(fragment(0, 0, 1))
    with pytest.raises(ValueError, match="at least 1"):
        buffer.sample(0)
    assert buffer.sample(3).count == 3


def test_state_of_other_priorities_is_refused() -> None:
    buffer = PrioritizedReplayBuffer(4, alpha=0.6)
    with pytest.raises(CheckpointError, match=r"alpha 0\.6"):
        PrioritizedReplayBuffer(4, alpha=0.7).set_state(buffer.get_state())
