import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.models.catalog import ModelCatalog
from rlframe.models.conv_sizes import DEFAULT_FILTERS, plan_convs
from rlframe.models.obs_layout import restore_original_dimensions
from rlframe.models.preprocessors import get_preprocessor
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.spaces.repeated import Repeated

tf = pytest.importorskip("tensorflow")

from rlframe.agents.dqn.dqn_tf_model import DQNTFModel  # noqa: E402 - TensorFlow may be missing
from rlframe.models.tf import keras_two  # noqa: E402
from rlframe.models.tf.complex_input_net import ComplexInputNetwork  # noqa: E402
from rlframe.models.tf.fcnet import FullyConnectedNetwork  # noqa: E402
from rlframe.models.tf.misc import ACTIVATION_FUNCTIONS, seeded_initial_weights  # noqa: E402
from rlframe.models.tf.recurrent_net import RecurrentNetwork  # noqa: E402
from rlframe.models.tf.tf_modelv2 import TFModelV2  # noqa: E402
from rlframe.models.tf.visionnet import VisionNetwork  # noqa: E402

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)


def fcnet(**config):
    return FullyConnectedNetwork(OBS, ACTIONS, 2, {"fcnet_hiddens": [8, 4], **config}, "net")


def rows(*shape):
    return np.random.default_rng(0).random(shape).astype(np.float32)


def gradients(model, loss, tape):
    named = model.trainable_variables(as_dict=True)
    return dict(zip(named, tape.gradient(loss, list(named.values())), strict=True))


# --- vectors ----------------------------------------------------------------------------------------------------


def test_fcnet_variables_have_the_names_and_layout_of_torch():
    shapes = {name: tuple(v.shape) for name, v in fcnet(vf_share_layers=False).variables(as_dict=True).items()}
    assert shapes == {
        "hidden_0.weight": (8, 3),
        "hidden_0.bias": (8,),
        "hidden_1.weight": (4, 8),
        "hidden_1.bias": (4,),
        "output.weight": (2, 4),
        "output.bias": (2,),
        "value_hidden_0.weight": (8, 3),
        "value_hidden_0.bias": (8,),
        "value_hidden_1.weight": (4, 8),
        "value_hidden_1.bias": (4,),
        "value.weight": (1, 4),
        "value.bias": (1,),
    }


def test_fcnet_initial_rows_have_norm_one_and_heads_one_hundredth():
    for name, variable in fcnet().variables(as_dict=True).items():
        if name.endswith("bias"):
            assert not variable.numpy().any()
            continue
        expected = 0.01 if name.startswith(("output", "value")) else 1.0
        np.testing.assert_allclose(np.linalg.norm(variable, axis=1), expected, rtol=1e-5)


def test_fcnet_same_seed_gives_the_same_weights():
    made = []
    for seed in (3, 3, 4, None, None):
        with seeded_initial_weights(seed):
            made.append(fcnet().get_weight("hidden_0.weight").numpy())
    made.append(fcnet().get_weight("hidden_0.weight").numpy())
    np.testing.assert_array_equal(made[0], made[1])
    assert len({array.tobytes() for array in made}) == 5


def test_fcnet_values_have_one_number_per_row_and_gradients():
    net = fcnet()
    with tf.GradientTape() as tape:
        outputs, state = net({"obs": rows(5, 3)})
        values = net.value_function()
        loss = tf.reduce_sum(outputs) + tf.reduce_sum(values)
    assert outputs.shape == (5, 2)
    assert values.shape == (5,)
    assert state == []
    assert all(gradient is not None for gradient in gradients(net, loss, tape).values())


def test_fcnet_separate_value_network_sends_no_gradient_to_the_policy():
    net = fcnet(vf_share_layers=False)
    with tf.GradientTape() as tape:
        net({"obs": rows(5, 3)})
        loss = tf.reduce_sum(net.value_function())
    by_name = gradients(net, loss, tape)
    assert by_name["hidden_0.weight"] is None
    assert by_name["value_hidden_0.weight"] is not None


