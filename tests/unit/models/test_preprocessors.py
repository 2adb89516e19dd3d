"""Preprocessors: shapes, values, writing in place, batches, dtypes."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlframe.models.catalog import default_network
from rlframe.models.modelv2 import ModelV2
from rlframe.models.preprocessors import (
    AtariRamPreprocessor,
    DictFlatteningPreprocessor,
    GenericPixelPreprocessor,
    NoPreprocessor,
    OneHotPreprocessor,
    Preprocessor,
    RepeatedValuesPreprocessor,
    TupleFlatteningPreprocessor,
    get_preprocessor,
    without_preprocessing,
)
from rlframe.utils.errors import EnvError, UnsupportedSpaceException
from rlframe.utils.spaces import Repeated
from rlframe.utils.spaces.space_utils import batch

BOX = spaces.Box(-1.0, 2.0, (3,))
NESTED = spaces.Dict(
    {
        "z": spaces.Discrete(3, start=1),
        "a": spaces.Tuple([BOX, spaces.Dict({"mb": spaces.MultiBinary(4), "md": spaces.MultiDiscrete([2, 3])})]),
        "img": spaces.Box(0, 255, (2, 2, 3), np.uint8),
    }
)


def make(space, **options):
    return get_preprocessor(space)(space, options)


@pytest.mark.parametrize(
    ("space", "cls", "shape"),
    [
        (BOX, NoPreprocessor, (3,)),
        (spaces.Box(0, 255, (84, 84, 4), np.uint8), NoPreprocessor, (84, 84, 4)),
        (spaces.MultiBinary(5), NoPreprocessor, (5,)),
        (spaces.Discrete(4), OneHotPreprocessor, (4,)),
        (spaces.MultiDiscrete([2, 3]), OneHotPreprocessor, (5,)),
        (spaces.Tuple([BOX, BOX]), TupleFlatteningPreprocessor, (6,)),
        (NESTED, DictFlatteningPreprocessor, (3 + 4 + 5 + 12 + 3,)),
        (Repeated(BOX, 4), RepeatedValuesPreprocessor, (13,)),
        (spaces.Box(0, 255, (128,), np.uint8), AtariRamPreprocessor, (128,)),
        (spaces.Box(0.0, 1.0, (128,)), NoPreprocessor, (128,)),
        (spaces.Box(0, 255, (210, 160, 3), np.uint8), GenericPixelPreprocessor, (84, 84, 3)),
        (spaces.Box(0.0, 1.0, (210, 160, 3)), GenericPixelPreprocessor, (84, 84, 3)),
    ],
)
def test_preprocessor_of_space_has_class_and_shape(space, cls, shape):
    space.seed(0)
    preprocessor = make(space)
    assert type(preprocessor) is cls
    assert preprocessor.shape == shape
    assert preprocessor.size == np.prod(shape)
    observation = space.sample()
    result = preprocessor.transform(observation)
    assert result.shape == shape
    assert preprocessor.observation_space.contains(result)
    assert preprocessor.observation_space.original_space == space
    assert preprocessor.observation_space is preprocessor.observation_space
    preprocessor.check_shape(observation)


@pytest.mark.parametrize(
    "space", [BOX, NESTED, Repeated(spaces.Discrete(3), 4), spaces.MultiDiscrete([[2, 3], [4, 5]])]
)
def test_write_at_offset_equals_transform_and_touches_nothing_else(space):
    space.seed(1)
    preprocessor = make(space)
    row = np.full(preprocessor.size + 5, 7.0, np.float32)
    for _ in range(3):  # old content of the row must not shine through
        observation = space.sample()
        preprocessor.write(observation, row, 2)
        np.testing.assert_array_equal(row[2:-3], preprocessor.transform(observation).ravel())
        np.testing.assert_array_equal(np.r_[row[:2], row[-3:]], np.full(5, 7.0))


@pytest.mark.parametrize(
    "space",
    [
        BOX,
        NESTED,
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.Box(0, 255, (128,), np.uint8),
        spaces.Box(0, 255, (210, 160, 3), np.uint8),
    ],
)
def test_rows_written_at_once_equal_single_transforms(space):
    space.seed(2)
    preprocessor = make(space, dim=16)
    observations = [space.sample() for _ in range(4)]
    expected = np.stack([preprocessor.transform(observation) for observation in observations])
    rows = np.zeros((4, preprocessor.size + 1), np.float32)
    preprocessor.write_batch(batch(observations), rows, 1)
    np.testing.assert_array_equal(rows[:, 1:], expected.reshape(4, -1))


def test_pixel_preprocessor_takes_images_of_other_sizes_than_ataris():
    space = spaces.Box(0, 255, (64, 96, 3), np.uint8)
    preprocessor = GenericPixelPreprocessor(space, {"dim": 12, "zero_mean": False})
    image = np.zeros(space.shape, np.uint8)
    image[25:39, 48:] = 255  # the rows that are kept: 14 of 64, white on their right half
    small = preprocessor.transform(image)
    assert small.shape == preprocessor.shape == (12, 12, 3)
    np.testing.assert_allclose(small[:, :6], 0.0)
    np.testing.assert_allclose(small[:, 6:], 1.0, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"zero_mean": False}, {"grayscale": True}])
def test_float_screens_are_scaled_as_pixels_unless_their_space_is_within_one(options):
    pixels = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
    integers, floats = (
        make(spaces.Box(0, 255, pixels.shape, dtype), dim=20, **options) for dtype in (np.uint8, np.float32)
    )
    np.testing.assert_allclose(integers.transform(pixels), floats.transform(pixels.astype(np.float32)), rtol=1e-6)
    scaled = make(spaces.Box(-1.0, 1.0, pixels.shape), dim=20, **options)
    zero_mean = make(spaces.Box(0, 255, pixels.shape, np.uint8), dim=20, **{**options, "zero_mean": True})
    small = scaled.transform((pixels.astype(np.float32) - 128.0) / 128.0)
    np.testing.assert_allclose(small, zero_mean.transform(pixels), atol=1e-5)
    assert scaled.observation_space.contains(small)


@pytest.mark.parametrize(("low", "high", "pixels"), [(0, 255, True), (-1, 1, True), (0, 1, True), (-3, 3, False),
                                                      (0, 10, False), (-np.inf, np.inf, False)])  # fmt: skip
def test_float_screens_of_other_scales_stay_as_they_are(low, high, pixels):
    kind = get_preprocessor(spaces.Box(low, high, (210, 160, 3), np.float32))
    assert kind is (GenericPixelPreprocessor if pixels else NoPreprocessor)


@pytest.mark.parametrize("shape", [(50, 64, 3), (210, 160, 4), (210, 160)])
def test_pixel_preprocessor_of_images_that_it_cannot_crop_says_what_it_takes(shape):
    with pytest.raises(UnsupportedSpaceException, match=r"wanted \(H, W, 3\) with over 50 rows"):
        GenericPixelPreprocessor(spaces.Box(0, 255, shape, np.uint8))


def test_no_preprocessor_keeps_dtype_and_array():
    image = spaces.Box(0, 255, (4, 4), np.uint8)
    observation = image.sample()
    assert make(image).transform(observation) is observation
    assert make(image).observation_space == image
    assert make(image).observation_space is not image
    wide = spaces.Box(-1.0, 1.0, (2,), np.float64)
    assert make(wide).transform(np.zeros(2)).dtype == np.float32
    assert make(wide).observation_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert not hasattr(image, "original_space")


def test_one_hot_discrete_leaf_and_order_worked_by_hand():
    space = spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(0, 9, (2,), np.float32)})
    result = make(space).transform({"b": np.int64(2), "a": [4.0, 5.0]})
    np.testing.assert_array_equal(result, [4, 5, 0, 0, 1])
    assert result.dtype == np.float32
    assert make(space).keys == ["a", "b"]
    assert [type(p) for p in make(space).preprocessors] == [NoPreprocessor, OneHotPreprocessor]


def test_dict_unsorted_space_is_flattened_in_sorted_order():
    space = spaces.Dict({"b": spaces.Box(0, 9, (1,)), "a": spaces.Box(0, 9, (1,))}, sort_keys=False)
    np.testing.assert_array_equal(make(space).transform({"b": [1.0], "a": [2.0]}), [2.0, 1.0])


def test_whole_numbers_may_be_floats():
    prep, row = make(spaces.MultiDiscrete([2, 3])), np.zeros((2, 5), np.float32)
    np.testing.assert_array_equal(prep.transform([1.0, 2.0]), [0, 1, 0, 0, 1])
    prep.write_batch(np.array([[1.0, 2.0], [0.0, 1.0]]), row, 0)
    np.testing.assert_array_equal(row, [[0, 1, 0, 0, 1], [1, 0, 0, 1, 0]])
    with pytest.raises(EnvError, match="Return whole numbers"):
        prep.transform([1.0, 0.5])
    with pytest.raises(EnvError):
        prep.write_batch(np.array([[1.0, 2.0], [0.0, 0.5]]), row, 0)


def test_one_hot_multi_discrete_with_start_worked_by_hand():
    space = spaces.MultiDiscrete([2, 3], start=[1, -1])
    np.testing.assert_array_equal(make(space).transform(np.array([2, -1])), [0, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3), -1),
        (spaces.MultiDiscrete([2, 3]), np.array([2, 0])),
        (spaces.MultiDiscrete([2, 3]), np.array([0, -1])),
    ],
)
def test_one_hot_out_of_range_raises_instead_of_marking_neighbour(space, observation):
    with pytest.raises(EnvError, match="bound"):
        make(space).transform(observation)
    row = np.zeros((2, 20), np.float32)
    good = space.sample()
    with pytest.raises(EnvError, match="bound"):
        make(space).write_batch(np.stack([good, observation]), row, 5)


def test_flattened_bounds_are_those_of_the_leaves():
    space = spaces.Tuple([BOX, spaces.Discrete(2), spaces.Box(0, 255, (1,), np.uint8), spaces.MultiBinary(1)])
    flat = make(space).observation_space
    np.testing.assert_array_equal(flat.low, [-1, -1, -1, 0, 0, 0, 0])
    np.testing.assert_array_equal(flat.high, [2, 2, 2, 1, 1, 255, 1])


def test_repeated_short_list_is_padded_with_zeros():
    preprocessor = make(Repeated(spaces.Box(1, 9, (2,)), 3))
    row = np.full(8, 5.0, np.float32)
    preprocessor.write([[1.0, 2.0], [3.0, 4.0]], row, 0)
    np.testing.assert_array_equal(row, [2, 1, 2, 3, 4, 0, 0, 5])
    with pytest.raises(EnvError, match="at most 3"):
        preprocessor.transform([[1.0, 2.0]] * 4)


def test_pixel_constant_screen_keeps_its_value():
    space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    screen = np.full(space.shape, 192, np.uint8)
    np.testing.assert_allclose(make(space).transform(screen), 0.5, atol=1e-5)
    grey = make(space, dim=42, grayscale=True, zero_mean=False)
    assert grey.shape == (42, 42, 1)
    np.testing.assert_allclose(grey.transform(screen), 192 / 255, atol=1e-5)
    assert grey.observation_space.low.min() == 0.0


def test_pixel_halves_of_screen_stay_where_they_are():
    space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    screen = np.zeros(space.shape, np.uint8)
    screen[:105, :, 0] = 255  # upper half red
    screen[:, 80:, 1] = 255  # right half green
    small = make(space, dim=10, zero_mean=False).transform(screen)
    np.testing.assert_allclose(small[:, :, 0], np.repeat([[1.0], [0.0]], 5, axis=0) * np.ones(10), atol=1e-5)
    np.testing.assert_allclose(small[:, :, 1], np.repeat([[0.0, 1.0]], 5, axis=1) * np.ones((10, 1)), atol=1e-5)


def test_ram_bytes_are_centred():
    space = spaces.Box(0, 255, (128,), np.uint8)
    result = make(space).transform(np.array([0, 128, 192] + [0] * 125, np.uint8))
    np.testing.assert_array_equal(result[:3], [-1.0, 0.0, 0.5])
    assert result.dtype == np.float32


def test_preprocessor_space_survives_pickling_with_original():
    space = pickle.loads(pickle.dumps(make(NESTED).observation_space))
    assert space.original_space == NESTED


def test_unsupported_spaces_raise_naming_them():
    with pytest.raises(UnsupportedSpaceException, match="Sequence"):
        make(spaces.Dict({"s": spaces.Sequence(BOX)}))
    with pytest.raises(UnsupportedSpaceException, match="None"):
        get_preprocessor(None)


def test_user_preprocessor_with_old_hooks_works():
    class Halves(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (obs_space.shape[0] * options["custom_model_config"]["times"],)

        def transform(self, observation):
            return np.concatenate([observation / 2] * 2)

    preprocessor = Halves(BOX, {"custom_model_config": {"times": 2}})
    row = np.zeros(8, np.float32)
    preprocessor.write(np.ones(3), row, 1)
    np.testing.assert_array_equal(row, [0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0])
    assert preprocessor.observation_space.shape == (6,)


def test_frozen_lake_observation_becomes_one_hot():
    env = gymnasium.make("FrozenLake-v1")
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(make(env.observation_space).transform(obs), np.eye(16)[0])


def test_nested_observations_without_preprocessing_reach_the_model_as_they_were():
    space = spaces.Dict({
        "kind": spaces.Discrete(3, start=1), "seen": spaces.Tuple((BOX, spaces.MultiDiscrete([2, 5]))),
        "list": Repeated(spaces.Discrete(4), max_len=2),
    })  # fmt: skip
    preprocessor = without_preprocessing(space)
    flat = preprocessor.observation_space
    assert flat.shape == (1 + 3 + 3 + 2,)
    assert flat.original_space == space
    given = {"kind": 2, "seen": (np.float32([0.5, -1, 2]), np.array([1, 4])), "list": [3]}

    class Asks(ModelV2):
        def forward(self, input_dict, state, seq_lens):
            self.obs = input_dict["obs"]
            return input_dict["obs_flat"], state

    model = Asks(flat, spaces.Discrete(2), 2, {"_disable_preprocessor_api": True}, "asks", framework=None)
    model({"obs": preprocessor.transform(given)[None]})
    kind, (vector, choices), listed = model.obs["kind"], model.obs["seen"], model.obs["list"]
    assert kind.tolist() == [2]
    assert choices.tolist() == [[1, 4]]
    assert kind.dtype == choices.dtype == np.int64
    np.testing.assert_array_equal(vector, given["seen"][0][None])
    assert listed.lengths.tolist() == [1]
    assert listed.values[0, 0] == 3
    assert default_network(flat) == "complex_input_net"
