"""Names of variables, users' Keras models, and calls in and out of graphs."""

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.catalog import ModelCatalog
from rlframe.models.preprocessors import get_preprocessor

tf = pytest.importorskip("tensorflow")

from rlframe.models.tf.check_model import check_model  # noqa: E402 - TensorFlow may be missing
from rlframe.models.tf.fcnet import FullyConnectedNetwork  # noqa: E402
from rlframe.models.tf.misc import normc_initializer  # noqa: E402
from rlframe.models.tf.tf_modelv2 import TFModelV2  # noqa: E402
from rlframe.models.tf.variables import VariableOwner  # noqa: E402

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)
ONES = np.ones(2, np.float32)


def build(model_class, obs_space=OBS, **config):
    return ModelCatalog.get_model_v2(obs_space, ACTIONS, 2, {"custom_model": model_class, **config}, "tf")


class Functional(TFModelV2):
    """A model as RLlib's documentation writes them: a functional Keras model with two heads."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = tf.keras.layers.Input(shape=obs_space.shape, name="observations")
        hidden = tf.keras.layers.Dense(8, activation="tanh", kernel_initializer=normc_initializer(1.0))(inputs)
        outputs = tf.keras.layers.Dense(num_outputs, kernel_initializer=normc_initializer(0.01))(hidden)
        value = tf.keras.layers.Dense(1)(hidden)
        self.base_model = tf.keras.Model(inputs, [outputs, value])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        outputs, self._value_out = self.base_model(input_dict["obs"])
        return outputs, state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])


class Lazy(TFModelV2):
    """Layers in a list and a dict, built when they are called first."""

    def __init__(self, *args):
        super().__init__(*args)
        self.first = [tf.keras.layers.Dense(4), tf.keras.layers.Dense(4, use_bias=False)]
        self.heads = {"out": tf.keras.layers.Dense(2)}

    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs_flat"]
        for layer in self.first:
            x = layer(x)
        return self.heads["out"](x), state


def test_a_custom_model_tells_the_framework_where_a_program_says_none():
    made = ModelCatalog.get_model_v2(OBS, ACTIONS, 2, {"custom_model": Functional})
    assert isinstance(made, Functional)


def test_keras_model_variables_have_names_that_do_not_count_up():
    names = [
        "base_model.0.kernel",
        "base_model.1.bias",
        "base_model.2.kernel",
        "base_model.3.bias",
        "base_model.4.kernel",
        "base_model.5.bias",
    ]
    for _ in range(2):
        model = build(Functional)
        named = model.variables(as_dict=True)
        assert list(named) == names
        assert all(isinstance(variable, tf.Variable) for variable in named.values())
        assert [v is w.value for v, w in zip(named.values(), model.base_model.weights, strict=True)] == [True] * 6


def test_keras_model_trains_and_checks():
    model = build(Functional)
    check_model(model, OBS, 2, values=True)
    with tf.GradientTape() as tape:
        outputs, _ = model({"obs": np.ones((4, 3), np.float32)})
        loss = tf.reduce_sum(outputs) + tf.reduce_sum(model.value_function())
    assert all(gradient is not None for gradient in tape.gradient(loss, model.trainable_variables()))


def test_keras_layers_built_late_are_found_late():
    model = build(Lazy)
    assert model.variables() == []
    check_model(model, OBS, 2)
    names = ["first.0.kernel", "first.1.bias", "first.2.kernel", "heads.0.kernel", "heads.1.bias"]
    assert list(model.variables(as_dict=True)) == names


def test_keras_layers_that_are_frozen_are_not_trainable():
    model = build(Lazy)
    check_model(model, OBS, 2)
    model.first[0].trainable = False
    assert list(model.trainable_variables(as_dict=True)) == ["first.2.kernel", "heads.0.kernel", "heads.1.bias"]
    assert len(model.variables()) == 5


class Mixed(TFModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.keras_layer = tf.keras.layers.Dense(2)
        self.keras_layer.build((None, 3))
        self.same_layer = self.keras_layer
        self.plain = tf.Variable(ONES)
        outside = tf.Variable(ONES)
        self.register_variables([self.plain, outside])
        self.others = [FullyConnectedNetwork(*args[:2], 2, {"fcnet_hiddens": []}, "inner")]
        self.others[0].parent = self
        self.add_weight("scale", ONES, trainable=False)


def test_named_variables_order_and_uniqueness():
    model = build(Mixed)
    assert list(model.variables(as_dict=True)) == [
        "scale",
        "others.0.output.weight",
        "others.0.output.bias",
        "others.0.value.weight",
        "others.0.value.bias",
        "keras_layer.0.kernel",
        "keras_layer.1.bias",
        "plain",
        "registered.1",
    ]
    assert "scale" not in model.trainable_variables(as_dict=True)
    assert len(model.trainable_variables()) == 8


def test_named_variables_search_neither_options_nor_results():
    model = build(Functional)
    model.model_config["custom_model_config"] = {"teacher": build(Functional)}
    model.tower_stats["mean"] = tf.Variable(0.0)
    assert len(model.variables()) == 6


def test_add_weight_twice_or_under_a_found_name_is_refused():
    model = build(Mixed)
    with pytest.raises(ValueError, match="Mixed has a weight 'scale' already"):
        model.add_weight("scale", ONES)
    model.add_weight("plain", ONES)
    with pytest.raises(ValueError, match="two variables named 'plain'"):
        model.variables()


def test_add_weight_accepts_any_name_and_keeps_dtype():
    owner = VariableOwner()
    variable = owner.add_weight("_a part of: Dict/ä", np.arange(3))
    assert variable.dtype == tf.int64
    assert list(owner.named_variables()) == ["_a part of: Dict/ä"]


def test_add_weight_copies_the_array():
    owner, array = VariableOwner(), np.ones((256, 256), np.float32)
    variable = owner.add_weight("w", array)
    variable.assign_add(array)
    assert array.max() == 1
    array[:] = 7
    assert variable.numpy().max() == 2


def test_dense_works_with_and_without_bias():
    owner = VariableOwner()
    owner.add_weight("a.weight", np.array([[1.0, 2.0]], np.float32))
    assert owner.dense("a", tf.ones((1, 2))).numpy().tolist() == [[3.0]]
    owner.add_weight("a.bias", np.array([10.0], np.float32))
    assert owner.dense("a", tf.ones((1, 2))).numpy().tolist() == [[13.0]]


class Plain(TFModelV2):
    def __init__(self, *args):
        super().__init__(*args)
        self.kept = self.add_weight("w", ONES, trainable=False)


def test_copies_have_variables_of_their_own_under_the_same_names():
    model = build(Plain)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert list(twin.variables(as_dict=True)) == ["w"]
        assert twin.kept is twin.get_weight("w")
        assert twin.trainable_variables() == []
        twin.kept.assign(2 * ONES)
        assert model.kept.numpy().tolist() == [1, 1]


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match=r"unknown keyword argument\(s\) \['widht'\]"):
        TFModelV2(OBS, ACTIONS, 2, {"custom_model_config": {"width": 1}}, "net", width=1, widht=2)


def test_defaults_of_rllib():
    model = TFModelV2(OBS, ACTIONS, 2, {}, None)
    assert (model.framework, model.name) == ("tf", "default_model")
    assert model.update_ops() == []
    assert model.actor_spec() is None
    assert model.tower_stats == {}
    with pytest.raises(NotImplementedError, match=r"must define forward\(self, input_dict, state, seq_lens\)"):
        model({"obs": np.zeros((1, 3), np.float32)})


# --- calls ------------------------------------------------------------------------------------------------------


class Seeing(TFModelV2):
    def forward(self, input_dict, state, seq_lens):
        self.seen = (input_dict, state, seq_lens)
        return input_dict["obs_flat"][:, :2], state


NESTED = spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([spaces.Box(-1, 1, (2, 2), np.float32)]))


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("array", [False, True])
def test_call_restores_nested_observations(graph, array):
    preprocessor = get_preprocessor(NESTED)(NESTED)
    model = build(Seeing, preprocessor.observation_space)
    obs = np.stack([preprocessor.transform(NESTED.sample()) for _ in range(4)])

    def run(obs):
        outputs, _ = model({"obs": obs})
        restored = model.seen[0]["obs"]
        return outputs, restored["a"], restored["b"][0]

    if graph:
        run = tf.function(run, input_signature=[tf.TensorSpec([None, 7])])
    outputs, a, b = run(obs if array else tf.constant(obs))
    np.testing.assert_array_equal(outputs, obs[:, :2])
    np.testing.assert_array_equal(a, obs[:, :3])
    np.testing.assert_array_equal(b, obs[:, 3:].reshape(4, 2, 2))
    assert tf.is_tensor(model.seen[0]["obs_flat"])
    assert model.seen[0]["is_training"] is False


def test_call_images_are_flattened_beside_the_image():
    model = build(Seeing, spaces.Box(0, 255, (4, 4, 3), np.uint8))
    seen = []

    @tf.function(input_signature=[tf.TensorSpec([None, 4, 4, 3], tf.uint8)])
    def run(obs):
        model({"obs": obs})
        seen.append((model.seen[0]["obs"].shape.as_list(), model.seen[0]["obs_flat"].shape.as_list()))

    run(np.zeros((2, 4, 4, 3), np.uint8))
    assert seen == [([None, 4, 4, 3], [None, 48])]


def test_call_rows_whose_width_tensorflow_does_not_know_are_taken_as_they_are():
    model = build(Seeing, spaces.Box(-1, 1, (7,)))

    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def run(obs):
        return model({"obs": obs})[0]

    obs = np.arange(14, dtype=np.float32).reshape(2, 7)
    np.testing.assert_array_equal(run(tf.constant(obs)), obs[:, :2])


def test_call_sample_batch_gives_states_and_lengths():
    model = build(Seeing)
    batch = SampleBatch(
        {
            "obs": np.zeros((4, 3), np.float32),
            "state_in_0": np.ones((2, 3), np.float32),
            "seq_lens": np.array([2, 2]),
        },
        _is_training=True,
    )
    model(batch)
    inputs, state, seq_lens = model.seen
    assert state[0].shape == (2, 3)
    assert seq_lens.tolist() == [2, 2]
    assert inputs["is_training"] is True
    assert isinstance(batch["obs"], np.ndarray)


def test_call_in_a_graph_converts_conditions_on_tensors_in_the_user_s_forward():
    class Conditional(Seeing):
        def forward(self, input_dict, state, seq_lens):
            x = input_dict["obs"][:, :2]
            if tf.reduce_sum(x) > 0:
                x = -x
            return x, state

    model = build(Conditional)
    run = tf.function(lambda obs: model({"obs": obs})[0], input_signature=[tf.TensorSpec([None, 3])])
    assert run(np.ones((1, 3), np.float32)).numpy().tolist() == [[-1, -1]]
    assert run(-np.ones((1, 3), np.float32)).numpy().tolist() == [[-1, -1]]