def test_fcnet_value_before_forward_or_without_head_is_refused():
    with pytest.raises(ValueError, match="call the model first"):
        fcnet().value_function()

    class NoValues(FullyConnectedNetwork):
        uses_value_function = False

    net = NoValues(OBS, ACTIONS, 2, {"fcnet_hiddens": []}, "net")
    assert list(net.variables(as_dict=True)) == ["output.weight", "output.bias"]
    with pytest.raises(ValueError, match="without a value head"):
        net.value_function()


def test_fcnet_without_num_outputs_tells_its_width():
    assert FullyConnectedNetwork(OBS, ACTIONS, None, {"fcnet_hiddens": [8, 4]}, "net").num_outputs == 4
    assert FullyConnectedNetwork(OBS, ACTIONS, None, {"fcnet_hiddens": []}, "net").num_outputs == 3


def test_fcnet_free_log_std_does_not_depend_on_the_state():
    net = fcnet(free_log_std=True)
    net.get_weight("free_log_std.log_std").assign([-1.5])
    outputs, _ = net({"obs": rows(5, 3)})
    assert outputs[:, 1].numpy().tolist() == [-1.5] * 5


def test_fcnet_observations_of_another_width_fail():
    with pytest.raises(tf.errors.InvalidArgumentError):
        fcnet()({"obs": rows(4, 6)})  # not taken for eight rows of three


def test_fcnet_is_usable_inside_a_user_s_model():
    class Outer(TFModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.inner = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, name)

        def forward(self, input_dict, state, seq_lens):
            input_dict["obs"] = tf.cast(input_dict["obs"], tf.float32)
            return self.inner(input_dict, state, seq_lens)

        def value_function(self):
            return tf.reshape(self.inner.value_function(), [-1])

    outer = Outer(OBS, ACTIONS, 2, {"fcnet_hiddens": [4]}, "outer")
    assert outer({"obs": rows(5, 3)})[0].shape == (5, 2)
    assert outer.value_function().shape == (5,)
    assert "inner.hidden_0.weight" in outer.variables(as_dict=True)


def test_actor_spec_of_a_subclass_that_computes_otherwise_is_none():
    class Doubled(FullyConnectedNetwork):
        def forward(self, input_dict, state, seq_lens):
            outputs, state = super().forward(input_dict, state, seq_lens)
            return outputs * 2, state

    assert fcnet().actor_spec()["shared"] == 2
    assert Doubled(OBS, ACTIONS, 2, {}, "net").actor_spec() is None


def test_model_after_forward_can_be_copied_and_pickled():
    net = fcnet()
    net.tower_stats["loss"] = tf.constant(1.0)
    tf.function(lambda obs: net({"obs": obs})[0])(rows(5, 3))
    assert tf.is_symbolic_tensor(net.last_output())
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin.last_output() is None
        assert twin.tower_stats == {}
        mine, theirs = net.get_weight("hidden_0.weight"), twin.get_weight("hidden_0.weight")
        np.testing.assert_array_equal(mine, theirs)
        theirs.assign_add(tf.ones_like(theirs))
        assert not np.array_equal(mine, theirs)
        np.testing.assert_array_equal(net({"obs": rows(2, 3)})[0].shape, twin({"obs": rows(2, 3)})[0].shape)


# --- images -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_visionnet_default_filters_run(dtype):
    space = spaces.Box(0, 255, (42, 42, 3), dtype)
    net = VisionNetwork(space, ACTIONS, 2, {}, "net")
    outputs, _ = net({"obs": np.stack([space.sample() for _ in range(2)])})
    assert outputs.shape == (2, 2)
    assert net.value_function().shape == (2,)


@pytest.mark.parametrize("size", sorted(DEFAULT_FILTERS))
def test_default_filters_leave_one_pixel(size):
    assert plan_convs((*size, 3), DEFAULT_FILTERS[size])[1] == 256


SMALL = spaces.Box(0, 1, (8, 8, 2), np.float32)


