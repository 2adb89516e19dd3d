"""RLlib's helpers and models that exist for their names: what they return, and how they learn."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.agents.ppo import DEFAULT_CONFIG as PPO
from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.models import MODEL_DEFAULTS, ModelCatalog, modelv2
from rlframe.models.modelv2 import flatten
from rlframe.models.torch.attention_net import GTrXLNet
from rlframe.models.torch.misc import Reshape
from rlframe.models.torch.torch_action_dist import TorchSquashedGaussian
from rlframe.models.utils import get_activation_fn, get_filter_config, get_initializer
from tests.helpers.frameworks import needs_tf

VECTOR, TWO = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)


def test_activations_and_initialisers_of_torch() -> None:
    assert get_activation_fn("relu", framework="torch") is nn.ReLU
    assert get_activation_fn("swish", framework="torch") is nn.SiLU
    assert get_activation_fn("linear", framework="torch") is None
    assert get_activation_fn(nn.Tanh, framework="torch") is nn.Tanh
    assert get_initializer("default", framework="torch") is nn.init.xavier_uniform_
    assert get_initializer("xavier_normal", framework="torch") is nn.init.xavier_normal_


@needs_tf
def test_activations_and_initialisers_of_tensorflow() -> None:
    from rlframe.utils.quiet_tf import tf

    assert get_activation_fn("relu") is tf.nn.relu
    assert get_activation_fn("leaky_relu") is tf.nn.leaky_relu
    assert get_initializer(None) is tf.keras.initializers.GlorotUniform


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: get_activation_fn("rellu", framework="torch"), "rellu"),
        (lambda: get_activation_fn("relu", framework="jax"), "framework='jax'; wanted 'torch' or 'tf'"),
        (lambda: get_initializer("normc"), "'normc'; wanted one of"),
        (lambda: get_filter_config((50, 50, 3)), "No default convolutions for images of 50x50"),
    ],
)
def test_unknown_ones_are_answered(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_small_things() -> None:
    assert get_filter_config((84, 84, 3)) == [[16, [8, 8], 4], [32, [4, 4], 2], [256, [11, 11], 1]]
    assert flatten(torch.zeros(2, 3, 4), "torch").shape == (2, 12)
    assert Reshape([-1, 2, 3])(torch.zeros(4, 6)).shape == (4, 2, 3)
    actions, logp = TorchSquashedGaussian(torch.zeros(5, 2)).sample_logp()
    assert actions.shape == (5, 1)
    assert logp.shape == (5,)


def test_observations_are_unpacked_by_the_nested_space() -> None:
    space = gym.spaces.Dict({"a": VECTOR, "b": gym.spaces.Tuple([TWO, VECTOR])})
    flat = np.arange(16, dtype=np.float32).reshape(2, 8)
    made = modelv2._unpack_obs(flat, space, np)
    np.testing.assert_array_equal(made["a"], flat[:, :3])
    np.testing.assert_array_equal(made["b"][0], flat[:, 3:5])
    np.testing.assert_array_equal(made["b"][1], flat[:, 5:])


def test_from_batch_gives_what_a_call_gives() -> None:
    model = ModelCatalog.get_model_v2(VECTOR, TWO, 2, {**MODEL_DEFAULTS, "use_lstm": True, "lstm_cell_size": 4})
    obs, states = torch.rand(6, 3), [torch.rand(2, 4), torch.rand(2, 4)]
    lengths = torch.tensor([3, 3])
    columns = {"obs": obs, "state_in_0": states[0], "state_in_1": states[1], "seq_lens": lengths}
    outputs, new_states = model({"obs": obs}, states, lengths)
    for batch in (columns, SampleBatch.from_columns(dict(columns))):
        made, made_states = model.from_batch(batch)
        torch.testing.assert_close(made, outputs)
        torch.testing.assert_close(made_states, new_states)
        assert "obs_flat" not in batch


GTRXL = {"num_transformer_units": 2, "attention_dim": 8, "memory_inference": 4, "memory_training": 4, "head_dim": 4}


def test_gtrxl_net_is_a_custom_model_that_learns() -> None:
    model = {**PPO["model"], "custom_model": GTrXLNet, "custom_model_config": GTRXL, "max_seq_len": 5}
    policy = PPOTorchPolicy(VECTOR, TWO, {**PPO, "framework": "torch", "seed": 0, "model": model})
    assert [state.shape for state in policy.get_initial_state()] == [(4, 8), (4, 8)]
    action, states, _ = policy.compute_single_action(np.zeros(3, np.float32), policy.get_initial_state())
    assert action in (0, 1)
    assert [state.shape for state in states] == [(4, 8), (4, 8)]
    assert any(np.any(state[-1]) for state in states)  # the step is in the memory
    features = GTrXLNet(VECTOR, TWO, None, dict(MODEL_DEFAULTS), "features", attention_dim=8)
    assert features.num_outputs == 8
    outputs, _ = features({"obs": torch.rand(6, 3)}, [torch.zeros(2, 50, 8)], torch.tensor([3, 3]))
    assert outputs.shape == (6, 8)


@needs_tf
def test_gtrxl_net_of_tensorflow_agrees_with_that_of_torch() -> None:
    from rlframe.models.tf.attention_net import GTrXLNet as TFGTrXLNet
    from rlframe.utils.quiet_tf import tf

    ours = GTrXLNet(VECTOR, TWO, 2, dict(MODEL_DEFAULTS), "net", **GTRXL)
    theirs = TFGTrXLNet(VECTOR, TWO, 2, dict(MODEL_DEFAULTS), "net", **GTRXL)
    weights = ours.state_dict()
    for name, variable in theirs.named_variables().items():
        variable.assign(weights[name].numpy())
    obs, states = np.random.default_rng(0).random((6, 3), np.float32), [np.zeros((2, 4, 8), np.float32)] * 2
    outputs, _ = ours({"obs": torch.from_numpy(obs)}, [torch.from_numpy(s) for s in states], torch.tensor([3, 3]))
    made, _ = theirs({"obs": obs}, [tf.constant(state) for state in states], tf.constant([3, 3]))
    np.testing.assert_allclose(made, outputs.detach(), atol=1e-5)


@needs_tf
def test_gumbel_softmax_has_the_log_probability_of_choices() -> None:
    from rlframe.models.tf.tf_action_dist import GumbelSoftmax

    logits = np.log(np.array([[0.2, 0.8], [0.5, 0.5]], np.float32))
    dist = GumbelSoftmax(logits, None, temperature=0.5)
    np.testing.assert_allclose(dist.logp(np.array([1, 0])), np.log([0.8, 0.5]), atol=1e-6)
    np.testing.assert_allclose(dist.deterministic_sample(), [[0.2, 0.8], [0.5, 0.5]], atol=1e-6)
    np.testing.assert_allclose(np.sum(dist.sample(), axis=1), [1, 1], atol=1e-6)
    with pytest.raises(ValueError, match="temperature=0"):
        GumbelSoftmax(logits, None, temperature=0)


def test_a_distribution_with_a_constructor_of_its_own_sets_the_choices_behind_that_of_the_base():
    torch = pytest.importorskip("torch")
    from rlframe.models.torch.torch_action_dist import TorchMultiCategorical

    class Split(TorchMultiCategorical):
        def __init__(self, inputs, model):
            super(TorchMultiCategorical, self).__init__(inputs, model)
            self.cats = [torch.distributions.Categorical(logits=part) for part in self.inputs.split((2, 3), dim=1)]

    logits = torch.tensor([[0.0, 1.0, 3.0, 0.0, 1.0]])
    own, known = Split(logits, None), TorchMultiCategorical(logits, None, input_lens=[2, 3])
    assert own.deterministic_sample().tolist() == known.deterministic_sample().tolist() == [[1, 0]]
    assert float(own.entropy()) == pytest.approx(float(known.entropy()))
    assert float(own.logp([[1, 0]])) == pytest.approx(float(known.logp([[1, 0]])))
    with pytest.raises(ValueError, match="do not add up"):
        TorchMultiCategorical(logits, None)
