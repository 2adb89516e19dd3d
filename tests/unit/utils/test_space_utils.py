"""Spaces of our own, structures of spaces, and the mapping between actions and environments."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces import FlexDict, Repeated, Simplex
from rlframe.utils.spaces.space_maps import clip_action, normalize_action, unsquash_action
from rlframe.utils.spaces.space_utils import (
    batch,
    flatten_to_single_ndarray,
    get_base_struct_from_space,
    get_dummy_batch_for_space,
    unbatch,
)

BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))


def test_unsquash_bounded_box_maps_range_and_clips():
    actions = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [3.0, -3.0]], np.float32)
    result = unsquash_action(actions, BOX)
    np.testing.assert_allclose(result, [[-2, 0], [0, 5], [2, 10], [2, 0]])
    assert result.dtype == np.float32
    np.testing.assert_allclose(unsquash_action(actions[1], BOX), [0, 5])


def test_unsquash_asymmetric_range_reaches_both_ends():
    space = spaces.Box(-30.0, 50.0, (1,))  # a range that used to be scaled twice for some algorithms
    np.testing.assert_allclose(unsquash_action(np.array([[-1.0], [1.0]]), space), [[-30.0], [50.0]])


def test_unsquash_unbounded_dimensions_keep_value_up_to_single_bound():
    space = spaces.Box(np.float32([-np.inf, 0.0, -1.0]), np.float32([np.inf, np.inf, 3.0]))
    result = unsquash_action(np.array([[7.0, -5.0, 0.0], [-7.0, 5.0, 1.0]], np.float32), space)
    np.testing.assert_allclose(result, [[7.0, 0.0, 1.0], [-7.0, 5.0, 3.0]])


def test_unsquash_huge_bounds_do_not_overflow():
    limit = np.finfo(np.float32).max
    space = spaces.Box(-limit, limit, (2,))
    np.testing.assert_allclose(normalize_action(np.float32([-limit, limit]), space), [-1.0, 1.0])
    np.testing.assert_allclose(unsquash_action(np.array([-1.0, 1.0], np.float32), space), [-limit, limit])


def test_unsquash_integer_box_counts_from_low():
    space = spaces.Box(-3, 4, (2,), np.int64)
    result = unsquash_action(np.array([[0, 7]]), space)
    np.testing.assert_array_equal(result, [[-3, 4]])
    assert result.dtype == np.int64
    np.testing.assert_array_equal(normalize_action(result, space), [[0, 7]])


def test_unsquash_small_integer_box_does_not_wrap_around():
    space = spaces.Box(-100, 100, (1,), np.int8)
    np.testing.assert_array_equal(unsquash_action(np.array([200]), space), [100])
    np.testing.assert_array_equal(unsquash_action(np.array([0]), space), [-100])


def test_unsquash_discrete_returns_same_object():
    action = np.array([1, 2])
    assert unsquash_action(action, spaces.Discrete(3)) is action
    assert clip_action(action, spaces.Discrete(3)) is action
    assert normalize_action(action, spaces.Discrete(3)) is action


@pytest.mark.parametrize("by_struct", [True, False])
def test_unsquash_nested_structure_batched_maps_leaves(by_struct):
    space = spaces.Dict({"a": BOX, "b": spaces.Tuple([spaces.Discrete(3), BOX])})
    struct = get_base_struct_from_space(space) if by_struct else space
    ones = np.ones((4, 2), np.float32)
    result = unsquash_action({"a": ones, "b": (np.arange(4), -ones)}, struct)
    np.testing.assert_allclose(result["a"], np.tile([2.0, 10.0], (4, 1)))
    np.testing.assert_array_equal(result["b"][0], np.arange(4))
    np.testing.assert_allclose(result["b"][1], np.tile([-2.0, 0.0], (4, 1)))


def test_normalize_random_actions_inverts_unsquash():
    space = spaces.Box(np.float32([-2.0, 0.0, -np.inf]), np.float32([2.0, 10.0, np.inf]))
    actions = np.random.default_rng(0).uniform(-1, 1, (16, 3)).astype(np.float32)
    np.testing.assert_allclose(normalize_action(unsquash_action(actions, space), space), actions, atol=1e-6)


def test_normalize_degenerate_dimension_gives_middle():
    space = spaces.Box(3.0, 3.0, (1,))
    np.testing.assert_array_equal(normalize_action(np.array([3.0]), space), [0.0])
    np.testing.assert_array_equal(unsquash_action(np.array([0.4]), space), [3.0])


def test_clip_action_outside_is_put_on_bounds_in_dtype():
    result = clip_action(np.array([[-9.0, 99.0]], np.float64), BOX)
    np.testing.assert_array_equal(result, [[-2.0, 10.0]])
    assert result.dtype == np.float32


def test_base_struct_nested_space_gives_tuples_and_dicts():
    d = spaces.Discrete(2)
    assert get_base_struct_from_space(d) is d
    assert get_base_struct_from_space(spaces.Dict({"x": spaces.Tuple([d, BOX])})) == {"x": (d, BOX)}


def test_flatten_structure_orders_keys_and_keeps_batch():
    assert flatten_to_single_ndarray(np.ones(3)).shape == (3,)
    single = flatten_to_single_ndarray({"b": 1, "a": (np.array([2.0, 3.0]), 4)})
    np.testing.assert_array_equal(single, [2, 3, 4, 1])
    many = flatten_to_single_ndarray((np.arange(4), np.ones((4, 2, 2))), batch_dims=1)
    assert many.shape == (4, 5)
    np.testing.assert_array_equal(many[:, 0], np.arange(4))


def test_unbatch_inverts_batch():
    rows = [{"a": np.array([i, i]), "b": (np.array(i), np.array([2.0 * i]))} for i in range(3)]
    back = unbatch(batch(rows))
    assert len(back) == 3
    np.testing.assert_array_equal(back[2]["a"], [2, 2])
    np.testing.assert_array_equal(back[1]["b"][1], [2.0])
    with pytest.raises(ValueError, match="empty"):
        batch([])


def test_unbatch_gives_rows_of_lists_and_takes_numbers_as_they_are():
    assert unbatch([np.arange(3), np.arange(4, 7)]) == [[0, 4], [1, 5], [2, 6]]
    assert unbatch({"a": [1, 2], "b": ([3, 4],)}) == [{"a": 1, "b": (3,)}, {"a": 2, "b": (4,)}]
    assert unbatch([1.5, 2.5]) == [1.5, 2.5]


def test_dummy_batch_shapes_and_dtypes_follow_space():
    space = spaces.Dict({"img": spaces.Box(0, 255, (4, 4), np.uint8), "d": spaces.Discrete(3)})
    dummy = get_dummy_batch_for_space(space, 5)
    assert dummy["img"].shape == (5, 4, 4)
    assert dummy["img"].dtype == np.uint8
    assert dummy["d"].shape == (5,)
    assert get_dummy_batch_for_space(BOX, 5, time_size=7).shape == (5, 7, 2)
    assert get_dummy_batch_for_space(BOX, 5, time_size=7, time_major=True).shape == (7, 5, 2)
    assert get_dummy_batch_for_space(BOX, 0, fill_value=1.5).tolist() == [1.5, 1.5]
    assert get_dummy_batch_for_space(spaces.Discrete(3), 0).shape == ()


def test_dummy_batch_random_lies_in_space():
    space = spaces.MultiDiscrete([3, 4])
    dummy = get_dummy_batch_for_space(space, 8, "random")
    assert all(space.contains(row) for row in dummy)
    one_hot = get_dummy_batch_for_space(space, 8, "random", one_hot_discrete=True)
    assert one_hot.shape == (8, 7)
    np.testing.assert_array_equal(one_hot.sum(axis=1), 2.0)
    assert get_dummy_batch_for_space(spaces.Discrete(3, start=5), 2, one_hot_discrete=True).shape == (2, 3)


def test_dummy_batch_without_fixed_shape_raises():
    with pytest.raises(UnsupportedSpaceException, match="no fixed shape"):
        get_dummy_batch_for_space(spaces.Sequence(BOX), 2)


def test_simplex_samples_lie_in_space():
    space = Simplex((2, 3), concentration=[1.0, 2.0, 3.0])
    space.seed(0)
    sample = space.sample()
    assert sample.shape == (2, 3)
    assert sample.dtype == np.float32
    assert sample in space
    assert np.array([[0.5, 0.6, -0.1]] * 2) not in space
    assert np.array([0.5, 0.5]) not in space
    assert space == pickle.loads(pickle.dumps(space)) != Simplex((2, 3))
    with pytest.raises(ValueError, match=r"wanted \(3,\)"):
        Simplex((2, 3), concentration=[1.0])


def test_repeated_samples_lie_in_space():
    space = Repeated(BOX, 3)
    space.seed(0)
    assert {len(space.sample()) for _ in range(50)} == {0, 1, 2, 3}
    assert space.sample() in space
    assert [BOX.sample()] * 4 not in space
    assert [np.full(2, 99.0, np.float32)] not in space
    assert space == Repeated(BOX, 3) != Repeated(BOX, 4)


def test_flex_dict_added_key_belongs_to_space():
    space = FlexDict({"a": spaces.Discrete(2)}, b=BOX)
    space["c"] = spaces.Discrete(5)
    assert sorted(space.sample()) == ["a", "b", "c"]