def test_visionnet_convolution_has_the_layout_of_torch():
    net = VisionNetwork(SMALL, ACTIONS, None, {"conv_filters": [[4, 8, 1]], "conv_activation": "linear"}, "net")
    images = rows(3, 8, 8, 2)
    variables = net.variables(as_dict=True)
    weight, bias = variables["convs.convs.0._model.0.weight"], variables["convs.convs.0._model.0.bias"]
    bias.assign([1.0, 2.0, 3.0, 4.0])
    expected = np.einsum("bhwc,ochw->bo", images, weight.numpy()) + bias.numpy()
    np.testing.assert_allclose(net({"obs": images})[0], expected, rtol=1e-5, atol=1e-5)


def test_visionnet_initial_kernels_are_xavier_uniform():
    config = {"conv_filters": [[64, 4, 2], [128, 4, 1]]}
    net = VisionNetwork(spaces.Box(0, 1, (8, 8, 2), np.float32), ACTIONS, 2, config, "net")
    kernel = net.variables(as_dict=True)["convs.convs.1._model.0.weight"].numpy()
    bound = np.sqrt(6 / (16 * (64 + 128)))
    assert 0.99 * bound < np.abs(kernel).max() <= bound
    assert abs(kernel.mean()) < 0.01 * bound


def test_visionnet_without_outputs_of_its_own_gives_all_features():
    """A memory has them before it: 8 channels of 3x3; values alone have convolutions of their own."""
    filters = {"conv_filters": [[4, 3, 2], [8, 2, 1]], "vf_share_layers": False}
    net = VisionNetwork(SMALL, ACTIONS, None, filters, "net")
    assert net.num_outputs == 72
    assert tuple(net({"obs": np.ones((3, 8, 8, 2), np.float32)})[0].shape) == (3, 72)
    assert tuple(net.value_function().shape) == (3,)


def test_visionnet_filters_that_do_not_reduce_are_explained_with_sizes():
    with pytest.raises(ConfigError, match=r"sizes 8x8 -> 4x4 -> 3x3; the last layer must leave 1x1.*kernel \[4, 4\]"):
        VisionNetwork(SMALL, ACTIONS, 2, {"conv_filters": [[4, 3, 2], [8, 2, 1]]}, "net")
    with pytest.raises(ConfigError, match="sizes 8x8 -> -1x-1"):
        VisionNetwork(SMALL, ACTIONS, 2, {"conv_filters": [[4, 10, 1]]}, "net")


def test_visionnet_filters_that_do_not_reduce_serve_before_dense_layers():
    config = {"conv_filters": [[4, 3, 2], [8, 2, 1]], "post_fcnet_hiddens": [16]}
    net = VisionNetwork(SMALL, ACTIONS, 2, config, "net")
    assert net.convs.out_size == 8 * 9
    assert net({"obs": rows(3, 8, 8, 2)})[0].shape == (3, 2)


def test_visionnet_unknown_size_without_filters_is_explained():
    with pytest.raises(ConfigError, match=r"images of 8x8 \(there are for 42x42, 84x84, .*\). Set model.conv_filters"):
        VisionNetwork(SMALL, ACTIONS, 2, {}, "net")


@pytest.mark.parametrize("hiddens", [[], [16]])
@pytest.mark.parametrize("share", [True, False])
def test_visionnet_no_final_linear_and_separate_values(hiddens, share):
    config = {
        "conv_filters": [[4, 8, 1]],
        "post_fcnet_hiddens": hiddens,
        "no_final_linear": True,
        "vf_share_layers": share,
    }
    net = VisionNetwork(SMALL, ACTIONS, 6, config, "net")
    with tf.GradientTape() as tape:
        outputs, _ = net({"obs": rows(3, 8, 8, 2)})
        loss = tf.reduce_sum(net.value_function())
    assert outputs.shape == (3, 6)
    assert outputs.numpy().min() >= 0  # ReLU
    assert (gradients(net, loss, tape)["convs.convs.0._model.0.weight"] is not None) == share


def test_visionnet_value_before_forward_or_without_head_is_refused():
    config = {"conv_filters": [[4, 8, 1]]}
    with pytest.raises(ValueError, match="call the model first"):
        VisionNetwork(SMALL, ACTIONS, 2, config, "net").value_function()

    class NoValues(VisionNetwork):
        uses_value_function = False

    net = NoValues(SMALL, ACTIONS, 2, config, "net")
    assert not [name for name in net.variables(as_dict=True) if "value" in name]
    with pytest.raises(ValueError, match="without a value head"):
        net.value_function()


