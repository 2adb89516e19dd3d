"""Networks as data: one description, three builders, the same numbers, weights' names and gradients."""

import json

import numpy as np
import pytest

from rlframe.models.recurrent_actor import make_actor
from rlframe.models.spec import (
    GRU,
    LSTM,
    AppendBias,
    Atoms,
    BatchNorm,
    Convolutions,
    Dense,
    Dueling,
    Initial,
    Network,
    NoisyDense,
    Rescale,
    dense_layers,
    layer_from_spec,
)
from rlframe.utils.errors import ConfigError
from tests.helpers.chains import run_chain
from tests.helpers.frameworks import FRAMEWORKS, both_frameworks, needs_tf, to_tensor

INPUTS = {"obs": 3, "actions": 2}
BRANCHES = [(Dense("a_0", "tanh", 5), Dense("a_1", units=units)) for units in (4, 12)]
CHAINS = {
    "dense": (*dense_layers([7, 5], "relu"), Dense("output", "tanh", 4)),
    "layer norm": (*dense_layers([7], "swish", layer_norm=True), Dense("output", units=4)),
    "batch norm": (
        BatchNorm("input_norm", units=5),
        *dense_layers([7], "relu", batch_norm=True),
        Dense("out", units=2),
    ),
    "log std": (Dense("output", units=2), AppendBias("free", 2)),
    "bounds": (Dense("output", "tanh", 2), Rescale("bounds", (-3.0, 1.0), (1.0, 9.0))),
    "noisy": (NoisyDense("hidden", "relu", 6), Dense("output", units=2)),
    "dueling": (Dense("hidden", "relu", 7), Dueling("q", BRANCHES[0], (Dense("v", units=1),))),
    "atoms": (Dueling("q", BRANCHES[1], (Dense("v", units=3),), atoms=3), Atoms("support", 4, 3, -2.0, 5.0)),
}


def build(framework, spec):
    if framework == "torch":
        from rlframe.models.torch.networks import TorchNetwork

        return TorchNetwork(spec)
    from rlframe.models.tf.networks import TFNetwork

    return TFNetwork(spec)


def weights_of(framework, network):
    if framework == "torch":
        return {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    return {name: variable.numpy() for name, variable in network.named_variables().items()}


def load(framework, network, weights):
    if framework == "torch":
        from rlframe.policy.torch.arrays import load_weights

        load_weights(network, weights, owner="test")
    else:
        from rlframe.policy.tf.weights import load_weights

        load_weights(network.named_variables(), weights, owner="test")


def random_weights(network, framework, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {name: array.shape for name, array in weights_of(framework, network).items()}
    drawn = {name: rng.normal(size=shape).astype(np.float32) for name, shape in sorted(shapes.items())}
    return {name: abs(array) + 0.1 if "var" in name or "steps" in name else array for name, array in drawn.items()}


def rows(count=6):
    rng = np.random.default_rng(1)
    return [rng.normal(size=(count, width)).astype(np.float32) for width in INPUTS.values()]


@both_frameworks
@pytest.mark.parametrize("chain", CHAINS)
def test_a_framework_computes_what_numpy_computes_from_the_same_weights(framework, chain):
    spec = Network(INPUTS, CHAINS[chain])
    network = build(framework, spec)
    if framework == "torch":
        network.eval()
    weights = random_weights(network, framework)
    load(framework, network, weights)
    obs, actions = rows()
    made = np.asarray(
        network(to_tensor(framework, obs), to_tensor(framework, actions)).detach()
        if framework == "torch"
        else network(to_tensor(framework, obs), to_tensor(framework, actions))
    )
    described = json.loads(json.dumps(spec.prefixed("actor")))
    by_prefix = {f"actor.{name}": array for name, array in weights.items()}
    wanted = run_chain(described, by_prefix, np.concatenate([obs, actions], 1))
    np.testing.assert_allclose(made, wanted, atol=1e-5, rtol=1e-4)
    assert made.shape == (6, spec.out_size)


RECURRENT = {
    "gru": (Dense("inputs", "relu", 6), GRU("gru", 5), Dense("outputs", units=4)),
    "two layers": (LSTM("first", 5), GRU("second", 3), Dense("outputs", "tanh", units=4)),
}


@both_frameworks
@pytest.mark.parametrize("chain", RECURRENT)
def test_recurrent_layers_unroll_to_what_numpy_computes_step_by_step(framework, chain):
    spec = Network({"obs": 3}, RECURRENT[chain])
    network = build(framework, spec)
    weights = random_weights(network, framework)
    load(framework, network, weights)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4, 6, 3)).astype(np.float32)
    begin = [rng.normal(size=(4, *state.shape)).astype(np.float32) for state in spec.initial_states()]
    assert [state.shape for state in network.initial_states()] == [state.shape[1:] for state in begin]
    outputs, after = network.unroll(to_tensor(framework, x), [to_tensor(framework, state) for state in begin])
    described = json.loads(json.dumps(spec.prefixed("actor")))
    actor = make_actor({"outputs": described}, {f"actor.{name}": array for name, array in weights.items()})
    states, steps = begin, []
    for t in range(x.shape[1]):
        made, _, states = actor.step(x[:, t], {f"state_in_{index}": state for index, state in enumerate(states)})
        steps.append(made)
    for tensor, array in ((outputs, np.stack(steps, 1)), *zip(after, states, strict=True)):
        np.testing.assert_allclose(tensor.detach() if framework == "torch" else tensor, array, atol=1e-5)


