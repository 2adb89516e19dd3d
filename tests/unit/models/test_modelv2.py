import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.modelv2 import ModelV2
from rlframe.models.obs_layout import obs_layout, restore_original_dimensions
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.repeated_values import RepeatedValues
from rlframe.utils.spaces.repeated import Repeated

NESTED = spaces.Dict(
    z=spaces.Box(-1, 1, (2, 2), np.float32),
    a=spaces.Tuple([spaces.Discrete(3), spaces.Box(-5, 5, (2,), np.float32)]),
)


class Recorder(ModelV2):
    """Keeps what `forward` was given; returns what the test wants."""

    result = None

    def forward(self, input_dict, state, seq_lens):
        self.seen = (input_dict, state, seq_lens)
        return (input_dict["obs_flat"], state) if self.result is None else self.result


def recorder(space, **config):
    return Recorder(space, spaces.Discrete(2), 2, config, None)


def flat(space, seed=0, rows=3):
    space.seed(seed)
    samples = [space.sample() for _ in range(rows)]
    preprocessor = get_preprocessor(space)(space)
    return preprocessor.observation_space, np.stack([preprocessor.transform(s) for s in samples]), samples


@pytest.mark.parametrize("names_the_nested_space", [False, True])
def test_call_nested_observations_are_restored_and_kept_flat(names_the_nested_space):
    obs_space, obs, samples = flat(NESTED)
    model = recorder(NESTED if names_the_nested_space else obs_space)
    given = {"obs": obs}
    outputs, state = model(given)
    restored = model.seen[0]["obs"]
    np.testing.assert_array_equal(restored["z"], np.stack([s["z"] for s in samples]))
    np.testing.assert_array_equal(restored["a"][0].argmax(axis=1), [s["a"][0] for s in samples])
    np.testing.assert_array_equal(restored["a"][1], np.stack([s["a"][1] for s in samples]))
    assert restored["z"].base is not None  # views, no copies
    assert model.seen[0]["obs_flat"] is obs
    assert outputs is obs is model.last_output()
    assert state == []
    assert given.keys() == {"obs"}  # the caller's dict is not touched


def test_call_image_is_flattened_beside_the_image():
    model = recorder(spaces.Box(0, 255, (4, 4, 3), np.uint8))
    model({"obs": np.zeros((2, 4, 4, 3), np.uint8)})
    assert model.seen[0]["obs"].shape == (2, 4, 4, 3)
    assert model.seen[0]["obs_flat"].shape == (2, 48)


def test_call_without_preprocessing_hands_nested_observations_on():
    model = recorder(NESTED, _disable_preprocessor_api=True)
    model.result = (np.zeros((1, 2)), [])
    nested = {"z": np.zeros((1, 2, 2))}
    model({"obs": nested})
    assert model.seen[0]["obs"] is nested


def test_call_sample_batch_gives_states_lengths_and_training_flag():
    batch = SampleBatch(
        {
            "obs": np.zeros((4, 2), np.float32),
            "state_in_0": np.ones((2, 3), np.float32),
            "state_in_1": np.zeros((2, 3), np.float32),
            "seq_lens": np.array([2, 2]),
        },
        _is_training=True,
    )
    model = recorder(spaces.Box(-1, 1, (2,)))
    model(batch)
    inputs, state, seq_lens = model.seen
    assert [s[0, 0] for s in state] == [1, 0]
    assert seq_lens.tolist() == [2, 2]
    assert inputs["is_training"] is True
    assert "obs_flat" not in batch