# --- nested observations ----------------------------------------------------------------------------------------

NESTED = spaces.Dict(
    image=SMALL,
    inner=spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2])]),
    vector=spaces.Box(-1, 1, (2, 2), np.float32),
)
CONV = {"conv_filters": [[5, 8, 1]]}


def test_complex_net_same_features_with_and_without_preprocessing():
    preprocessor = get_preprocessor(NESTED)(NESTED)
    with seeded_initial_weights(0):
        net = ComplexInputNetwork(preprocessor.observation_space, ACTIONS, None, CONV, "net")
    with seeded_initial_weights(0):
        raw = ComplexInputNetwork(NESTED, ACTIONS, None, {**CONV, "_disable_preprocessor_api": True}, "net")
    NESTED.seed(0)
    samples = [NESTED.sample() for _ in range(4)]
    flat = np.stack([preprocessor.transform(sample) for sample in samples])
    nested = {
        "image": np.stack([s["image"] for s in samples]),
        "inner": tuple(np.stack([s["inner"][i] for s in samples]) for i in range(2)),
        "vector": np.stack([s["vector"] for s in samples]),
    }
    outputs, _ = net({"obs": flat})
    assert net.num_outputs == 5 + 3 + 4 + 4
    np.testing.assert_allclose(outputs, raw({"obs": nested})[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", [{}, {"post_fcnet_hiddens": [7]}, {"no_final_linear": True}])
def test_complex_net_outputs_and_values_have_their_shapes(config):
    space = get_preprocessor(NESTED)(NESTED).observation_space
    net = ComplexInputNetwork(space, ACTIONS, 2, {**CONV, **config}, "net")
    assert "convs.image.convs.0._model.0.weight" in net.variables(as_dict=True)
    with pytest.raises(ValueError, match="call the model first"):
        net.value_function()
    outputs, _ = net({"obs": rows(3, *space.shape)})
    assert outputs.shape == (3, 2)
    assert net.value_function().shape == (3,)


def test_complex_net_plain_space_is_refused():
    with pytest.raises(UnsupportedSpaceException, match="wants a Dict or Tuple"):
        ComplexInputNetwork(OBS, ACTIONS, 2, {}, "net")


@pytest.mark.parametrize("graph", [False, True])
def test_restore_original_dimensions_of_tensors_equals_that_of_arrays(graph):
    space = spaces.Dict(a=NESTED["inner"], r=Repeated(spaces.Dict(p=spaces.Box(-1, 1, (2, 2))), max_len=3))
    preprocessor = get_preprocessor(space)(space)
    space.seed(0)
    obs = np.stack([preprocessor.transform(space.sample()) for _ in range(4)])
    obs_space = preprocessor.observation_space
    expected = restore_original_dimensions(obs, obs_space)

    def restored(tensor):
        nested = restore_original_dimensions(tensor, obs_space, "tf")
        return nested["a"][0], nested["a"][1], nested["r"].values["p"], nested["r"].lengths

    if graph:
        restored = tf.function(restored, input_signature=[tf.TensorSpec([None, obs.shape[1]])])
    wanted = (expected["a"][0], expected["a"][1], expected["r"].values["p"], expected["r"].lengths)
    for actual, leaf in zip(restored(tf.constant(obs)), wanted, strict=True):
        np.testing.assert_array_equal(actual, leaf)
    plain = tf.constant(obs)
    assert restore_original_dimensions(plain, OBS, tf) is plain


# --- recurrent --------------------------------------------------------------------------------------------------


class Counting(RecurrentNetwork):
    """Adds up its first input over time."""

    def get_initial_state(self):
        return [np.zeros(1, np.float32)]

    def forward_rnn(self, inputs, state, seq_lens):
        self.shape = tuple(inputs.shape)
        total = state[0][:, tf.newaxis] + tf.cumsum(inputs[:, :, :1], axis=1)
        return tf.repeat(total, 2, axis=2), [total[:, -1]]


@pytest.mark.parametrize("graph", [False, True])
def test_recurrent_network_sequences_are_seen_one_by_one(graph):
    net = Counting(OBS, ACTIONS, 2, {}, "net")

    def run(obs, state, seq_lens):
        return net({"obs": obs}, [state], seq_lens)

    if graph:
        specs = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1]), tf.TensorSpec([None], tf.int32)]
        run = tf.function(run, input_signature=specs)
    obs = np.arange(12, dtype=np.float32).reshape(4, 3)
    outputs, state = run(obs, np.array([[0.0], [100.0]], np.float32), np.array([2, 2], np.int32))
    assert net.shape == ((None, None, 3) if graph else (2, 2, 3))
    assert outputs[:, 0].numpy().tolist() == [0, 3, 106, 115]
    assert state[0].numpy().tolist() == [[3], [115]]


