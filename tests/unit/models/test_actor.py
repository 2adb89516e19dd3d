import json
import math

import numpy as np
import pytest

from rlframe.models.actor import ChainActor, bind_chain
from rlframe.models.actor_layers import ACTIVATIONS, normalize_activation
from rlframe.models.spec import AppendBias, Dense, LayerNorm, NoisyDense, layer_from_spec
from tests.helpers.chains import run_chain


def dense_weights(name, weight, bias):
    return {f"{name}.weight": np.array(weight, np.float32), f"{name}.bias": np.array(bias, np.float32)}


@pytest.fixture
def two_layers():
    """x -> relu(x W1ᵀ + b1) -> linear, with a value head on the hidden layer."""
    weights = {
        **dense_weights("a", [[1, 0], [0, -1]], [0, 1]),
        **dense_weights("b", [[2, 3]], [0.5]),
        **dense_weights("v", [[1, 1]], [10]),
    }
    spec = {
        "outputs": [Dense("a", "relu").to_spec(), Dense("b").to_spec()],
        "values": [Dense("v").to_spec()],
        "shared": 1,
    }
    return spec, weights


def test_chain_actor_two_layers_gives_numbers_worked_by_hand(two_layers):
    actor = ChainActor(*two_layers)
    # hidden = relu([3, -5 + 1]) = [3, 0]; output = 2·3 + 0.5; value = 3 + 10
    outputs, values = actor.forward_with_values(np.array([[3.0, 5.0]], np.float32))
    assert outputs.tolist() == [[6.5]]
    assert values.tolist() == [13.0]
    assert actor.values(np.array([[3.0, 5.0]], np.float32)).tolist() == [13.0]


def test_chain_actor_weights_changed_in_place_acts_with_the_new_ones(two_layers):
    spec, weights = two_layers
    actor = ChainActor(spec, weights)
    x = np.array([[3.0, 5.0]], np.float32)
    before = actor.forward(x)
    weights["b.bias"][0] = 1.5
    weights["b.weight"][0, 0] = 0.0
    assert before.tolist() == [[6.5]]  # what was returned does not change
    assert actor.forward(x).tolist() == [[1.5]]


def test_chain_actor_leaves_observations_alone(two_layers):
    x = np.array([[3.0, 5.0]], np.float32)
    ChainActor(*two_layers).forward_with_values(x)
    assert x.tolist() == [[3.0, 5.0]]


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int64])
def test_chain_actor_other_dtypes_and_shapes_are_flattened_to_float32(two_layers, dtype):
    outputs = ChainActor(*two_layers).forward(np.array([[[3], [5]]], dtype))
    assert outputs.dtype == np.float32
    assert outputs.tolist() == [[6.5]]


def test_chain_actor_spec_survives_json(two_layers):
    spec, weights = two_layers
    x = np.array([[3.0, 5.0]], np.float32)
    assert ChainActor(json.loads(json.dumps(spec)), weights).forward(x).tolist() == [[6.5]]


def test_chain_actor_without_values_refuses_values(two_layers):
    spec, weights = two_layers
    actor = ChainActor({"outputs": spec["outputs"]}, weights)
    with pytest.raises(ValueError, match="no value function"):
        actor.values(np.zeros((1, 2), np.float32))


def test_chain_actor_values_not_shared_start_from_the_observations(two_layers):
    spec, weights = two_layers
    actor = ChainActor({**spec, "shared": 0}, weights)
    assert actor.forward_with_values(np.array([[3.0, 5.0]], np.float32))[1].tolist() == [18.0]


def test_chain_actor_shared_beyond_outputs_is_refused(two_layers):
    spec, weights = two_layers
    with pytest.raises(ValueError, match="`shared` is 3; wanted 0 to 2"):
        ChainActor({**spec, "shared": 3}, weights)


def test_bind_chain_missing_array_is_named():
    with pytest.raises(ValueError, match=r"needs the weights 'a.weight'; there are \['a.bias'\]"):
        bind_chain([Dense("a")], {"a.bias": np.zeros(2, np.float32)})


