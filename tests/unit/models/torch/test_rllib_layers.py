"""Layers by RLlib's names: the same weights, the same computation."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.agents.ddpg.ddpg_torch_policy import DDPGTorchPolicy
from rlframe.agents.ddpg.td3 import TD3_DEFAULT_CONFIG as TD3
from rlframe.agents.dqn import DEFAULT_CONFIG as DQN
from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from rlframe.agents.ppo import DEFAULT_CONFIG as PPO
from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from rlframe.models import MODEL_DEFAULTS, ModelCatalog
from rlframe.models.torch.fcnet import FullyConnectedNetwork
from rlframe.models.torch.misc import SlimFC

VECTOR, IMAGE = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(0, 1, (10, 10, 2), np.float32)
TWO = gym.spaces.Discrete(2)


def model_of(obs: Any, **model: Any) -> Any:
    return ModelCatalog.get_model_v2(obs, TWO, 2, {**MODEL_DEFAULTS, **model})


def test_fully_connected_layers_compute_outputs_and_values() -> None:
    model = model_of(VECTOR, fcnet_hiddens=[5, 4], vf_share_layers=False)
    obs = torch.rand(6, 3)
    outputs, _ = model({"obs": obs})
    taken_apart = nn.Sequential(*model._hidden_layers, model._logits)
    torch.testing.assert_close(taken_apart(obs), outputs)
    values = model._value_branch(model._value_branch_separate(obs)).squeeze(1)
    torch.testing.assert_close(values, model.value_function())
    assert model._hidden_layers[0]._model[0] is model.hidden_0
    assert isinstance(model._hidden_layers[0]._model[1], nn.Tanh)
    assert "_logits" not in dict(model.named_modules())
    assert not hasattr(model, "_convs")


def test_layers_are_found_among_the_submodules_by_these_names() -> None:
    model = model_of(VECTOR, fcnet_hiddens=[5, 4])
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    for each in (model, copied):
        modules = each._modules
        assert modules["_logits"]._modules["_model"][0] is each.output
        assert modules["_hidden_layers"][0]._modules["_model"][0] is each.hidden_0
        assert "_logits" not in modules
        with pytest.raises(KeyError, match="_convs"):
            modules["_convs"]
    assert copied.output is not model.output
    config = {**DQN, "hiddens": [7]}
    q_model: Any = DQNTorchPolicy(VECTOR, TWO, config).model
    assert q_model._modules["advantage_module"][0]._model[0] is q_model.advantage_module[0]._model[0]


def test_actors_and_critics_are_sequences_of_layers() -> None:
    config = {**TD3, "actor_hiddens": [5, 4], "twin_q": False}
    model: Any = DDPGTorchPolicy(VECTOR, gym.spaces.Box(-1, 1, (2,)), config).model
    obs = torch.rand(6, 3)
    kinds = [type(layer) for layer in model.policy_model]
    assert kinds == [SlimFC, SlimFC, SlimFC, nn.Tanh]
    assert [type(part) for layer in [*model.policy_model][:3] for part in layer._modules["_model"]] == [
        nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear,
    ]  # fmt: skip
    torch.testing.assert_close(nn.Sequential(*model.policy_model)(obs), model.policy_model(obs))
    rows = torch.rand(6, 5)
    torch.testing.assert_close(nn.Sequential(*model.q_model)(rows), model.q_model(rows))


def test_a_keras_model_is_missed_with_advice() -> None:
    with pytest.raises(AttributeError, match=r"base_model.*set framework='tf' in the config"):
        model_of(VECTOR).base_model.summary()


def test_what_is_not_built_is_none() -> None:
    shared = model_of(VECTOR, fcnet_hiddens=[5], vf_share_layers=True)
    assert shared._value_branch_separate is None
    assert ModelCatalog.get_model_v2(VECTOR, TWO, None, MODEL_DEFAULTS)._logits is None


@pytest.mark.parametrize("share", [True, False])
def test_layers_of_an_image_network(share: bool) -> None:
    model = model_of(IMAGE, conv_filters=[[4, [4, 4], 2], [8, [5, 5], 1]], vf_share_layers=share)
    images = torch.rand(3, 10, 10, 2)
    outputs, _ = model({"obs": images})
    features = model._convs(images.permute(0, 3, 1, 2))
    torch.testing.assert_close(model._logits(features).flatten(1), outputs)
    if share:
        values = model._value_branch(features.flatten(1))
    else:
        values = model._value_branch_separate(images.permute(0, 3, 1, 2)).flatten(1)
    torch.testing.assert_close(values.squeeze(1), model.value_function())


def test_heads_of_an_lstm_and_the_layers_before_it() -> None:
    model = model_of(VECTOR, fcnet_hiddens=[5], use_lstm=True, lstm_cell_size=4)
    assert model._logits_branch._model[0] is model.heads.output
    assert model._value_branch._model[0] is model.heads.value
    assert model._hidden_layers[0]._model[0] is model.inner.hidden_0
    assert model._convs is None


def test_heads_of_dqn_compute_q_values() -> None:
    config = {**DQN, "framework": "torch", "hiddens": [4], "model": {**DQN["model"], "fcnet_hiddens": [5]}}
    model = DQNTorchPolicy(VECTOR, TWO, config).model
    features = model._hidden_layers(torch.rand(6, 3))
    advantage, value = model.advantage_module(features), model.value_module(features)
    torch.testing.assert_close(value + advantage - advantage.mean(1, keepdim=True), model.q_values(features).q)
    assert [name for name, _ in model.advantage_module.named_children()] == ["dueling_A_0", "A"]
    assert [name for name, _ in model.value_module.named_children()] == ["dueling_V_0", "V"]


def test_weights_written_by_these_names_are_acted_by() -> None:
    config = {**PPO, "framework": "torch", "model": {**PPO["model"], "fcnet_hiddens": [5]}}
    policy = PPOTorchPolicy(VECTOR, TWO, config)
    with torch.no_grad():
        policy.model._logits._model[0].weight.zero_()
        policy.model._logits._model[0].bias.copy_(torch.tensor([0.0, 3.0]))
    actions, _, extra = policy.compute_actions(np.zeros((2, 3), np.float32), explore=False)
    assert actions.tolist() == [1, 1]
    np.testing.assert_array_equal(extra["action_dist_inputs"], [[0, 3], [0, 3]])


class OwnHead(FullyConnectedNetwork):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._logits = nn.Sequential(nn.Linear(5, 2), nn.Tanh())


class OwnForward(FullyConnectedNetwork):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._hidden_layers = nn.Linear(3, 2)

    def forward(self, input_dict: Any, state: Any, seq_lens: Any) -> Any:
        return self._hidden_layers(input_dict["obs_flat"]), state


class RLlibsForward(FullyConnectedNetwork, nn.Module):
    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str) -> None:
        FullyConnectedNetwork.__init__(self, obs_space, action_space, num_outputs, model_config, name)

    def forward(self, input_dict: Any, state: Any, seq_lens: Any) -> Any:
        self._last_flat_in = input_dict["obs_flat"].reshape(len(input_dict["obs_flat"]), -1)
        self._features = self._hidden_layers(self._last_flat_in)
        logits = self._logits(self._features) if self._logits else self._features
        return (self._append_free_log_std(logits) if self.free_log_std else logits), state


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("hiddens", [[4], [3, 3]])
def test_a_forward_pass_of_rllibs_layers_gives_what_the_networks_own_gives(
    share: bool, free: bool, hiddens: list[int]
) -> None:
    options = {**MODEL_DEFAULTS, "fcnet_hiddens": hiddens, "vf_share_layers": share, "free_log_std": free}
    plain = FullyConnectedNetwork(VECTOR, TWO, 4, options, "plain")
    own = RLlibsForward(VECTOR, TWO, 4, options, "own")
    own.load_state_dict(plain.state_dict())
    obs = torch.rand(6, 3)
    torch.testing.assert_close(own({"obs": obs})[0], plain({"obs": obs})[0])
    torch.testing.assert_close(own.value_function(), plain.value_function())
    torch.testing.assert_close(own._features, plain._features)
    assert own.vf_share_layers == share


def test_a_derived_network_replaces_the_head() -> None:
    model = OwnHead(VECTOR, TWO, 2, {**MODEL_DEFAULTS, "fcnet_hiddens": [5]}, "own")
    obs = torch.rand(6, 3)
    torch.testing.assert_close(model({"obs": obs})[0], model._logits(model._hidden_layers(obs)))
    assert model.actor_spec() is None  # the NumPy actor knows no such head
    own = OwnForward(VECTOR, TWO, 2, {**MODEL_DEFAULTS, "fcnet_hiddens": [5]}, "own")
    torch.testing.assert_close(own({"obs": obs})[0], own._hidden_layers(obs))


class OwnHiddenLayers(FullyConnectedNetwork):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for _ in range(2):  # the second stays
            self._hidden_layers = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
            self._value_branch_separate = nn.Sequential(nn.Linear(3, 5), nn.Tanh())


def test_a_derived_network_replaces_hidden_layers() -> None:
    options = {**MODEL_DEFAULTS, "fcnet_hiddens": [6, 5], "vf_share_layers": False}
    model = OwnHiddenLayers(VECTOR, TWO, 2, options, "own")
    obs = torch.rand(6, 3)
    torch.testing.assert_close(model({"obs": obs})[0], model._logits(model._hidden_layers(obs)))
    torch.testing.assert_close(model.value_function(), model._value_branch(model._value_branch_separate(obs))[:, 0])
    assert isinstance(model._hidden_layers[1], nn.ReLU)
    assert {name.partition(".")[0] for name in model.state_dict()} == {
        "_hidden_layers", "_value_branch_separate", "output", "value",
    }  # fmt: skip
    assert model.actor_spec() is None


def test_layers_that_would_not_compute_cannot_be_set() -> None:
    for name in ("_hidden_layers", "_value_branch_separate"):
        with pytest.raises(ValueError, match=f"{name} cannot be replaced"):
            setattr(model_of(VECTOR, fcnet_hiddens=[5]), name, nn.Linear(3, 5))
    model = model_of(VECTOR, fcnet_hiddens=[5])
    with pytest.raises(ValueError, match="_logits cannot be replaced: acting reads the network's own weights"):
        model._logits = nn.Linear(5, 2)