def test_recurrent_network_without_lengths_or_with_wrong_ones_is_refused():
    net, state = Counting(OBS, ACTIONS, 2, {}, "net"), [np.zeros((3, 1), np.float32)]
    with pytest.raises(ValueError, match="needs seq_lens"):
        net({"obs": rows(4, 3)}, state)
    with pytest.raises(ValueError, match="Got 4 rows, which are not 3 sequences"):
        net({"obs": rows(4, 3)}, state, [1, 1, 2])


def test_recurrent_network_without_forward_rnn_is_explained():
    class Empty(RecurrentNetwork):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define forward_rnn"):
        Empty(OBS, ACTIONS, 2, {}, "net")({"obs": rows(4, 3)}, [], np.array([4]))


def test_recurrent_network_time_major_keeps_the_order_of_rows():
    class TimeMajor(Counting):
        def forward_rnn(self, inputs, state, seq_lens):
            self.shape = tuple(inputs.shape)
            return inputs[:, :, :2], state

    net = TimeMajor(OBS, ACTIONS, 2, {"_time_major": True}, "net")
    obs = np.arange(18, dtype=np.float32).reshape(6, 3)
    outputs, _ = net({"obs": obs}, [np.zeros((2, 1), np.float32)], np.array([3, 2]))
    assert net.shape == (3, 2, 3)
    np.testing.assert_array_equal(outputs, obs[:, :2])


def test_base_model_is_a_view_under_the_names_of_rllib() -> None:
    model, obs = fcnet(fcnet_hiddens=[5, 4], vf_share_layers=False), rows(6, 3)
    outputs, _ = model({"obs": obs})
    made, values = model.base_model(obs)
    np.testing.assert_allclose(made, outputs, atol=1e-6)
    np.testing.assert_allclose(values[:, 0], model.value_function(), atol=1e-6)
    names = {variable.name for variable in model.base_model.variables}
    assert names == {
        f"{layer}/{part}:0"
        for layer in ("fc_1", "fc_2", "fc_out", "fc_value_1", "fc_value_2", "value_out")
        for part in ("kernel", "bias")
    }
    layer = model.base_model.get_layer("fc_out")
    np.testing.assert_array_equal(layer.kernel, model.variables(as_dict=True)["output.weight"].numpy().T)
    layer.set_weights([np.zeros((4, 2)), np.ones(2)])
    np.testing.assert_array_equal(model({"obs": obs})[0], np.ones((6, 2)))


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_forward_passes_that_subclasses_copy_from_rllib_compute(kind, share):
    """`self.base_model(...)` for outputs and `_value_out`, which the inherited `value_function` returns."""
    base = FullyConnectedNetwork if kind == "vectors" else VisionNetwork

    class Copied(base):
        def forward(self, input_dict, state, seq_lens):
            seen = input_dict["obs_flat"] if kind == "vectors" else tf.cast(input_dict["obs"], tf.float32)
            outputs, self._value_out = self.base_model(seen)
            return outputs, state

    space = OBS if kind == "vectors" else spaces.Box(0, 1, (8, 8, 2), np.float32)
    config = {"fcnet_hiddens": [5], "conv_filters": [[4, 4, 2], [8, 4, 1]], "vf_share_layers": share}
    made, copied = base(space, ACTIONS, 2, config, "net"), Copied(space, ACTIONS, 2, config, "net")
    for name, variable in copied.named_variables().items():
        variable.assign(made.named_variables()[name])
    obs = rows(3, *space.shape)
    np.testing.assert_allclose(copied({"obs": obs})[0], made({"obs": obs})[0], atol=1e-6)
    np.testing.assert_allclose(copied.value_function(), made.value_function(), atol=1e-6)
    assert copied.actor_spec() is None


