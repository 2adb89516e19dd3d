"""The NumPy actor stands in for the torch model: the same outputs and values to 1e-6, on the model's live memory."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlframe.models.actor import ChainActor
from rlframe.models.actor_layers import ACTIVATIONS
from rlframe.models.catalog import ModelCatalog
from rlframe.models.spec import Dense, LayerNorm, NoisyDense
from rlframe.models.torch.noisy import NoisyLayer

CONFIGS = [
    {},
    {"fcnet_hiddens": [64, 64]},
    {"fcnet_hiddens": [64, 64], "vf_share_layers": False},
    {"fcnet_hiddens": []},
    {"fcnet_hiddens": [], "vf_share_layers": False},
    {"fcnet_hiddens": [32], "post_fcnet_hiddens": [16, 8], "post_fcnet_activation": "swish"},
    {"fcnet_hiddens": [32, 32], "no_final_linear": True},
    {"fcnet_hiddens": [32], "free_log_std": True},
    {"fcnet_hiddens": [32], "free_log_std": True, "no_final_linear": True},
    *({"fcnet_hiddens": [64, 64], "fcnet_activation": name} for name in ACTIVATIONS),
]
OBS = spaces.Box(-np.inf, np.inf, (6,), np.float32)


def build(config, num_outputs=4, obs_space=OBS, scale=True):
    torch.manual_seed(0)
    model = ModelCatalog.get_model_v2(obs_space, spaces.Discrete(4), num_outputs, config, "torch")
    if scale:  # as after training: the small heads of a fresh network would hide differences
        with torch.no_grad():
            for name in ("output", "value"):
                if hasattr(model, name):
                    getattr(model, name).weight.mul_(50)
    return model


def live_weights(model):
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def assert_agree(model, actor, x):
    with torch.no_grad():
        outputs, _ = model({"obs": torch.as_tensor(x)})
        values = model.value_function()
    actual_outputs, actual_values = actor.forward_with_values(x)
    assert actual_outputs.dtype == actual_values.dtype == np.float32
    np.testing.assert_allclose(actual_outputs, outputs.numpy(), rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(actual_values, values.numpy(), rtol=1e-6, atol=2e-6)
    np.testing.assert_array_equal(actor.forward(x), actual_outputs)
    np.testing.assert_array_equal(actor.values(x), actual_values)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("batch", [1, 16])
def test_actor_every_config_agrees_with_the_model(config, batch):
    model = build(config)
    actor = ChainActor(model.actor_spec(), live_weights(model))
    x = np.random.default_rng(0).standard_normal((batch, 6)).astype(np.float32)
    assert_agree(model, actor, x)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_actor_spec_without_the_framework_is_the_model_s(config):
    assert ModelCatalog.actor_spec(OBS, 4, config) == build(config).actor_spec()


def test_actor_fresh_network_agrees_to_1e_6():
    model = build({"fcnet_hiddens": [64, 64]}, scale=False)
    actor = ChainActor(model.actor_spec(), live_weights(model))
    x = np.random.default_rng(1).standard_normal((256, 6)).astype(np.float32)
    with torch.no_grad():
        outputs, _ = model({"obs": torch.as_tensor(x)})
    np.testing.assert_allclose(actor.forward(x), outputs.numpy(), rtol=0, atol=1e-6)


def test_actor_on_live_memory_follows_the_optimiser():
    model = build({"fcnet_hiddens": [16]})
    actor = ChainActor(model.actor_spec(), live_weights(model))
    x = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    before = actor.forward(x)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        outputs, _ = model({"obs": torch.as_tensor(x)})
        optimizer.zero_grad()
        (outputs.square().sum() + model.value_function().square().sum()).backward()
        optimizer.step()
    assert np.abs(actor.forward(x) - before).max() > 0.1
    assert_agree(model, actor, x)


def test_actor_uint8_vectors_agree():
    space = spaces.Box(0, 255, (6,), np.uint8)
    model = build({"fcnet_hiddens": [16]}, obs_space=space)
    actor = ChainActor(model.actor_spec(), live_weights(model))
    assert_agree(model, actor, np.random.default_rng(3).integers(0, 256, (5, 6)).astype(np.uint8))


def test_actor_of_a_copied_model_agrees():
    model = copy.deepcopy(build({"fcnet_hiddens": [16]}))
    actor = ChainActor(model.actor_spec(), live_weights(model))
    assert_agree(model, actor, np.ones((2, 6), np.float32))


def test_layer_norm_agrees():
    torch.manual_seed(0)
    linear, norm = nn.Linear(6, 8), nn.LayerNorm(8)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    weights = {f"l.{name}": value.detach().numpy() for name, value in linear.named_parameters()}
    weights |= {f"n.{name}": value.detach().numpy() for name, value in norm.named_parameters()}
    x = torch.randn(5, 6)
    actor = ChainActor({"outputs": [Dense("l").to_spec(), LayerNorm("n", "relu").to_spec()]}, weights)
    expected = torch.relu(norm(linear(x))).detach().numpy()
    np.testing.assert_allclose(actor.forward(x.numpy()), expected, rtol=1e-5, atol=2e-6)


def test_noisy_layer_means_agree_and_noise_has_the_same_spread():
    torch.manual_seed(0)
    layer = NoisyLayer(6, 3, sigma0=0.5, activation="tanh")
    weights = {f"n.{name}": value.detach().numpy() for name, value in layer.named_parameters()}
    spec = {"outputs": [NoisyDense("n", "tanh").to_spec()]}
    x = torch.randn(4, 6)
    with torch.no_grad():
        expected = layer.eval()(x).numpy()
        np.testing.assert_allclose(ChainActor(spec, weights).forward(x.numpy()), expected, rtol=1e-6, atol=1e-6)
        layer.train()
        theirs = np.stack([layer(x).numpy() for _ in range(4000)])
    noisy = ChainActor(spec, weights, np.random.default_rng(0))
    ours = np.stack([noisy.forward(x.numpy()) for _ in range(4000)])
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), atol=0.03)
