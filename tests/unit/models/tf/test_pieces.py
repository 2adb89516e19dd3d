import copy
import math

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.catalog import ModelCatalog
from rlframe.models.preprocessors import get_preprocessor
from rlframe.utils.errors import ConfigError

tf = pytest.importorskip("tensorflow")

from rlframe.models.tf.action_mask import ActionMaskModel  # noqa: E402 - TensorFlow may be missing
from rlframe.models.tf.check_model import check_model  # noqa: E402
from rlframe.models.tf.misc import (  # noqa: E402
    activation_function,
    flat_rows,
    initial_rng,
    normc,
    normc_initializer,
    reshape,
    seeded_initial_weights,
    tf_dtype,
)
from rlframe.models.tf.noisy import NoisyLayer  # noqa: E402
from rlframe.models.tf.tf_action_dist import (  # noqa: E402
    Beta,
    Categorical,
    Deterministic,
    DiagGaussian,
    Dirichlet,
    MultiActionDistribution,
    MultiCategorical,
    SquashedGaussian,
    TFActionDistribution,
)
from rlframe.models.tf.tf_modelv2 import TFModelV2  # noqa: E402

OBS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(2)

# --- misc -------------------------------------------------------------------------------------------------------


def test_normc_rows_have_the_norm():
    weights = normc(np.random.default_rng(0), 5, 7, 0.3)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(weights, axis=1), np.full(5, 0.3), rtol=1e-5)


def test_normc_initializer_serves_keras_layers_and_the_seed():
    kernels = []
    for _ in range(2):
        with seeded_initial_weights(1):
            layer = tf.keras.layers.Dense(5, kernel_initializer=normc_initializer(0.3))
            layer.build((None, 7))
        kernels.append(layer.kernel.numpy())
    np.testing.assert_allclose(np.linalg.norm(kernels[0], axis=0), np.full(5, 0.3), rtol=1e-5)
    np.testing.assert_array_equal(*kernels)
    assert normc_initializer()((3, 3, 2, 4), dtype="float16").dtype == tf.float16


def test_initial_rng_is_that_of_the_innermost_context():
    with seeded_initial_weights(1) as outer:
        assert initial_rng() is outer
        with seeded_initial_weights(2) as inner:
            assert initial_rng() is inner
        assert initial_rng() is outer
    assert initial_rng() is not outer
    assert initial_rng().random() != initial_rng().random()


def test_activation_unknown_is_refused_and_linear_is_none():
    assert activation_function("linear") is activation_function(None) is None
    assert float(activation_function("ReLU")(-1.0)) == 0
    with pytest.raises(ValueError, match="Unknown activation 'sin'"):
        activation_function("sin")


def test_reshape_with_several_unknown_sizes():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 6])])
    def run(x):
        return reshape(x, (*x.shape[:-1], 2, 3))

    assert run(np.zeros((4, 5, 6), np.float32)).shape == (4, 5, 2, 3)


@pytest.mark.parametrize(
    ("shape", "flat"), [((4, 2), (4, 2)), ((4, 2, 3), (4, 6)), ((4,), (4, 1)), ((0, 2, 3), (0, 6))]
)
def test_flat_rows(shape, flat):
    rows = flat_rows(np.zeros(shape, np.uint8))
    assert rows.shape == flat
    assert rows.dtype == tf.float32


def test_tf_dtype():
    assert [tf_dtype(t) for t in (np.uint8, np.uint32, np.float32, bool)] == [tf.uint8, tf.int64, tf.float32, tf.bool]


# --- noisy layer ------------------------------------------------------------------------------------------------


def test_noisy_layer_starts_as_in_the_paper():
    layer = NoisyLayer(16, 4, sigma0=0.5)
    assert list(layer.named_variables()) == ["weight", "bias", "weight_sigma", "bias_sigma"]
    assert np.abs(layer.weight).max() <= 0.25
    np.testing.assert_allclose(layer.weight_sigma, np.full((4, 16), 0.125))
    np.testing.assert_allclose(layer.bias_sigma, np.full(4, 0.125))


def test_noisy_layer_noise_follows_the_call_unless_told():
    layer, x = NoisyLayer(3, 2, activation=None), tf.ones((1, 3))

    def is_noisy(**kwargs):
        return not np.array_equal(layer(x, **kwargs), layer(x, **kwargs))

    assert is_noisy(training=True)
    assert is_noisy(training=tf.constant(True))
    assert not is_noisy()
    assert not is_noisy(training=tf.constant(False))
    layer.noise = True
    assert is_noisy(training=False)
    layer.noise = False
    assert not is_noisy(training=True)