@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_a_keras_model_in_the_place_of_base_model_makes_the_forward_pass(kind):
    """In a constructor behind `super()`'s, or on top of the network's own."""
    base = FullyConnectedNetwork if kind == "vectors" else VisionNetwork
    space = OBS if kind == "vectors" else spaces.Box(0, 1, (8, 8, 2), np.float32)

    class Own(base):
        def __init__(self, *given):
            super().__init__(*given)
            seen = tf.keras.layers.Input(space.shape)
            dense = [tf.keras.layers.Dense(size, use_bias=False) for size in (2, 1)]
            self.base_model = tf.keras.Model(seen, [layer(tf.keras.layers.Flatten()(seen)) for layer in dense])

    config = {"fcnet_hiddens": [5], "conv_filters": [[4, 4, 2], [8, 4, 1]], "vf_share_layers": True}
    model, obs = Own(space, ACTIONS, 2, config, "net"), rows(3, *space.shape)
    flat = obs.reshape(3, -1)
    to_outputs, to_values = (variable.numpy() for variable in model.base_model.weights)
    np.testing.assert_allclose(model({"obs": obs})[0], flat @ to_outputs, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.value_function(), (flat @ to_values)[:, 0], rtol=1e-4, atol=1e-6)
    assert sum(name.startswith("base_model.") for name in model.named_variables()) == 2
    plain = base(space, ACTIONS, 2, config, "net")
    names, before = plain.named_variables().keys(), plain({"obs": obs})[0]
    outputs, values = plain.base_model.outputs
    plain.base_model = tf.keras.Model(plain.base_model.inputs, [outputs * 2.0, values])
    np.testing.assert_allclose(plain({"obs": obs})[0], before * 2.0, rtol=1e-4, atol=1e-6)
    assert plain.named_variables().keys() == names  # the layers are those of the network


def test_features_are_taken_out_of_the_base_model_and_follow_its_weights():
    model, obs = fcnet(fcnet_hiddens=[5, 4]), rows(6, 3)
    features = tf.keras.Model(model.base_model.input, model.base_model.get_layer("fc_2").output)
    model({"obs": obs})
    np.testing.assert_allclose(features(obs), model._features, atol=1e-6)
    model.variables(as_dict=True)["hidden_1.bias"].assign(np.ones(4))
    model({"obs": obs})
    np.testing.assert_allclose(features(obs), model._features, atol=1e-6)
    other = copy.deepcopy(model)
    other.variables(as_dict=True)["hidden_1.bias"].assign(np.zeros(4))
    assert not np.allclose(other.base_model(obs)[0], model.base_model(obs)[0])


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' variables
@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_files_of_a_base_model_are_plain_keras(kind, tmp_path):
    base = FullyConnectedNetwork if kind == "vectors" else VisionNetwork
    space = OBS if kind == "vectors" else spaces.Box(0, 1, (9, 8, 2), np.float32)
    config = {"fcnet_hiddens": [5], "fcnet_activation": "tanh", "free_log_std": True}
    if kind == "images":
        config = {"conv_filters": [[4, 4, 2], [8, 2, 1]], "post_fcnet_hiddens": [6]}
    model = base(space, spaces.Box(-1, 1, (2,)), 4, {**config, "vf_share_layers": False}, "net")
    obs = rows(3, *space.shape)
    for variable in model.named_variables().values():
        variable.assign_add(np.random.default_rng(0).normal(size=variable.shape))
    wanted = model.base_model(obs)
    for name in ("model.keras", "model.h5"):
        model.base_model.save(tmp_path / name)
        found = tf.keras.models.load_model(tmp_path / name, compile=False)
        assert all(type(layer).__module__.startswith("keras.") for layer in found.layers)
        for made, want in zip(found(obs), wanted, strict=True):
            np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)
    model.base_model.save(tmp_path / "directory")
    loaded = tf.saved_model.load(tmp_path / "directory")
    np.testing.assert_allclose(loaded.serve(obs)[0], wanted[0], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' variables
@pytest.mark.parametrize("activation", ACTIVATION_FUNCTIONS)
def test_keras_knows_the_activations_in_files_of_a_base_model(activation, tmp_path):
    model, obs = fcnet(fcnet_hiddens=[5], fcnet_activation=activation), rows(3, 3)
    model.base_model.save(tmp_path / "model.keras")
    found = tf.keras.models.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(found(obs)[0], model.base_model(obs)[0], rtol=1e-4, atol=1e-5)


def test_a_model_without_weights_yet_writes_none(tmp_path):
    keras_two.accept()
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="has no weights yet; call it on inputs once"):
        model.save_weights(tmp_path / "weights.h5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model.weights.h5", "model.h5", "model"])
