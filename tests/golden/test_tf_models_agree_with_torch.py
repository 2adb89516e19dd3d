"""TensorFlow's models and distributions equal PyTorch's: the same weights and inputs, the same numbers to 1e-5."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlframe.models.actor_layers import ACTIVATIONS
from rlframe.models.catalog import ModelCatalog
from rlframe.models.preprocessors import get_preprocessor
from rlframe.models.torch.action_mask import ActionMaskModel
from rlframe.models.torch.noisy import NoisyLayer

tf = pytest.importorskip("tensorflow")

from rlframe.models.tf.action_mask import ActionMaskModel as TFActionMaskModel  # noqa: E402 - TensorFlow may be missing
from rlframe.models.tf.noisy import NoisyLayer as TFNoisyLayer  # noqa: E402

ACTIONS = spaces.Discrete(4)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def arrays(model):
    return {name: value.detach().numpy() for name, value in model.state_dict().items()}


def pair_of_models(obs_space, config, num_outputs=4, custom=(None, None)):
    """A torch model with weights as after training, and a TensorFlow model with the same ones."""
    torch.manual_seed(0)
    models = [
        ModelCatalog.get_model_v2(obs_space, ACTIONS, num_outputs, {**config, "custom_model": model}, framework)
        for framework, model in zip(("torch", "tf"), custom, strict=True)
    ]
    with torch.no_grad():
        for name, parameter in models[0].named_parameters():
            if name.split(".")[-2] in ("output", "value"):  # small at first, which would hide differences
                parameter.mul_(50)
            if parameter.dim() == 1:
                parameter.uniform_(-0.5, 0.5)
    given = arrays(models[0])
    variables = models[1].variables(as_dict=True)
    assert set(variables) == set(given)
    for name, variable in variables.items():
        assert tuple(variable.shape) == given[name].shape, name
        variable.assign(given[name])
    return models


def traced(model, example):
    """The model as a graph for batches of any size."""

    @tf.function(input_signature=[tf.TensorSpec([None, *example.shape[1:]], example.dtype)])
    def run(obs):
        outputs, _ = model({"obs": obs})
        return outputs, model.value_function()

    return run


def assert_models_agree(models, obs):
    theirs, ours = models
    outputs, _ = theirs({"obs": torch.as_tensor(obs)})
    values = theirs.value_function()
    (outputs.square().sum() + values.square().sum()).backward()
    with tf.GradientTape() as tape:
        actual, _ = ours({"obs": obs})
        actual_values = ours.value_function()
        loss = tf.reduce_sum(tf.square(actual)) + tf.reduce_sum(tf.square(actual_values))
    variables = ours.trainable_variables(as_dict=True)
    gradients = dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        scale = max(1.0, float(expected[name].abs().max()))
        np.testing.assert_allclose(gradient / scale, expected[name] / scale, **TOLERANCE, err_msg=name)
    outputs, values = outputs.detach().numpy(), values.detach().numpy()
    assert outputs.std() > 0.05  # the numbers compared are not all nothing
    assert actual.dtype == actual_values.dtype == tf.float32
    np.testing.assert_allclose(actual, outputs, **TOLERANCE)
    np.testing.assert_allclose(actual_values, values, **TOLERANCE)
    run = traced(ours, obs)
    # TensorFlow 2.21 itself fails on empty batches of images: its fused convolutions forget the number of channels.
    for rows in (len(obs), 1) if any("convs" in name for name in variables) else (len(obs), 1, 0):
        graph_outputs, graph_values = run(obs[:rows])
        np.testing.assert_allclose(graph_outputs, outputs[:rows], **TOLERANCE)
        np.testing.assert_allclose(graph_values, values[:rows], **TOLERANCE)


# --- vectors ----------------------------------------------------------------------------------------------------

VECTOR = spaces.Box(-np.inf, np.inf, (6,), np.float32)
FC_CONFIGS = [
    {},
    {"fcnet_hiddens": [64, 64], "vf_share_layers": False},
    {"fcnet_hiddens": []},
    {"fcnet_hiddens": [], "vf_share_layers": False},
    {"fcnet_hiddens": [32], "post_fcnet_hiddens": [16, 8], "post_fcnet_activation": "swish"},
    {"fcnet_hiddens": [32, 32], "no_final_linear": True},
    {"fcnet_hiddens": [32], "free_log_std": True},
    {"fcnet_hiddens": [32], "free_log_std": True, "no_final_linear": True, "vf_share_layers": False},
    *(
        pytest.param({"fcnet_hiddens": [32, 32], "fcnet_activation": name}, marks=pytest.mark.slow)
        for name in ACTIVATIONS
    ),
]


@pytest.mark.parametrize("config", FC_CONFIGS, ids=str)
def test_fcnet_agrees(config):
    models = pair_of_models(VECTOR, config)
    assert_models_agree(models, np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32))
    assert models[0].actor_spec() == models[1].actor_spec()


@pytest.mark.parametrize(("shape", "dtype"), [((6,), np.uint8), ((2, 3), np.float64)])
def test_fcnet_other_observations_agree(shape, dtype):
    space = spaces.Box(0, 9, shape, dtype)
    obs = np.random.default_rng(0).integers(0, 10, (5, *shape)).astype(dtype)
    assert_models_agree(pair_of_models(space, {"fcnet_hiddens": [8]}), obs)


# --- images -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        ((84, 84, 4), {}),
        ((42, 42, 3), {}),
        ((42, 42, 3), {"post_fcnet_hiddens": [16, 8], "vf_share_layers": False}),
        ((42, 42, 3), {"no_final_linear": True, "conv_activation": "elu"}),
        # even and odd sizes, oblong kernels and strides, and maps left for the dense layers to flatten
        ((9, 12, 2), {"conv_filters": [[4, [4, 3], [2, 3]], [5, 2, 1]], "post_fcnet_hiddens": [7]}),
        ((9, 12, 2), {"conv_filters": [[4, 1, 2], [5, [5, 6], 1]], "vf_share_layers": False}),
        ((9, 12, 2), {"conv_filters": [[4, [4, 3], 2, "valid"], [5, 2, 1, "same"]], "post_fcnet_hiddens": [7]}),
    ],
    ids=str,
)
def test_visionnet_agrees(shape, config):
    images = np.random.default_rng(0).random((3, *shape)).astype(np.float32)
    assert_models_agree(pair_of_models(spaces.Box(0, 1, shape, np.float32), config), images)


def test_visionnet_bytes_agree():
    config = {"conv_filters": [[4, 4, 2], [5, 4, 1]]}
    images = np.random.default_rng(0).integers(0, 255, (3, 8, 8, 2)).astype(np.uint8)
    assert_models_agree(pair_of_models(spaces.Box(0, 255, (8, 8, 2), np.uint8), config), images)


# --- nested observations ----------------------------------------------------------------------------------------

NESTED = spaces.Dict(
    image=spaces.Box(0, 1, (8, 8, 2), np.float32),
    inner=spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 2])]),
    vector=spaces.Box(-1, 1, (2, 2), np.float32),
)


def flat_samples(space, rows=5):
    preprocessor = get_preprocessor(space)(space)
    space.seed(0)
    return preprocessor.observation_space, np.stack([preprocessor.transform(space.sample()) for _ in range(rows)])


@pytest.mark.parametrize(
    "config",
    [{}, {"post_fcnet_hiddens": [7, 5]}, {"no_final_linear": True}, {"conv_filters": [[3, 3, 2], [5, 2, 1]]}],
    ids=str,
)
def test_complex_input_net_agrees(config):
    obs_space, obs = flat_samples(NESTED)
    assert_models_agree(pair_of_models(obs_space, {"conv_filters": [[5, 8, 1]], **config}), obs)


def test_action_mask_model_agrees():
    inner = spaces.Dict(x=VECTOR, d=spaces.Discrete(4))
    space = spaces.Dict(action_mask=spaces.Box(0, 1, (4,)), observations=inner)
    obs_space, obs = flat_samples(space)
    theirs, ours = pair_of_models(obs_space, {"fcnet_hiddens": [8]}, custom=(ActionMaskModel, TFActionMaskModel))
    expected = theirs({"obs": torch.as_tensor(obs)})[0].detach().numpy()
    lowest = np.finfo(np.float32).min
    assert 0 < (expected == lowest).sum() < expected.size
    for actual in (ours({"obs": obs})[0], traced(ours, obs)(obs)[0]):
        np.testing.assert_array_equal(actual == lowest, expected == lowest)
        np.testing.assert_allclose(actual, expected, **TOLERANCE)


# --- noisy layers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", None])
def test_noisy_layer_without_noise_agrees(activation):
    torch.manual_seed(0)
    theirs, ours = NoisyLayer(6, 3, activation=activation).eval(), TFNoisyLayer(6, 3, activation=activation)
    for name, variable in ours.named_variables().items():
        variable.assign(arrays(theirs)[name])
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    np.testing.assert_allclose(ours(x, training=False), theirs(torch.as_tensor(x)).detach(), **TOLERANCE)


def test_noisy_layer_noise_has_the_same_spread():
    torch.manual_seed(0)
    theirs, ours = NoisyLayer(6, 3, activation="tanh"), TFNoisyLayer(6, 3, activation="tanh")
    ours.generator = tf.random.Generator.from_seed(0)
    for name, variable in ours.named_variables().items():
        variable.assign(arrays(theirs)[name])
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)

    @tf.function
    def draw():
        return ours(tf.constant(x), training=True)

    with torch.no_grad():
        expected = np.stack([theirs(torch.as_tensor(x)).numpy() for _ in range(4000)])
    actual = np.stack([draw() for _ in range(4000)])
    np.testing.assert_allclose(actual.mean(axis=0), expected.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(actual.std(axis=0), expected.std(axis=0), atol=0.03)


# --- distributions ----------------------------------------------------------------------------------------------

DISTRIBUTIONS = {
    "categorical": (spaces.Discrete(5), None),
    "multi_categorical": (spaces.MultiDiscrete([2, 5, 3]), None),
    "multi_categorical_2d": (spaces.MultiDiscrete([[2, 5], [3, 2]]), None),
    "integer_box": (spaces.Box(0, 3, (2, 2), np.int32), None),
    "diag_gaussian": (spaces.Box(-1, 1, (3,)), None),
    "squashed_gaussian": (spaces.Box(-1, 1, (3,)), "squashed_gaussian"),
    "beta": (spaces.Box(0, 1, (3,)), "beta"),
    "dirichlet": (spaces.Box(0, 1, (3,)), "dirichlet"),
    "deterministic": (spaces.Box(-1, 1, (3,)), "deterministic"),
    "tanh": (spaces.Box(-1, 1, (2, 2)), "tanh"),
    "relaxed_one_hot": (spaces.Discrete(5), "relaxed_one_hot"),
    "multi_action": (
        spaces.Dict(
            a=spaces.Discrete(3),
            b=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])]),
            c=spaces.MultiBinary(2),
        ),
        None,
    ),
}
NO_ENTROPY, NO_KL = {"squashed_gaussian"}, {"squashed_gaussian", "deterministic", "tanh"}
ROWS = 64


def nested(convert, value):
    if isinstance(value, dict):
        return {key: nested(convert, child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(nested(convert, child) for child in value)
    return convert(value)


class Pair:
    """The same distribution in both frameworks, its inputs and actions drawn from it."""

    def __init__(self, name):
        space, dist_type = DISTRIBUTIONS[name]
        self.name = name
        self.torch_class, self.dim = ModelCatalog.get_action_dist(space, {}, dist_type, "torch")
        self.tf_class, dim = ModelCatalog.get_action_dist(space, {}, dist_type, "tf")
        assert dim == self.dim
        self.inputs, self.other = (
            np.random.default_rng(seed).standard_normal((ROWS, self.dim)).astype(np.float32) for seed in (0, 1)
        )
        torch.manual_seed(0)
        self.actions = self.torch_class(torch.as_tensor(self.inputs)).sample()

    def _actions(self, dtype):
        return nested(
            lambda leaf: leaf.numpy().astype(dtype) if leaf.is_floating_point() else leaf.numpy(), self.actions
        )

    def expected(self, function, dtype):
        """Returns what torch says, and the gradients of its sum with respect to the inputs (None for constants)."""
        inputs = torch.tensor(self.inputs.astype(dtype), requires_grad=True)
        other = torch.as_tensor(self.other.astype(dtype))
        actions = nested(torch.as_tensor, self._actions(dtype))
        result = function(self.torch_class(inputs), self.torch_class(other), actions)
        if result.requires_grad:
            result.sum().backward()
        return result.detach().numpy(), inputs.grad

    def actual(self, function, dtype, *, graph):
        actions = nested(tf.constant, self._actions(dtype))

        def compute(inputs, other):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                result = function(self.tf_class(inputs), self.tf_class(other), actions)
            return result, tape.gradient(result, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)

        if graph:
            compute = tf.function(compute, input_signature=[tf.TensorSpec([None, self.dim], dtype)] * 2)
        return compute(tf.constant(self.inputs, dtype), tf.constant(self.other, dtype))


@pytest.fixture(params=sorted(DISTRIBUTIONS), scope="module")
def pair(request):
    return Pair(request.param)


def assert_distributions_agree(pair, function, traced=True):
    # Single precision leaves gradients of squashed variables near their bounds no five digits in either framework.
    for dtype, gradient_tolerance in ((np.float32, {"rtol": 1e-4, "atol": 1e-5}), (np.float64, TOLERANCE)):
        expected, expected_gradient = pair.expected(function, dtype)
        assert expected.shape[0] == ROWS
        wanted = np.zeros_like(pair.inputs) if expected_gradient is None else expected_gradient.numpy()
        for graph in (False, True) if traced and dtype is np.float32 else (False,):  # a trace takes long
            actual, gradient = pair.actual(function, dtype, graph=graph)
            assert actual.dtype == dtype
            np.testing.assert_allclose(actual, expected, **TOLERANCE)
            np.testing.assert_allclose(gradient, wanted, **gradient_tolerance)


def test_logp_and_its_gradient_agree(pair):
    assert_distributions_agree(pair, lambda dist, other, actions: dist.logp(actions))
    assert_distributions_agree(pair, lambda dist, other, actions: other.logp(actions), traced=False)


def test_entropy_and_its_gradient_agree(pair):
    if pair.name in NO_ENTROPY:
        with pytest.raises(ValueError, match="no closed form"):
            pair.tf_class(pair.inputs).entropy()
        return
    assert_distributions_agree(pair, lambda dist, other, actions: dist.entropy())
    assert_distributions_agree(pair, lambda dist, other, actions: dist.multi_entropy(), traced=False)


def test_kl_and_its_gradient_agree(pair):
    if pair.name in NO_KL:
        with pytest.raises((ValueError, NotImplementedError), match=r"has no kl\(\)"):
            pair.tf_class(pair.inputs).kl(pair.tf_class(pair.other))
        return
    assert_distributions_agree(pair, lambda dist, other, actions: dist.kl(other))
    assert_distributions_agree(pair, lambda dist, other, actions: dist.multi_kl(other), traced=False)


def test_deterministic_sample_and_its_logp_agree(pair):
    theirs, ours = pair.torch_class(torch.as_tensor(pair.inputs)), pair.tf_class(pair.inputs)
    expected, actual = theirs.deterministic_sample(), ours.deterministic_sample()
    for mine, other in zip(flat(actual), flat(expected), strict=True):
        assert mine.dtype.name == str(other.dtype).removeprefix("torch.")
        assert mine.shape == tuple(other.shape)
        np.testing.assert_allclose(mine, other, **TOLERANCE)
    np.testing.assert_allclose(ours.sampled_action_logp(), theirs.sampled_action_logp(), **TOLERANCE)


def flat(value):
    leaves = []
    nested(leaves.append, value)
    return leaves


def test_samples_have_the_shapes_dtypes_and_moments_of_torch(pair):
    draws = 4000
    inputs = np.tile(pair.inputs[:1], (draws, 1))
    torch.manual_seed(0)
    tf.random.set_seed(0)
    expected = pair.torch_class(torch.as_tensor(inputs)).sample()
    dist = pair.tf_class(inputs)
    actual = dist.sample()
    for mine, other in zip(flat(actual), flat(expected), strict=True):
        assert mine.dtype.name == str(other.dtype).removeprefix("torch.")
        assert mine.shape == tuple(other.shape)
        mine, other = np.asarray(mine, np.float64), other.double().numpy()
        # Six standard errors of the difference of two means.
        np.testing.assert_allclose(mine.mean(0), other.mean(0), atol=6 * 2**0.5 * other.std() / draws**0.5 + 1e-6)
        np.testing.assert_allclose(mine.std(0), other.std(0), rtol=0.1, atol=1e-6)
    np.testing.assert_allclose(dist.sampled_action_logp(), dist.logp(actual), rtol=1e-4, atol=1e-4)


def test_masked_logits_agree():
    lowest = np.finfo(np.float32).min
    inputs = np.array([[0.5, lowest, 1.0], [lowest, lowest, 0.0], [0.0, -np.inf, 1.0]], np.float32)
    other = np.array([[0.0, lowest, lowest], [lowest, 0.0, 0.0], [0.0, 0.0, 1.0]], np.float32)
    theirs = ModelCatalog.get_action_dist(spaces.Discrete(3), {}, None, "torch")[0]
    ours = ModelCatalog.get_action_dist(spaces.Discrete(3), {}, None, "tf")[0]
    dist, expected = ours(inputs), theirs(torch.as_tensor(inputs))
    np.testing.assert_allclose(dist.entropy(), expected.entropy(), **TOLERANCE)
    np.testing.assert_allclose(dist.kl(ours(other)), expected.kl(theirs(torch.as_tensor(other))), **TOLERANCE)
    np.testing.assert_allclose(dist.logp([2, 2, 2]), expected.logp(torch.tensor([2, 2, 2])), **TOLERANCE)
    drawn = ours(np.repeat(inputs, 500, axis=0)).sample().numpy().reshape(3, 500)
    assert [sorted(set(row)) for row in drawn.tolist()] == [[0, 2], [2], [0, 2]]


def test_extreme_inputs_agree():
    """Clamps: log σ beyond [−20, 2], actions at the bounds, concentrations near 0."""
    inputs = np.array([[0.3, -30.0, -50.0, 5.0], [4.0, -4.0, 1.0, 3.0]], np.float32)
    cases = [
        ("squashed_gaussian", spaces.Box(-1, 1, (2,)), [[-1.0, 1.0], [1.0, 0.0]]),
        ("beta", spaces.Box(0, 1, (2,)), [[0.0, 1.0], [1.0, 0.5]]),
        ("dirichlet", spaces.Box(0, 1, (4,)), [[0.0, 1.0, 0.0, 0.0], [0.25] * 4]),
    ]
    for kind, space, actions in cases:
        theirs = ModelCatalog.get_action_dist(space, {}, kind, "torch")[0](torch.as_tensor(inputs))
        ours = ModelCatalog.get_action_dist(space, {}, kind, "tf")[0](inputs)
        actions = np.array(actions, np.float32)
        np.testing.assert_allclose(ours.logp(actions), theirs.logp(torch.as_tensor(actions)), rtol=1e-5, err_msg=kind)
        np.testing.assert_allclose(ours.deterministic_sample(), theirs.deterministic_sample(), **TOLERANCE)
        assert np.isfinite(ours.sample()).all()