def test_a_gru_is_that_of_the_paper():
    """By pencil, one unit: r = z = σ(0) = 1/2, n = tanh(1 + 2/2), h' = (1 − z) n + z h."""
    weights = {
        "gru.weight_ih": np.array([[0], [0], [1]], np.float32), "gru.weight_hh": np.array([[0], [0], [1]], np.float32),
        "gru.bias_ih": np.zeros(3, np.float32), "gru.bias_hh": np.array([0, 0, -1], np.float32),
    }  # fmt: skip
    actor = make_actor({"outputs": [GRU("gru", 1).to_spec()]}, weights)
    made, _, _ = actor.step(np.ones((1, 1), np.float32), {"state_in_0": np.full((1, 1), 3, np.float32)})
    assert made[0, 0] == pytest.approx(0.5 * np.tanh(2.0) + 0.5 * 3)


@needs_tf
@pytest.mark.parametrize("chain", CHAINS)
def test_both_frameworks_name_and_shape_weights_alike(chain):
    spec = Network(INPUTS, CHAINS[chain])
    shapes = [{n: a.shape for n, a in weights_of(f, build(f, spec)).items()} for f in ("torch", "tf")]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_q_values_of_atoms_are_those_of_the_worked_example(framework):
    """The state prefers the upper of two atoms by log 3, and the second of two actions it by as much again."""
    heads = Dueling("q", (Dense("a", units=4),), (Dense("v", units=2),), atoms=2)
    network = build(framework, Network({"obs": 1}, (heads, Atoms("support", 2, 2, 0.0, 10.0))))
    third = float(np.log(3.0))
    bias = {"a": [0.0, -third, 0.0, third], "v": [0.0, third]}
    weights = {f"{name}.bias": np.array(values, np.float32) for name, values in bias.items()}
    weights |= {"a.weight": np.zeros((4, 1), np.float32), "v.weight": np.zeros((2, 1), np.float32)}
    load(framework, network, weights)
    made = network(to_tensor(framework, np.zeros((1, 1), np.float32)))
    # Upper atoms have the logits 0 and 2 log 3 above the lower ones: probabilities 1/2 and 9/10.
    np.testing.assert_allclose(np.asarray(made.detach() if framework == "torch" else made), [[5.0, 9.0]], rtol=1e-5)