def test_noisy_layer_generator_repeats_the_noise_and_stays_behind_in_copies():
    layer, x = NoisyLayer(3, 2, activation="tanh"), tf.ones((1, 3))
    results = []
    for _ in range(2):
        layer.generator = tf.random.Generator.from_seed(5)
        results.append(layer(x, training=True).numpy())
    np.testing.assert_array_equal(*results)
    assert copy.deepcopy(layer).generator is None
    assert len(layer.named_variables()) == 4  # the generator's state is none of them


def test_noisy_layer_in_a_graph_draws_anew_at_every_call():
    layer, x = NoisyLayer(3, 2, activation=None), tf.ones((1, 3))
    layer.generator = tf.random.Generator.from_seed(5)
    run = tf.function(lambda: layer(x, training=True))
    assert not np.array_equal(run(), run())


def test_noisy_layer_equals_the_noisy_matrix_written_out():
    layer, x = NoisyLayer(3, 2, activation=None), np.random.default_rng(0).random((4, 3)).astype(np.float32)
    layer.generator = tf.random.Generator.from_seed(1)
    noise = tf.random.Generator.from_seed(1).normal([5]).numpy()
    f = np.sign(noise) * np.sqrt(np.abs(noise))
    weight = layer.weight.numpy() + layer.weight_sigma.numpy() * np.outer(f[3:], f[:3])
    expected = x @ weight.T + layer.bias.numpy() + layer.bias_sigma.numpy() * f[3:]
    np.testing.assert_allclose(layer(x, training=True), expected, rtol=1e-5, atol=1e-6)


def test_noisy_layer_sigma_gets_gradients():
    layer = NoisyLayer(3, 2, activation=None)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.ones((4, 3)), training=True))
    assert np.abs(tape.gradient(loss, layer.weight_sigma)).sum() > 0


def test_noisy_layer_is_named_by_the_model_s_attribute():
    class Noisy(TFModelV2):
        def __init__(self, *args):
            super().__init__(*args)
            self.head = NoisyLayer(3, 2)

    names = list(Noisy(OBS, ACTIONS, 2, {}, "net").variables(as_dict=True))
    assert names == ["head.weight", "head.bias", "head.weight_sigma", "head.bias_sigma"]


# --- distributions (numbers are compared with torch's in tests/golden) ------------------------------------------


def test_categorical_temperature_sharpens():
    logits = np.array([[0.0, 1.0]], np.float32)
    cold, plain = Categorical(logits, None, 0.1), Categorical(logits)
    assert cold.entropy() < plain.entropy()
    assert math.isclose(float(tf.exp(cold.logp([1]))[0]), 1 / (1 + math.exp(-10)), rel_tol=1e-5)
    with pytest.raises(ValueError, match="temperature > 0; got 0"):
        Categorical(logits, None, 0.0)


@pytest.mark.parametrize("actions", [np.array([0, 1, 0]), np.array([[0], [1], [0]], np.int32), [0, 1, 0]])
def test_categorical_logp_takes_numbers_of_any_kind(actions):
    logp = Categorical(np.array([[0.0, math.log(3.0)]] * 3, np.float32)).logp(actions)
    np.testing.assert_allclose(logp, np.log([0.25, 0.75, 0.25]), rtol=1e-6)


def test_categorical_frequencies_are_the_probabilities():
    tf.random.set_seed(0)
    logits = np.array([0.0, 1.0, -1.0, 2.5], np.float32)
    drawn = Categorical(np.tile(logits, (100_000, 1))).sample()
    p = np.exp(logits) / np.exp(logits).sum()
    frequencies = np.bincount(drawn, minlength=4) / 100_000
    assert (np.abs(frequencies - p) < 5 * np.sqrt(p * (1 - p) / 100_000)).all()


def test_multi_categorical_takes_rllib_s_arguments():
    dist = MultiCategorical(np.zeros((4, 5), np.float32), None, [2, 3], spaces.MultiDiscrete([[2, 3]]))
    assert dist.sample().shape == (4, 1, 2)
    with pytest.raises(ValueError, match=r"\(2, 2\) do not add up to the 5 inputs"):
        MultiCategorical(np.zeros((4, 5), np.float32), None, [2, 2])


def test_subclass_of_the_multi_action_gets_children_of_its_own_framework_where_none_is_said():
    class Own(MultiActionDistribution):
        pass

    space = spaces.Dict(b=spaces.Discrete(2), a=spaces.Box(-1, 1, (1,)))
    made, width = ModelCatalog.get_action_dist(space, {"custom_action_dist": Own})
    children = made(np.zeros((4, width), np.float32), None).flat_child_distributions
    assert [type(child) for child in children] == [DiagGaussian, Categorical]


