"""Returns and advantages, on numbers worked by hand."""

import numpy as np
import pytest

from rlframe.data.column_dict import continues, trajectory_ends
from rlframe.data.n_step import n_step
from rlframe.data.returns import discount_cumsum, gae
from rlframe.data.sample_batch import SampleBatch


def fragment(rows: int = 4, **columns: list) -> SampleBatch:
    batch = {
        "obs": np.arange(rows, dtype=np.float32),
        "new_obs": np.arange(1, rows + 1, dtype=np.float32),
        "rewards": 2.0 ** np.arange(rows, dtype=np.float32),
        "terminateds": np.zeros(rows, bool),
        "truncateds": np.zeros(rows, bool),
        "eps_id": np.zeros(rows, np.int64),
        "t": np.arange(rows),
    }
    return SampleBatch({**batch, **{key: np.asarray(value) for key, value in columns.items()}})


def test_discount_cumsum_by_hand():
    assert discount_cumsum(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]
    sums = discount_cumsum(np.array([[1, 0], [2, 1]]), 0.5)
    assert sums.tolist() == [[2.0, 0.5], [2.0, 1.0]]
    assert sums.dtype == np.float64


def test_discount_cumsum_keeps_float32_and_input():
    x = np.ones(3, np.float32)
    assert discount_cumsum(x, 1.0).dtype == np.float32
    assert x.tolist() == [1, 1, 1]
    assert discount_cumsum(np.zeros(0), 0.9).shape == (0,)


def test_n_step_mid_episode_uses_fewer_at_the_end_of_the_fragment():
    batch = n_step(fragment(), 3, 0.5)
    # r = 1, 2, 4, 8: 1 + 2/2 + 4/4, 2 + 4/2 + 8/4, 4 + 8/2, 8.
    assert batch["rewards"].tolist() == [3.0, 6.0, 8.0, 8.0]
    assert batch["new_obs"].tolist() == [3.0, 4.0, 4.0, 4.0]
    assert batch["n_steps"].tolist() == [3, 3, 2, 1]
    assert batch["discounts"].tolist() == [0.125, 0.125, 0.25, 0.5]


def test_n_step_termination_zeroes_discounts_of_rows_that_reach_it():
    batch = n_step(fragment(terminateds=[False, True, False, False], t=[0, 1, 0, 1], eps_id=[0, 0, 1, 1]), 3, 0.5)
    assert batch["rewards"].tolist() == [2.0, 2.0, 8.0, 8.0]
    assert batch["discounts"].tolist() == [0.0, 0.0, 0.25, 0.5]
    assert batch["terminateds"].tolist() == [True, True, False, False]
    assert batch["dones"].tolist() == [True, True, False, False]
    assert batch["new_obs"].tolist() == [2.0, 2.0, 4.0, 4.0]


def test_n_step_truncation_bootstraps_with_the_steps_there_were():
    batch = n_step(fragment(truncateds=[False, True, False, False], eps_id=[0, 0, 1, 1], t=[0, 1, 0, 1]), 4, 0.5)
    assert batch["discounts"].tolist() == [0.25, 0.5, 0.25, 0.5]
    assert batch["truncateds"].tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    "cut",
    [{"eps_id": [0, 0, 1, 1]}, {"t": [0, 1, 5, 6]}, {"agent_index": [0, 0, 1, 1]}, {"truncateds": [0, 1, 0, 0]}],
)
def test_n_step_any_boundary_ends_the_sum(cut):
    columns = {key: np.asarray(value, bool if key == "truncateds" else np.int64) for key, value in cut.items()}
    assert n_step(fragment(**columns), 4, 1.0)["n_steps"].tolist() == [2, 1, 2, 1]


def test_n_step_one_leaves_rewards_and_observations_alone():
    batch = fragment(terminateds=[False, False, False, True])
    rewards, new_obs = batch["rewards"], batch["new_obs"]
    assert n_step(batch, 1, 0.5) is batch
    assert batch["rewards"] is rewards
    assert batch["new_obs"] is new_obs
    assert batch["discounts"].tolist() == [0.5, 0.5, 0.5, 0.0]
    assert batch["n_steps"].tolist() == [1, 1, 1, 1]
    assert (batch["discounts"].dtype, batch["n_steps"].dtype) == (np.float32, np.int32)