def test_call_plain_dict_has_a_training_flag():
    model = recorder(spaces.Box(-1, 1, (2,)))
    model({"obs": np.zeros((1, 2), np.float32)})
    assert model.seen[0]["is_training"] is False
    model({"obs": np.zeros((1, 2), np.float32), "is_training": True})
    assert model.seen[0]["is_training"] is True


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros((2, 2)), r"must return the tuple \(outputs, list of states\); got a ndarray"),
        ((1, 2, 3), "got a tuple of length 3"),
        ((np.zeros((2, 2)), None), r"must return its states as a list .* got a NoneType"),
    ],
)
def test_call_wrong_return_is_explained(result, message):
    model = recorder(spaces.Box(-1, 1, (2,)))
    model.result = result
    with pytest.raises(ValueError, match=message):
        model({"obs": np.zeros((2, 2), np.float32)})


def test_base_model_defaults():
    model = ModelV2(spaces.Box(-1, 1, (2,)), spaces.Discrete(2), 2, {"_time_major": True}, None, "torch")
    assert model.name == "default_model"
    assert model.is_time_major()
    assert model.get_initial_state() == []
    assert model.metrics() == {}
    assert model.custom_loss(3.0, {}) == 3.0
    assert list(model.view_requirements) == ["obs"]
    assert model.inference_view_requirements is model.view_requirements
    model.inference_view_requirements = views = {}
    assert model.view_requirements is views
    with pytest.raises(NotImplementedError, match=r"must define forward\(self, input_dict, state, seq_lens\)"):
        model({"obs": np.zeros((1, 2), np.float32)})
    with pytest.raises(NotImplementedError, match=r"defines no value_function\(\)"):
        model.value_function()
    with pytest.raises(NotImplementedError, match=r"'w\.h5' cannot be loaded"):
        model.import_from_h5("w.h5")


def test_restore_original_dimensions_of_a_plain_space_changes_nothing():
    obs = np.zeros((2, 3))
    assert restore_original_dimensions(obs, spaces.Box(-1, 1, (3,)), "torch") is obs
    discrete = get_preprocessor(spaces.Discrete(3))(spaces.Discrete(3)).observation_space
    assert restore_original_dimensions(obs, discrete) is obs
    nested = {"a": obs}
    assert restore_original_dimensions(nested, spaces.Box(-1, 1, (3,))) is nested


def test_restore_original_dimensions_of_repeated_values():
    space = Repeated(spaces.Dict(p=spaces.Box(-1, 1, (2,)), k=spaces.Discrete(2)), max_len=3)
    preprocessor = get_preprocessor(space)(space)
    items = [{"p": np.array([0.1, 0.2], np.float32), "k": 1}, {"p": np.array([0.3, 0.4], np.float32), "k": 0}]
    obs = np.stack([preprocessor.transform(items), preprocessor.transform([])])
    restored = restore_original_dimensions(obs, preprocessor.observation_space)
    assert isinstance(restored, RepeatedValues)
    assert restored.lengths.tolist() == [2, 0]
    assert restored.values["p"].shape == (2, 3, 2)
    np.testing.assert_allclose(restored.values["p"][0, :2], [[0.1, 0.2], [0.3, 0.4]], rtol=1e-6)
    assert restored.values["k"][0, :2].tolist() == [[0, 1], [1, 0]]


def test_obs_layout_of_another_size_is_refused():
    wrong = spaces.Box(-1, 1, (4,))
    wrong.original_space = NESTED
    with pytest.raises(ValueError, match=r"has 4 numbers, but its original space .* flattens to 9"):
        obs_layout(wrong)


def test_inputs_of_one_step_have_their_length_beside_them():
    model = recorder(spaces.Box(-1, 1, (2,)))
    trajectory = SampleBatch({"obs": np.arange(6.0).reshape(3, 2), "new_obs": np.arange(2.0, 8.0).reshape(3, 2)})
    for index in ("last", -1):
        inputs = model.get_input_dict(trajectory, index)
        assert list(inputs) == ["obs"]
        assert inputs["obs"].tolist() == [[6.0, 7.0]]
        assert inputs.seq_lens.tolist() == [1]
    assert model.get_input_dict(trajectory, 1)["obs"].tolist() == [[2.0, 3.0]]