def test_bind_chain_wrong_dtype_is_named():
    with pytest.raises(ValueError, match=r"'a.weight' are float64\[2, 2\]; wanted float32 with 2"):
        bind_chain([Dense("a")], {"a.weight": np.zeros((2, 2)), "a.bias": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    "spec",
    [{"kind": "conv", "name": "a"}, {"kind": "dense", "name": "a", "stride": 2}, {"kind": "dense"}, {"name": "a"}],
)
def test_layer_from_spec_unknown_kind_or_field_is_refused(spec):
    with pytest.raises(ValueError, match=r"Unknown layer kind|is described by"):
        layer_from_spec(spec)


@pytest.mark.parametrize("layer", [Dense("a", "tanh", 3), NoisyDense("a"), LayerNorm("a", "relu"), AppendBias("a", 2)])
def test_layer_to_spec_and_back_is_the_same(layer):
    assert layer_from_spec(layer.to_spec()) == layer


def test_activations_match_their_formulas():
    x = np.linspace(-100, 100, 401, dtype=np.float64)
    sigmoid = np.exp(-np.logaddexp(0, -x))
    formulas = {
        "tanh": np.tanh(x),
        "relu": np.maximum(x, 0),
        "elu": np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        "swish": x * sigmoid,
        "silu": x * sigmoid,
        "sigmoid": sigmoid,
        "selu": 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
        "gelu": x * 0.5 * (1 + np.array([math.erf(number / math.sqrt(2)) for number in x])),
        "leaky_relu": np.where(x > 0, x, 0.2 * x),
        "softplus": np.logaddexp(x, 0),
        "softsign": x / (1 + np.abs(x)),
        "relu6": np.clip(x, 0, 6),
    }
    assert formulas.keys() | {"linear"} == ACTIVATIONS.keys()
    for name, expected in formulas.items():
        actual = x.astype(np.float32)
        ACTIVATIONS[name](actual, out=actual)
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-5, err_msg=name)


def test_normalize_activation_none_is_linear_and_typo_is_refused():
    assert normalize_activation(None) == "linear"
    assert normalize_activation("ReLU") == "relu"
    with pytest.raises(ValueError, match="Unknown activation 'rellu'"):
        normalize_activation("rellu")


def noisy_weights():
    rng = np.random.default_rng(0)
    return {
        "n.weight": rng.standard_normal((3, 4), np.float32),
        "n.bias": rng.standard_normal(3, np.float32),
        "n.weight_sigma": np.full((3, 4), 0.5, np.float32),
        "n.bias_sigma": np.full(3, 0.25, np.float32),
    }


def test_noisy_dense_without_generator_is_the_mean():
    weights, x = noisy_weights(), np.ones((2, 4), np.float32)
    expected = run_chain([Dense("n", "relu")], weights, x)
    np.testing.assert_array_equal(run_chain([NoisyDense("n", "relu")], weights, x), expected)


def test_noisy_dense_with_generator_equals_the_noisy_matrix_written_out():
    weights, x = noisy_weights(), np.random.default_rng(1).standard_normal((5, 4), np.float32)
    noise = np.random.default_rng(7).standard_normal(7, np.float32).astype(np.float64)
    f = np.sign(noise) * np.sqrt(np.abs(noise))
    matrix = weights["n.weight"] + weights["n.weight_sigma"] * np.outer(f[4:], f[:4])
    expected = x @ matrix.T + weights["n.bias"] + weights["n.bias_sigma"] * f[4:]
    actual = run_chain([NoisyDense("n")], weights, x, np.random.default_rng(7))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_noisy_dense_draws_anew_and_repeats_with_the_seed():
    weights, x = noisy_weights(), np.ones((1, 4), np.float32)
    spec = {"outputs": [NoisyDense("n").to_spec()]}
    actor = ChainActor(spec, weights, np.random.default_rng(3))
    first, second = actor.forward(x), actor.forward(x)
    again = ChainActor(spec, weights, np.random.default_rng(3))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(again.forward(x), first)
    np.testing.assert_array_equal(actor.mean.forward(x), ChainActor(spec, weights).forward(x))


def test_layer_norm_rows_have_mean_and_scale():
    weights = {"l.weight": np.full(4, 2.0, np.float32), "l.bias": np.full(4, 1.0, np.float32)}
    out = run_chain([LayerNorm("l")], weights, np.array([[1, 2, 3, 4], [-10, 0, 0, 10]], np.float32))
    np.testing.assert_allclose(out.mean(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(out.std(axis=1), 2.0, rtol=1e-4)


def test_append_bias_rows_get_the_vector():
    out = run_chain([AppendBias("f")], {"f.log_std": np.array([7, 8], np.float32)}, np.array([[1], [2]], np.float32))
    assert out.tolist() == [[1, 7, 8], [2, 7, 8]]
