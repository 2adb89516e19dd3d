"""Observations stored once: what is shared, when rows are freed, and that what comes out is what went in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.replay.observation_rows import ObservationStore, StepKeys
from tests.helpers.transitions import fragment, observations


class Driver:
    """Feeds batches to a store as a buffer does, and remembers what went in."""

    def __init__(self, capacity: int, shape: tuple[int, ...] = (2,), max_rows: int | None = None) -> None:
        self.store = ObservationStore(capacity, shape, np.float32, max_rows)
        self.capacity = capacity
        self.end = self.oldest = 0
        self.slots: dict[int, tuple[Any, Any]] = {}

    def add(self, batch: SampleBatch, *, with_keys: bool = True) -> int:
        """Adds a batch, checks everything, and returns the rows then in use."""
        keys = StepKeys.of_batch(batch) if with_keys else None
        self.oldest = self.store.append(self.end, self.oldest, batch["obs"], batch["new_obs"], keys)
        for obs, new_obs in zip(batch["obs"], batch["new_obs"], strict=True):
            self.slots[self.end % self.capacity] = (obs, new_obs)
            self.end += 1
        self.check()
        return self.store.rows_used

    def check(self) -> None:
        self.store.check_invariants(self.oldest, self.end)
        slots = np.arange(self.oldest, self.end) % self.capacity
        obs, new_obs = self.store.gather(slots)
        np.testing.assert_array_equal(obs, np.array([self.slots[slot][0] for slot in slots.tolist()]))
        np.testing.assert_array_equal(new_obs, np.array([self.slots[slot][1] for slot in slots.tolist()]))


def test_append_fragments_of_one_episode_stores_each_observation_once() -> None:
    driver = Driver(100)
    assert driver.add(fragment(0, 0, 4)) == 5
    assert driver.add(fragment(0, 4, 4)) == 9  # its first obs is the last new_obs of the fragment before
    assert driver.add(fragment(0, 8, 2, ends=True)) == 11
    assert driver.add(fragment(1, 0, 4)) == 16
    assert driver.store.rows_touched == 16


def test_append_row_by_row_stores_each_observation_once() -> None:
    driver = Driver(100)
    assert [driver.add(fragment(0, t, 1)) for t in range(5)] == [2, 3, 4, 5, 6]


def test_append_interleaved_episodes_stores_each_observation_once() -> None:
    driver = Driver(100)
    both = SampleBatch.concat_samples([fragment(0, 0, 4), fragment(1, 10, 4)])
    assert driver.add(both) == 10
    assert driver.add(SampleBatch.concat_samples([fragment(0, 4, 4), fragment(1, 14, 4)])) == 18
    assert driver.add(fragment(1, 18, 4)) == 22
    assert driver.add(fragment(0, 8, 4)) == 26


def test_append_episodes_ending_inside_a_batch() -> None:
    driver = Driver(100)
    batch = SampleBatch.concat_samples([fragment(0, 0, 3, ends=True), fragment(1, 0, 2, ends=True), fragment(2, 0, 3)])
    assert driver.add(batch) == 4 + 3 + 4
    assert list(driver.store._tails) == [2]


def test_append_n_step_fragment_shares_its_last_observation() -> None:
    driver = Driver(100)
    # Rows 0..4 lead to 3, 4, 5, 5, 5: five observations that are someone's obs, and the one at 5.
    assert driver.add(fragment(0, 0, 5, n=3)) == 6
    assert driver.add(fragment(0, 5, 5, n=3)) == 11
    assert driver.add(fragment(0, 10, 2, n=3, ends=True)) == 13
    assert not driver.store._tails


def test_append_long_gap_in_time_does_not_share() -> None:
    driver = Driver(100)
    driver.add(fragment(0, 0, 4))
    assert driver.add(fragment(0, 6, 4)) == 10


@pytest.mark.parametrize("agents", [False, True], ids=["slots", "agents of one episode"])
def test_append_n_step_trajectories_at_equal_observations_keep_rows_of_their_own(agents: bool) -> None:
    driver = Driver(12)
    for start in (0, 4, 8, 12):
        batch = SampleBatch.concat_samples([fragment(episode, start, 4, n=3, alphabet=3) for episode in range(3)])
        if agents:
            batch["agent_index"], batch["eps_id"] = batch["eps_id"], np.zeros(12, int)
        driver.add(batch)  # checks what is stored, and that no row is freed twice
    assert driver.store.rows_used == 12 + 3


def test_append_without_keys_stores_both_observations() -> None:
    driver = Driver(100)
    assert driver.add(fragment(0, 0, 4), with_keys=False) == 8


def test_append_equal_keys_with_other_contents_does_not_share() -> None:
    driver = Driver(100)
    batch = fragment(0, 0, 4)
    batch["new_obs"] = batch["new_obs"] + 0.5
    assert driver.add(batch) == 8
    assert driver.add(fragment(0, 4, 4)) == 13  # what is remembered of step 4 is not what comes now


def test_append_nan_is_not_shared() -> None:
    driver = Driver(100)
    batch = fragment(0, 0, 3)
    batch["obs"][1] = batch["new_obs"][0] = np.nan
    assert driver.add(batch) == 5


def test_append_agents_of_one_episode_are_kept_apart() -> None:
    driver = Driver(100)

    def agents(start: int) -> SampleBatch:
        batch = SampleBatch.concat_samples([fragment(0, start, 3), fragment(1, start, 3)])
        batch["agent_index"] = batch["eps_id"]
        batch["eps_id"] = np.zeros(6, int)
        return batch

    assert driver.add(agents(0)) == 8
    assert driver.add(agents(3)) == 14


def test_append_beyond_capacity_uses_freed_rows() -> None:
    driver = Driver(20)
    for start in range(0, 400, 4):
        assert driver.add(fragment(0, start, 4)) <= 21
    assert driver.store.rows_touched <= 25


def test_append_after_the_remembered_end_was_overwritten_stores_it_again() -> None:
    driver = Driver(8)
    driver.add(fragment(0, 0, 4))
    for start in range(0, 8, 4):
        driver.add(fragment(1, start, 4))
    assert 0 not in driver.store._tails
    assert driver.add(fragment(0, 4, 4)) == 10


def test_append_adopts_the_end_of_a_transition_it_overwrites() -> None:
    driver = Driver(4)
    driver.add(fragment(0, 0, 4))
    assert driver.add(fragment(0, 4, 4)) == 5


def test_append_with_few_rows_drops_transitions_early() -> None:
    driver = Driver(10, max_rows=12)
    for episode in range(30):
        driver.add(fragment(episode, 0, 2, ends=True))
        assert driver.store.rows_touched <= 12
    # Four episodes of two transitions and three observations would fit; the oldest is cut to make room.
    assert 7 <= driver.end - driver.oldest <= 8


def test_append_in_chunks_is_the_same() -> None:
    driver = Driver(200)
    driver.store._chunk = 7
    batch = SampleBatch.concat_samples([fragment(0, 0, 50), fragment(1, 0, 50, ends=True)])
    assert driver.add(batch) == 102
    driver = Driver(200)
    driver.store._chunk = 7
    driver.add(fragment(0, 0, 50, n=3))


def test_append_of_nothing_changes_nothing() -> None:
    driver = Driver(10)
    driver.add(fragment(0, 0, 4))
    assert driver.store.append(4, 0, np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), None) == 0
    driver.check()


@pytest.mark.parametrize("shape", [(), (1,), (4, 4, 3)])
def test_append_of_any_shape(shape: tuple[int, ...]) -> None:
    driver = Driver(20, shape)
    for start in range(0, 60, 6):
        driver.add(fragment(0, start, 6, shape=shape))
    assert driver.store.rows_used == 21


def test_gather_gives_copies() -> None:
    driver = Driver(10)
    driver.add(fragment(0, 0, 4))
    obs, new_obs = driver.store.gather(np.array([0]))
    obs[:] = new_obs[:] = -1
    driver.check()
    np.testing.assert_array_equal(driver.store.gather(np.array([1]))[0], observations(0, [1]))


def test_row_of_images_takes_its_bytes() -> None:
    assert ObservationStore(10, (84, 84, 4), np.uint8).row_bytes == 28_224


@pytest.mark.parametrize("copy", [True, False])
def test_state_restored_goes_on_the_same(copy: bool) -> None:
    driver, twin = Driver(20), Driver(20)
    for start in range(0, 32, 4):
        driver.add(SampleBatch.concat_samples([fragment(0, start, 4), fragment(1, start, 4)]))
    twin.store.set_state(driver.store.get_state(20, copy=copy))
    twin.end, twin.oldest, twin.slots = driver.end, driver.oldest, dict(driver.slots)
    for start in range(32, 80, 4):
        batch = SampleBatch.concat_samples([fragment(0, start, 4), fragment(1, start, 4)])
        assert driver.add(batch) == twin.add(batch)
        np.testing.assert_array_equal(driver.store._links, twin.store._links)


def test_set_state_of_more_rows_than_fit_raises() -> None:
    driver = Driver(10)
    driver.add(fragment(0, 0, 10))
    with pytest.raises(ValueError, match="11 observations"):
        ObservationStore(10, (2,), np.float32, max_rows=10).set_state(driver.store.get_state(10))


def test_check_invariants_of_damaged_stores_raises() -> None:
    driver = Driver(10)
    driver.add(fragment(0, 0, 4))
    driver.store._free[0], driver.store._num_free = 2, 1
    with pytest.raises(AssertionError, match="freed twice"):
        driver.check()
    driver.store._num_free = 0
    driver.store._links[1, 3] = 0
    with pytest.raises(AssertionError, match="lost"):
        driver.check()
    driver.store._links[1, 3], driver.store._links[1, 2] = 4, 1
    with pytest.raises(AssertionError, match="can be overwritten"):
        driver.check()
    driver.store._links[1, 2] = 3
    driver.store._tails[0] = driver.store._tails[0]._replace(row=1)
    with pytest.raises(AssertionError, match="remembered end"):
        driver.check()


def test_step_keys_need_episode_and_time() -> None:
    batch = fragment(0, 0, 4)
    del batch["eps_id"]
    assert StepKeys.of_batch(batch) is None
    keys = StepKeys.of_batch(fragment(0, 0, 4, n=3))
    assert keys is not None
    assert keys.n_steps is not None
    assert keys.n_steps.tolist() == [3, 3, 2, 1]