def test_weights_of_a_base_model_come_back_from_files_of_any_name(name, tmp_path):
    model, obs = fcnet(fcnet_hiddens=[5], free_log_std=True), rows(3, 3)
    before = model.base_model(obs)[0].numpy()
    model.base_model.save_weights(tmp_path / name)
    model.base_model.set_weights([np.zeros_like(weight) for weight in model.base_model.get_weights()])
    assert not np.any(model.base_model(obs)[0])
    model.base_model.load_weights(tmp_path / name)
    np.testing.assert_array_equal(model({"obs": obs})[0], before)
    assert {variable.name for variable in model.base_model.trainable_variables} >= {"fc_1/kernel:0", "fc_out/bias:0"}


def test_base_model_of_images_is_a_view_with_a_layer_for_each_convolution() -> None:
    space = spaces.Box(0, 255, (10, 10, 1), np.uint8)
    config = {"conv_filters": [[4, 4, 2], [6, 5, 1]], "vf_share_layers": False}
    model = VisionNetwork(space, spaces.Discrete(2), 2, config, "net")
    obs = rows(3, 10, 10, 1)
    outputs, _ = model({"obs": obs})
    made, values = model.base_model(obs)
    np.testing.assert_allclose(made, outputs, atol=1e-5)
    np.testing.assert_allclose(values[:, 0], model.value_function(), atol=1e-5)
    assert model.base_model.get_layer("conv1").kernel.shape == (4, 4, 1, 4)
    model.base_model.get_layer("conv_value_1").kernel.assign(np.ones((4, 4, 1, 4)))
    assert (model.variables(as_dict=True)["value_convs.convs.0._model.1.weight"].numpy() == 1).all()


def test_a_base_model_of_the_programs_own_is_kept() -> None:
    class Own(FullyConnectedNetwork):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            self.base_model = "mine"

    assert Own(OBS, ACTIONS, 2, {"fcnet_hiddens": [4]}, "net").base_model == "mine"


@pytest.mark.parametrize("options", [{"dueling": True}, {"num_atoms": 5, "use_noisy": True}, {"q_hiddens": ()}])
def test_heads_of_dqn_are_keras_models_of_the_trunks_features(options) -> None:
    heads = {"q_hiddens": (6,), "v_min": -1.0, "v_max": 1.0, **options}
    config = {"fcnet_hiddens": [4], "no_final_linear": bool(heads["q_hiddens"])}
    outputs = 4 if heads["q_hiddens"] else 2
    model = ModelCatalog.get_model_v2(OBS, ACTIONS, outputs, config, "tf", "net", model_interface=DQNTFModel, **heads)
    features, _ = model({"obs": rows(3, 3)})
    for made, wanted in zip(model.q_value_head(features), model.get_q_value_distributions(features), strict=True):
        np.testing.assert_allclose(made, wanted, atol=1e-6)
    assert hasattr(model, "state_value_head") is heads.get("dueling", False)
    if heads.get("dueling"):
        np.testing.assert_allclose(model.state_value_head(features), model.get_state_value(features), atol=1e-6)
