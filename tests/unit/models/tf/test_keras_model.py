import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.catalog import ModelCatalog
from rlframe.utils.errors import ConfigError

tf = pytest.importorskip("tensorflow")

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)


class Plain(tf.keras.Model):
    """Values are the sums of observations, states count the calls."""

    def __init__(self, input_space, action_space, num_outputs=None, *, name="", memory=0, returns="all", **kwargs):
        super().__init__(name=name)
        self.returns, self.kwargs = returns, kwargs
        self.out = tf.keras.layers.Dense(num_outputs, use_bias=False)
        if memory:
            box = spaces.Box(-1, 1, (memory,), np.float32)
            self.view_requirements = {
                "state_in_0": ViewRequirement(space=box),
                "prev_rewards": ViewRequirement(shift=-1),
            }

    def call(self, input_dict):
        obs = input_dict[SampleBatch.OBS]
        states = [input_dict["state_in_0"] + 1] if "state_in_0" in input_dict else []
        extra = {} if self.returns == "no values" else {SampleBatch.VF_PREDS: tf.reduce_sum(obs, axis=1)}
        return (self.out(obs), states) if self.returns == "a pair" else (self.out(obs), states, extra)


def build(framework="tf", **options):
    config = {"custom_model": Plain, "custom_model_config": options}
    return ModelCatalog.get_model_v2(OBS, ACTIONS, 2, config, framework)


def test_keras_model_acts_has_values_and_named_weights():
    model = build(width=7)
    outputs, state = model(SampleBatch({"obs": np.eye(3, dtype=np.float32)}))
    assert state == []
    assert model.get_initial_state() == []
    assert model.value_function().numpy().tolist() == [1, 1, 1]
    np.testing.assert_allclose(outputs, model.out.get_weights()[0])  # the user's layers are found on it
    assert [variable.shape for variable in model.trainable_variables()] == [(3, 2)]
    assert model.keras_model.kwargs == {"width": 7}


def test_keras_model_has_the_memory_that_its_views_name():
    model = build(memory=4)
    (start,) = model.get_initial_state()
    assert start.shape == (4,)
    assert not start.any()
    assert set(model.view_requirements) == {"obs", "prev_rewards"}
    _, (state,) = model({"obs": np.ones((2, 3), np.float32)}, [tf.zeros((2, 4))], tf.constant([1, 1]))
    assert state.numpy().tolist() == [[1] * 4] * 2


def test_keras_model_that_returns_a_pair_is_told_what_is_wanted():
    model = build(returns="a pair")
    with pytest.raises(ValueError, match=r"must return .* dict of extra outputs\); got tuple of length 2"):
        model({"obs": np.ones((2, 3), np.float32)})


def test_keras_model_without_values_is_told_where_they_belong():
    model = build(returns="no values")
    model({"obs": np.ones((2, 3), np.float32)})
    with pytest.raises(ValueError, match=r"returned the extra outputs \[\], but .* add 'vf_preds'"):
        model.value_function()


def test_keras_model_in_torch_is_refused():
    with pytest.raises(ConfigError, match="'Plain' is a Keras model, but the config says framework='torch'"):
        build("torch")
