"""Which way a policy acts is chosen when it is built, of its class and its parts."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.agents.ppo.ppo import PPOConfig
from rlframe.agents.ppo.ppo_policy import PPOTorchPolicy
from rlframe.models.catalog import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.policy.inference import NumpyInference
from rlframe.policy.numpy_policy import NumpyPolicy
from rlframe.policy.own_inference import FrameworkInference, HookedInference, OwnActing, OwnForward
from rlframe.policy.policy import Policy

SPACES = gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2)
OBS = np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32)


def make(cls, **model):
    config = PPOConfig.defaults()
    config["model"].update({"fcnet_hiddens": [4], **model})
    return cls(*SPACES, {**config, "seed": 3})


class Linear(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        nn.Module.__init__(self)
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = nn.Linear(3, num_outputs + 1)

    def forward(self, input_dict, state, seq_lens):
        made = self.layer(input_dict["obs_flat"])
        self._value = made[:, -1]
        return made[:, :-1], state

    def value_function(self):
        return self._value


class Extra(PPOTorchPolicy):
    def extra_action_out(self, input_dict, state_batches, model, action_dist):
        return {"entropy": action_dist.entropy()}


class Doubled(PPOTorchPolicy):
    def forward(self, obs, explore=True):
        inputs, values = super().forward(obs, explore)
        return 2 * inputs, values


class Mirrored(PPOTorchPolicy):
    def compute_actions_from_input_dict(self, input_dict, *args, **kwargs):
        actions, states, extra = super().compute_actions_from_input_dict(input_dict, *args, **kwargs)
        return 1 - actions, states, extra


class Swapped(PPOTorchPolicy):
    """Has another model than the one that the constructor made."""

    def __init__(self, *args):
        super().__init__(*args)
        with torch.random.fork_rng():
            self.model = ModelCatalog.get_model_v2(*SPACES, 2, self.config["model"], "torch")


@pytest.mark.parametrize(
    ("cls", "model", "kind"),
    [
        (PPOTorchPolicy, {}, NumpyInference),
        (PPOTorchPolicy, {"use_lstm": True}, NumpyInference),
        (PPOTorchPolicy, {"custom_model": Linear}, FrameworkInference),
        (Extra, {}, HookedInference),
        (Doubled, {}, OwnForward),
        (Mirrored, {}, OwnActing),
    ],
)
def test_each_part_of_the_users_own_has_its_way(cls, model, kind):
    policy = make(cls, **model)
    assert type(policy.inference) is kind
    assert (policy.acting_recipe() is not None) == (kind is NumpyInference)


@pytest.mark.parametrize("cls", [PPOTorchPolicy, Extra, Doubled, Mirrored])
def test_sampling_and_asking_act_alike(cls):
    policy, other = make(cls), make(cls)
    for _ in range(3):
        sampled, asked = policy.act_on_rows(OBS), other.compute_actions(OBS)
        np.testing.assert_array_equal(sampled[0], asked[0])
        np.testing.assert_array_equal(sampled[1]["action_dist_inputs"], asked[2]["action_dist_inputs"])
    assert policy.global_timestep == other.global_timestep == 18


def test_what_a_class_overrides_is_what_acts():
    plain, doubled, mirrored = make(PPOTorchPolicy), make(Doubled), make(Mirrored)
    actions, columns = plain.act_on_rows(OBS)
    np.testing.assert_allclose(doubled.act_on_rows(OBS)[1]["action_dist_inputs"], 2 * columns["action_dist_inputs"])
    np.testing.assert_array_equal(mirrored.act_on_rows(OBS)[0], 1 - actions)


def test_a_method_that_workers_do_not_call_is_told_of_once(caplog):
    class Asked(PPOTorchPolicy):
        def compute_actions(self, *args, **kwargs):
            actions, states, extra = super().compute_actions(*args, **kwargs)
            return 1 - actions, states, extra

    with caplog.at_level("WARNING", "rlframe"):
        policies = [make(Asked), make(Asked)]
        sampled = [policy.act_on_rows(OBS)[0] for policy in policies]
    np.testing.assert_array_equal(1 - make(Asked).compute_actions(OBS)[0], sampled[0])
    said = [record.getMessage() for record in caplog.records if "Asked.compute_actions" in record.getMessage()]
    assert len(said) == 1
    assert "override compute_actions_from_input_dict" in said[0]


def test_a_model_that_takes_the_place_of_another_is_the_one_that_acts():
    policy = make(Swapped)
    np.testing.assert_allclose(policy.forward(OBS)[0], policy.forward_in_framework({"obs": OBS}, True)[0], atol=1e-6)


def test_a_policy_that_cannot_act_says_so():
    with pytest.raises(NotImplementedError, match=r"defines neither forward\(\) nor compute_actions\(\)"):
        Policy(*SPACES, {}).forward(OBS)
    policy = make(PPOTorchPolicy)
    worker = NumpyPolicy(*SPACES, policy.config, recipe=policy.acting_recipe())
    worker.set_weights(policy.get_weights())
    assert type(worker.inference) is NumpyInference
    np.testing.assert_array_equal(worker.act_on_rows(OBS)[0], policy.act_on_rows(OBS)[0])
    with pytest.raises(AttributeError, match=r"in NumPy and has no 'model': set config\[.sample_in_numpy.\] = False"):
        worker.model  # noqa: B018 - reading it is the point
    with pytest.raises(NotImplementedError, match="acts in NumPy and has no 'compute_gradients'"):
        worker.compute_gradients({})
