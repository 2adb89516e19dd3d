"""The sum tree: draws in proportion to values, sums that never drift."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.replay.prioritized_buffer import SumTree


class ConstantRng:
    """Gives one and the same uniform number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, count: int) -> Any:
        return np.full(count, self.value)


def deep_tree(capacity: int) -> SumTree:
    """A tree with as many levels as possible."""
    return SumTree(capacity, fan_out=2, max_top=1)


@pytest.mark.parametrize("make", [SumTree, deep_tree])
def test_sample_of_four_values_is_as_worked_by_hand(make: Any) -> None:
    tree = make(4)
    tree.set(np.arange(4), [1.0, 2.0, 3.0, 4.0])
    # The middles of four quarters of 10 are 1.25, 3.75, 6.25, 8.75; the values end at 1, 3, 6, 10.
    assert tree.sample(4, ConstantRng(0.5)).tolist() == [1, 2, 3, 3]
    # Their beginnings are 0, 2.5, 5, 7.5.
    assert tree.sample(4, ConstantRng(0.0)).tolist() == [0, 1, 2, 3]
    assert tree.total == 10.0


@pytest.mark.parametrize(
    ("capacity", "fan_out", "max_top"), [(1, 16, 4096), (100, 4, 4), (5000, 16, 16), (5000, 8, 4096)]
)
def test_sample_frequencies_match_values(capacity: int, fan_out: int, max_top: int) -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(capacity, fan_out=fan_out, max_top=max_top)
    values = rng.random(capacity) ** 4
    tree.set(np.arange(capacity), values)
    counts = np.zeros(capacity)
    for _ in range(200):
        np.add.at(counts, tree.sample(1000, rng), 1)
    # Stratified draws are no worse than independent ones, of which 5 standard deviations are almost never seen.
    expected = 200_000 * values / values.sum()
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 2).all()


def test_sample_is_ascending_and_stratified() -> None:
    tree = SumTree(1000)
    tree.set(np.arange(1000), 1.0)
    drawn = tree.sample(100, np.random.default_rng(0))
    assert (drawn // 10 == np.arange(100)).all()


@pytest.mark.parametrize("uniform", [0.0, 0.5, float(np.nextafter(1.0, 0.0))])
@pytest.mark.parametrize("fan_out", [2, 16])
def test_sample_at_the_edges_never_gives_a_zero(uniform: float, fan_out: int) -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        tree = SumTree(300, fan_out=fan_out, max_top=3)
        values = 10.0 ** rng.uniform(-9, 9, 300) * (rng.random(300) < 0.3)
        values[rng.integers(300)] = 1.0
        tree.set(np.arange(300), values)
        drawn = tree.sample(64, ConstantRng(uniform))  # type: ignore[arg-type]
        assert (values[drawn] > 0).all()


def test_sample_whose_mass_rounds_past_a_block_takes_its_last_value() -> None:
    tree = SumTree(2, fan_out=2)
    tree.set(np.arange(2), [1.0, 0.0])
    tree._top[:] = 2.0  # as if the sum above had been rounded up
    assert tree.sample(1, ConstantRng(0.9)).tolist() == [0]  # type: ignore[arg-type]


def test_sample_without_values_raises() -> None:
    with pytest.raises(ValueError, match="all 0"):
        SumTree(10).sample(1, np.random.default_rng(0))


def test_set_with_repeated_index_keeps_the_last() -> None:
    tree = SumTree(100)
    tree.set(np.array([7, 7, 3, 7]), [1.0, 2.0, 3.0, 4.0])
    assert tree.get(np.array([7, 3])).tolist() == [4.0, 3.0]
    assert tree.total == 7.0


@pytest.mark.parametrize("fan_out", [2, 16, 64])
def test_set_many_times_leaves_the_sums_of_a_fresh_tree(fan_out: int) -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(3000, fan_out=fan_out, max_top=4)
    for _ in range(500):
        indexes = rng.integers(0, 3000, rng.integers(1, 40))
        tree.set(indexes, 10.0 ** rng.uniform(-12, 12, len(indexes)))
    tree.check_invariants()
    fresh = SumTree(3000, fan_out=fan_out, max_top=4)
    fresh.set(np.arange(3000), tree.values)
    for ours, wanted in zip(tree._sums, fresh._sums, strict=True):
        np.testing.assert_array_equal(ours, wanted)


def test_values_are_as_set() -> None:
    tree = SumTree(50)
    values = np.random.default_rng(0).random(50)
    tree.set(np.arange(50), values)
    np.testing.assert_array_equal(tree.values, values)
    assert tree.size_bytes >= 50 * 8


@pytest.mark.parametrize("arguments", [{"capacity": 0}, {"capacity": 4, "fan_out": 3}, {"capacity": 4, "fan_out": 1}])
def test_constructor_out_of_range_raises(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        SumTree(**arguments)


@pytest.mark.parametrize(
    ("place", "value", "message"), [(0, -1.0, "negative"), (3, 5.0, "sum of block 0"), (12, 1.0, "beyond")]
)
def test_check_invariants_of_a_damaged_tree_raises(place: int, value: float, message: str) -> None:
    tree = SumTree(10)
    tree.set(np.arange(10), 1.0)
    tree._flat[0][place] = value
    with pytest.raises(AssertionError, match=message):
        tree.check_invariants()