def test_multi_action_takes_rllib_s_arguments_and_concatenated_actions():
    space = spaces.Dict(b=spaces.Discrete(2), a=spaces.Box(-1, 1, (1,)))
    children = {"a": DiagGaussian, "b": Categorical}
    inputs = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    dist = MultiActionDistribution(inputs, None, child_distributions=children, input_lens=[2, 2], action_space=space)
    action = dist.sample()
    assert action["b"].shape == (4,)
    joined = np.concatenate([action["a"], action["b"].numpy()[:, None]], axis=1).astype(np.float32)
    np.testing.assert_allclose(dist.logp(joined), dist.logp(action), rtol=1e-6)
    np.testing.assert_allclose(dist.sampled_action_logp(), dist.logp(action), rtol=1e-6)
    with pytest.raises(ValueError, match=r"needs action_space=, or structure="):
        MultiActionDistribution(inputs, child_distributions=children, input_lens=[2, 2])


@pytest.mark.parametrize(
    ("dist_class", "flows"),
    [(DiagGaussian, True), (SquashedGaussian, True), (Deterministic, True), (Beta, False), (Dirichlet, False)],
)
def test_gradients_flow_through_the_sample_where_it_is_reparameterised(dist_class, flows):
    inputs = tf.Variable(np.zeros((4, 2), np.float32))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(dist_class(inputs).sample())
    assert (tape.gradient(loss, inputs) is not None) == flows


def test_squashed_gaussian_wider_range_is_a_density_there():
    dist = SquashedGaussian(np.array([[0.3, -0.2]], np.float32), low=-3.0, high=5.0)
    grid = np.linspace(-3, 5, 20001, dtype=np.float32)[1:-1]
    logp = SquashedGaussian(np.repeat(dist.inputs, len(grid), axis=0), low=-3.0, high=5.0).logp(grid[:, None])
    assert abs(np.exp(logp).sum() * 8 / 20000 - 1) < 1e-3
    with pytest.raises(ValueError, match="needs low < high"):
        SquashedGaussian(dist.inputs, low=1.0, high=0.0)


def test_dirichlet_of_tiny_concentrations_draws_corners():
    drawn = Dirichlet(np.full((200, 3), -50.0, np.float32)).sample().numpy()
    np.testing.assert_allclose(drawn.max(axis=1), 1, atol=1e-6)
    assert len(set(drawn.argmax(axis=1))) == 3


def test_sampled_action_logp_before_sample_is_refused():
    for dist in (Categorical(np.zeros((1, 2), np.float32)), SquashedGaussian(np.zeros((1, 2), np.float32))):
        with pytest.raises(ValueError, match=r"call sample\(\) first"):
            dist.sampled_action_logp()


def test_custom_distribution_as_written_for_rllib_needs_only_the_sample_op():
    class Halves(TFActionDistribution):
        def _build_sample_op(self):
            return self.inputs / 2

        def logp(self, x):
            return tf.reduce_sum(x, axis=1)

    dist = Halves(np.ones((2, 3), np.float32))
    assert dist.sample().numpy().tolist() == [[0.5] * 3] * 2
    assert dist.sampled_action_logp().numpy().tolist() == [1.5, 1.5]
    with pytest.raises(NotImplementedError, match=r"TFActionDistribution must define sample\(\)"):
        TFActionDistribution(np.ones((2, 3), np.float32)).sample()


def test_sampling_in_a_graph_draws_anew():
    space = spaces.Tuple([spaces.Discrete(1000), OBS])
    dist_class, dim = ModelCatalog.get_action_dist(space, {}, None, "tf")
    run = tf.function(lambda inputs: dist_class(inputs).sample(), input_signature=[tf.TensorSpec([None, dim])])
    inputs = np.zeros((50, dim), np.float32)
    for first, second in zip(run(inputs), run(inputs), strict=True):
        assert not np.array_equal(first, second)


# --- action masks -----------------------------------------------------------------------------------------------


def masked(key="observations", mask_size=3, inner=OBS, **options):
    space = spaces.Dict({"action_mask": spaces.Box(0, 1, (mask_size,)), key: inner})
    preprocessor = get_preprocessor(space)(space)
    config = {"fcnet_hiddens": [4], "custom_model": ActionMaskModel, "custom_model_config": options}
    obs_space = preprocessor.observation_space
    return preprocessor, ModelCatalog.get_model_v2(obs_space, spaces.Discrete(3), 3, config, "tf")


@pytest.mark.parametrize("key", ["observations", "obs", "observation"])
def test_action_mask_model_forbidden_actions_are_never_drawn(key):
    preprocessor, model = masked(key)
    obs = preprocessor.transform({"action_mask": np.array([1, 0, 1], np.float32), key: np.ones(3, np.float32)})
    logits, _ = model({"obs": np.tile(obs, (500, 1))})
    assert np.isfinite(logits).all()
    assert set(Categorical(logits).sample().numpy()) == {0, 2}
    assert np.isfinite(Categorical(logits).entropy()).all()
    assert model.value_function().shape == (500,)
    check_model(model, preprocessor.observation_space, 3, values=True)


