"""`class MyModel(nn.Module, TorchModelV2)`, in this order, where PyTorch's call hides the one of models."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlframe.agents.a3c.a2c import A2CTrainer
from rlframe.agents.dqn.dqn import DQNTrainer
from rlframe.agents.ppo.ppo import PPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.catalog import ModelCatalog
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from tests.helpers.envs import Counting


class ModuleFirst(nn.Module, TorchModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        width = int(np.prod(obs_space.shape))
        self.outputs, self.values = nn.Linear(width, num_outputs), nn.Linear(width, 1)

    def forward(self, input_dict, state, seq_lens):
        self.obs, self.seen = input_dict["obs"].float(), (state, seq_lens)
        return self.outputs(self.obs), state

    def value_function(self):
        return self.values(self.obs).reshape(-1)


@pytest.mark.parametrize("trainer_class", [PPOTrainer, A2CTrainer, DQNTrainer])
def test_such_models_learn(trainer_class):
    config = {"num_workers": 0, "train_batch_size": 40, "rollout_fragment_length": 20, "seed": 1}
    if trainer_class is DQNTrainer:
        config |= {"learning_starts": 40, "timesteps_per_iteration": 60}
    if trainer_class is PPOTrainer:
        config |= {"sgd_minibatch_size": 20}
    trainer = trainer_class(config | {"model": {"custom_model": ModuleFirst}}, env=Counting)
    before = trainer.get_policy().model.outputs.weight.detach().clone()
    trainer.train()
    assert not before.equal(trainer.get_policy().model.outputs.weight)
    trainer.stop()


def test_they_are_called_on_batches_and_get_observations_as_preprocessing_leaves_them():
    space = gym.spaces.Dict(a=gym.spaces.Discrete(3), b=gym.spaces.Box(-1, 1, (2, 2), np.float32))
    actions = gym.spaces.Discrete(2)
    preprocessed = ModelCatalog.get_preprocessor_for_space(space).observation_space
    model = ModelCatalog.get_model_v2(preprocessed, actions, 2, {"custom_model": ModuleFirst}, "torch")
    obs, states = np.ones((4, 7), np.float32), np.zeros((2, 5), np.float32)
    outputs, new_states = model(SampleBatch(obs=obs, state_in_0=states, seq_lens=np.array([2, 2], np.int32)))
    assert model.obs.shape == (4, 7)
    assert outputs.shape == (4, 2)
    assert model.seen[0][0] is new_states[0] is states
    assert list(model.seen[1]) == [2, 2]


class OnTensors(ModuleFirst):
    def forward(self, x, state=None, seq_lens=None):
        return self.outputs(x)


def test_with_tensors_they_are_modules():
    box, actions = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
    assert OnTensors(box, actions, 2, {}, "model")(torch.ones(4, 3)).shape == (4, 2)