def test_n_step_arrays_of_the_collector_are_not_written_to():
    batch = fragment()
    originals = {key: (value, value.copy()) for key, value in batch.items()}
    n_step(batch, 3, 0.9)
    for array, before in originals.values():
        np.testing.assert_array_equal(array, before)


def test_n_step_old_batches_with_only_dones_count_them_as_terminal():
    batch = fragment()
    del batch["terminateds"], batch["truncateds"]
    batch["dones"] = np.array([False, False, False, True])
    n_step(batch, 2, 0.5)
    assert batch["discounts"].tolist() == [0.25, 0.25, 0.0, 0.0]
    assert batch["terminateds"].tolist() == batch["dones"].tolist() == [False, False, True, True]


def test_n_step_nested_observations_move_together():
    batch = fragment()
    batch["new_obs"] = {"a": batch["new_obs"], "b": (batch["new_obs"] * 10,)}
    assert n_step(batch, 2, 0.5)["new_obs"]["b"][0].tolist() == [20.0, 30.0, 40.0, 40.0]


def test_n_step_without_labels_is_one_trajectory():
    batch = fragment()
    del batch["eps_id"], batch["t"]
    assert n_step(batch, 4, 1.0)["n_steps"].tolist() == [4, 3, 2, 1]


def test_n_step_longer_than_batch_and_empty_batch():
    assert n_step(fragment(2), 10, 1.0)["n_steps"].tolist() == [2, 1]
    assert n_step(fragment(1), 10, 0.5)["discounts"].tolist() == [0.5]
    assert n_step(fragment(0), 3, 0.5)["n_steps"].shape == (0,)


@pytest.mark.parametrize(("n", "gamma"), [(0, 0.9), (1, 1.1), (3, -0.1)])
def test_n_step_out_of_range_is_refused(n, gamma):
    with pytest.raises(ValueError, match=f"n_step={n}, gamma={gamma}"):
        n_step(fragment(), n, gamma)


def test_n_step_without_any_end_column_says_what_is_missing():
    batch = fragment()
    del batch["terminateds"], batch["truncateds"]
    with pytest.raises(KeyError, match="dones"):
        n_step(batch, 2, 0.9)


def test_trajectory_ends_marks_last_rows():
    batch = fragment(terminateds=[False, True, False, False], eps_id=[0, 0, 1, 1], t=[0, 1, 0, 1])
    assert continues(batch).tolist() == [True, False, True]
    assert trajectory_ends(batch).tolist() == [False, True, False, True]


def test_gae_by_hand_with_termination():
    # delta_1 = 2 - 3 = -1; delta_0 = 1 + 0.5 * 3 - 2 = 0.5; A_0 = 0.5 + 0.25 * (-1).
    advantages, targets = gae(
        np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([3.0, 9.0]), np.array([False, True]),
        np.array([False, True]), 0.5, 0.5,
    )  # fmt: skip
    assert advantages.tolist() == [0.25, -1.0]
    assert targets.tolist() == [2.25, 2.0]
    assert advantages.dtype == targets.dtype == np.float32


def test_gae_truncation_cuts_the_trace_but_bootstraps():
    one, no = np.ones(2), np.zeros(2, bool)
    advantages, _ = gae(one, one * 2, one * 4, no, np.array([True, False]), 0.5, 1.0)
    assert advantages.tolist() == [1.0, 1.0]


def test_gae_columns_of_a_matrix_equal_vectors_to_the_bit():
    rng = np.random.default_rng(0)
    rewards, values, after = (rng.normal(size=(40, 3)).astype(np.float32) for _ in range(3))
    terminateds = rng.random((40, 3)) < 0.1
    ends = terminateds | (rng.random((40, 3)) < 0.1)
    matrix = gae(rewards, values, after, terminateds, ends, 0.99, 0.95)
    for slot in range(3):
        columns = (array[:, slot] for array in (rewards, values, after, terminateds, ends))
        for whole, vector in zip(matrix, gae(*columns, 0.99, 0.95), strict=True):
            np.testing.assert_array_equal(whole[:, slot], vector)


def test_gae_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="wanted one shape"):
        gae(np.zeros(3), np.zeros(3), np.zeros(4), np.zeros(3), np.zeros(3), 0.9, 0.9)


def test_gae_empty_gives_empty():
    for shape in ((0,), (0, 4)):
        assert gae(*[np.zeros(shape)] * 5, 0.9, 0.9)[0].shape == shape
