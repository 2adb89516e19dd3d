"""What models of users' own draw, by dropout and noise, is the policy's: it resumes, and follows its seed."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.agents.ppo import PPOTrainer
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from tests.helpers.frameworks import TORCH_FIRST

SPACES = {"observation_space": gym.spaces.Box(-1, 1, (3,), np.float32), "action_space": gym.spaces.Discrete(2)}


class Dropped(TorchModelV2, nn.Module):
    """Drops features while it learns, and adds noise always."""

    def __init__(self, *args, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        nn.Module.__init__(self)
        self.layers = nn.ModuleList([nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 1)])

    def forward(self, input_dict, state, seq_lens):
        hidden = nn.functional.dropout(self.layers[0](input_dict["obs"]), 0.5, self.training)
        self.hidden = hidden + torch.randn_like(hidden)
        return self.layers[1](self.hidden), state

    def value_function(self):
        return self.layers[2](self.hidden).squeeze(1)


def dropped_in_tf():
    """Returns a model that drops features while it learns."""
    tf = pytest.importorskip("tensorflow")
    from rlframe.models.tf.tf_modelv2 import TFModelV2

    class DroppedTF(TFModelV2):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            layers, seen = tf.keras.layers, tf.keras.Input((3,))
            hidden = layers.Dropout(0.5)(layers.Dense(8)(seen))
            self.net, self.last = tf.keras.Model(seen, [layers.Dense(2)(hidden), hidden]), layers.Dense(1)
            self.drop = layers.Dropout(0.5)

        def forward(self, input_dict, state, seq_lens):
            outputs, hidden = self.net(input_dict["obs"], training=input_dict["is_training"])
            self.values = self.last(self.drop(hidden, training=input_dict["is_training"]))
            return outputs, state

        def value_function(self):
            return tf.reshape(self.values, [-1])

    return DroppedTF


def policy(framework, seed=0):
    model = {"custom_model": Dropped if framework == "torch" else dropped_in_tf()}
    quiet = {"num_workers": 0, "log_sys_usage": False, "create_env_on_driver": False}
    return PPOTrainer({**SPACES, **quiet, "framework": framework, "seed": seed, "model": model}).get_policy()


def batch(of, seed):
    obs = np.random.default_rng(seed).normal(size=(16, 3)).astype(np.float32)
    actions, _, columns = of.compute_actions(obs)
    ones = np.ones(16, np.float32)
    return {"obs": obs, "actions": actions, "advantages": ones, "value_targets": ones, **columns}


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_what_a_model_draws_goes_on_behind_a_restore_whatever_else_draws(framework):
    from rlframe.data.sample_batch import SampleBatch

    one, other = policy(framework), policy(framework, seed=7)
    one.learn_on_batch(SampleBatch(batch(one, 0)))
    other.set_state(one.get_state())
    torch.rand(5)
    ends = []
    for each in (one, other):
        for step in (1, 2):
            each.learn_on_batch(SampleBatch(batch(each, step)))
        ends.append(each.get_weights())
    for name, weights in ends[0].items():
        np.testing.assert_array_equal(weights, ends[1][name])


def test_the_global_stream_is_left_as_it_was_and_a_seed_gives_the_same_draws():
    same, other = [policy("torch", seed) for seed in (0, 1)], policy("torch")
    before = torch.get_rng_state()
    obs = np.zeros((4, 3), np.float32)
    drawn = [each.compute_actions(obs, explore=False)[2]["action_dist_inputs"] for each in (same[0], other, same[1])]
    assert torch.equal(before, torch.get_rng_state())
    other.set_weights(same[0].get_weights())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.abs(drawn[0] - drawn[2]).max() > 0.0