@needs_tf
def test_convolutions_are_the_same_in_both_frameworks_of_images_and_of_flat_rows():
    layers = (
        Convolutions("convs", (8, 6, 2), ((3, 3, 2), (4, (2, 2), 1, "valid")), reduce=False),
        Dense("out", units=2),
    )
    spec, images = Network({"obs": 96}, layers), np.random.default_rng(3).random((5, 8, 6, 2), np.float32)
    made = []
    for framework in ("torch", "tf"):
        network = build(framework, spec)
        load(framework, network, random_weights(network, framework))
        made += [network(to_tensor(framework, x)) for x in (images, images.reshape(5, 96))]
    arrays = [np.asarray(x.detach() if hasattr(x, "detach") else x) for x in made]
    assert arrays[0].shape == (5, 2)
    for array in arrays[1:]:
        np.testing.assert_allclose(array, arrays[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"NumPy cannot act with a 'convolutions' layer; choose one of .*'dense'"):
        run_chain(spec.prefixed("q"), {}, images)


@both_frameworks
def test_batch_renormalisation_follows_the_batch_and_then_limits_it(framework):
    layer = BatchNorm("norm", units=2, momentum=0.1, warmup=1)
    network = build(framework, Network({"obs": 2}, (layer,)))
    x = np.array([[0.0, 10.0], [2.0, 14.0], [4.0, 18.0]], np.float32)
    epsilon, mean, variance = 1e-3, x.mean(0), x.var(0)
    plain = (x - mean) / np.sqrt(variance + epsilon)

    def called(training):
        made = network(to_tensor(framework, x), training=training)
        return np.asarray(made.detach() if framework == "torch" else made)

    np.testing.assert_allclose(called(True), plain, rtol=1e-5)  # the first batch warms up
    running_mean, running_var = 0.1 * mean, 1.0 + 0.1 * (variance - 1.0)
    found = weights_of(framework, network)
    np.testing.assert_allclose(found["norm.running_mean"], running_mean, rtol=1e-5)
    np.testing.assert_allclose(found["norm.running_var"], running_var, rtol=1e-5)
    std = np.sqrt(running_var + epsilon)
    np.testing.assert_allclose(called(False), (x - running_mean) / std, rtol=1e-5)
    scale = np.clip(np.sqrt(variance + epsilon) / std, 1 / 3, 3)
    shift = np.clip((mean - running_mean) / std, -5, 5)
    assert shift[1] == 5.0, "the second column is beyond the limit"
    np.testing.assert_allclose(called(True), plain * scale + shift, rtol=1e-4)


@pytest.mark.parametrize(
    ("initial", "check"),
    [
        (Initial("normc", 0.5), lambda w, b: np.allclose(np.linalg.norm(w, axis=1), 0.5) and not b.any()),
        (Initial("orthogonal", 0.5), lambda w, b: np.allclose(w.T @ w, 0.25 * np.eye(4), atol=1e-6) and not b.any()),
        (Initial("xavier"), lambda w, b: 0.5 < abs(w).max() <= np.sqrt(6 / 13) and not b.any()),
        (Initial("fan_in"), lambda w, b: 0.4 < abs(w).max() <= 0.5 and b.any() and abs(b).max() <= 0.5),
        (Initial("ones"), lambda w, b: (w == 1.0).all() and not b.any()),
        (Initial("uniform", 3e-3), lambda w, b: 2e-3 < abs(w).max() <= 3e-3 and b.any()),
    ],
)
def test_initial_weights_have_the_size_that_their_kind_says(initial, check):
    weights, biases = initial.draw(np.random.default_rng(0), 9, 4)
    assert weights.shape == (9, 4)
    assert check(weights, biases)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_networks_begin_with_the_initial_weights_of_their_layers(framework):
    network = build(framework, Network({"obs": 4}, (Dense("output", "linear", 3, Initial("normc", 0.01)),)))
    found = weights_of(framework, network)
    np.testing.assert_allclose(np.linalg.norm(found["output.weight"], axis=1), 0.01, rtol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "layers", "said"),
    [
        ({}, (Dense("output", units=1),), "needs inputs and layers"),
        ({"obs": 2}, (), "needs inputs and layers"),
        ({"obs": 2}, (Dense("a", units=1), Dense("a", units=1)), "more than once"),
        ({"obs": 2}, (Dense("a"),), r"\['a'\] have no width; wanted units=n"),
    ],
)
def test_networks_that_cannot_be_built_are_refused_in_a_sentence(inputs, layers, said):
    with pytest.raises(ConfigError, match=said):
        Network(inputs, layers)


def test_unknown_initial_weights_and_layers_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="wanted 'normc', 'xavier', 'orthogonal', 'fan_in', 'uniform' or 'ones'"):
        Initial("glorot").draw(np.random.default_rng(0), 2, 2)
    with pytest.raises(ValueError, match="Unknown layer kind 'spiking'"):
        layer_from_spec({"kind": "spiking", "name": "a"})