def test_action_mask_model_nested_observations_reach_the_network_flat():
    inner = spaces.Dict(x=OBS, d=spaces.Discrete(4))
    preprocessor, model = masked(inner=inner)
    check_model(model, preprocessor.observation_space, 3)
    assert model.variables(as_dict=True)["network.hidden_0.weight"].shape == (4, 7)


def test_action_mask_model_switched_off_changes_nothing():
    preprocessor, model = masked(no_masking=True)
    obs = preprocessor.transform({"action_mask": np.zeros(3, np.float32), "observations": np.ones(3, np.float32)})
    assert np.abs(model({"obs": obs[None]})[0]).max() < 1


def test_action_mask_model_wrong_space_or_size_is_explained():
    with pytest.raises(ConfigError, match="mask has 2 entries, but the action space has 3"):
        masked(mask_size=2)
    with pytest.raises(ConfigError, match=r"wants observations Dict\(action_mask="):
        masked(key="state")
    with pytest.raises(ConfigError, match=r"wants observations Dict\(action_mask="):
        ActionMaskModel(OBS, ACTIONS, 2, {}, "mask")


# --- check_model ------------------------------------------------------------------------------------------------


class Fake(TFModelV2):
    """A model whose outputs, states and values are given by the test."""

    def __init__(self, outputs=None, initial=(), states=None, values=None, obs_space=OBS):
        super().__init__(obs_space, ACTIONS, 2, {}, "fake")
        self.outputs, self.initial, self.states, self.values = outputs, list(initial), states, values

    def forward(self, input_dict, state, seq_lens):
        self.seen = input_dict
        outputs = input_dict["obs_flat"][:, :2] if self.outputs is None else self.outputs
        return outputs, state if self.states is None else self.states

    def get_initial_state(self):
        return self.initial

    def value_function(self):
        return self.values


def test_check_model_good_model_passes():
    model = Fake(initial=[np.zeros(4, np.float32), tf.zeros(3)], values=tf.zeros(2))
    check_model(model, OBS, 2, values=True)
    assert np.abs(model.seen["obs"]).sum() == 0  # as in RLlib's first run
    assert model.seen["is_training"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": np.zeros((2, 5), np.float32)}, r"got a ndarray"),
        ({"outputs": ("zeros", (2, 5), "float32")}, r"outputs of shape \[2, 5\] for 2 observations; wanted \[2, 2\]"),
        ({"outputs": ("zeros", (2, 2), "int64")}, "float tensor .* got a EagerTensor of int64"),
        ({"states": [("zeros", (2, 1), "float32")]}, r"returned 1 state\(s\), but get_initial_state\(\) promises 0"),
        (
            {"initial": [np.zeros(4, np.float32)], "states": [np.zeros((2, 3), np.float32)]},
            r"state 0 of shape \[2, 3\]; .* \[2, 4\]",
        ),
        ({"values": ("zeros", (2, 1), "float32")}, r"one value per row, shape \[2\] here; got \[2, 1\]. Squeeze"),
        ({"values": 3.0}, "got float"),
    ],
)
def test_check_model_wrong_shapes_are_named(arguments, message):
    def made(value):
        if isinstance(value, list):
            return [made(child) for child in value]
        return tf.zeros(*value[1:]) if isinstance(value, tuple) else value

    model = Fake(**{key: made(value) for key, value in arguments.items()})
    with pytest.raises(ValueError, match=message):
        check_model(model, OBS, 2, values=True)


def test_check_model_gives_the_columns_a_model_asks_for():
    model = Fake()
    model.view_requirements["prev_actions"] = ViewRequirement("actions", shift=-1, space=ACTIONS)
    model.view_requirements["prev_n_obs"] = ViewRequirement("obs", shift="-3:0", space=OBS)
    check_model(model, OBS, 2)
    assert model.seen["prev_actions"].shape == (2,)
    assert model.seen["prev_n_obs"].shape == (2, 4, 3)


def test_check_model_samples_the_original_space():
    space = spaces.Dict(a=OBS, b=spaces.Discrete(2))
    obs_space = get_preprocessor(space)(space).observation_space
    model = ModelCatalog.get_model_v2(obs_space, ACTIONS, 2, {}, "tf")
    check_model(model, obs_space, None, values=True)
    fake = Fake(obs_space=obs_space)
    check_model(fake, obs_space, 2)
    assert set(fake.seen["obs"]) == {"a", "b"}
    assert fake.seen["obs"]["b"].numpy().sum() == 2  # one-hot, as no sample of the flat space would be


def test_get_action_dist_of_a_class_is_used_as_it_is():
    assert ModelCatalog.get_action_dist(OBS, {"custom_action_dist": Deterministic}, None, "tf") == (Deterministic, 3)
