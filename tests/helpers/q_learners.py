"""Small trainers of DQN."""

import copy

import numpy as np

from rlframe.agents.dqn import DQNTrainer

SMALL = {
    "seed": 5,
    "min_iter_time_s": 0,
    "timesteps_per_iteration": 60,
    "learning_starts": 40,
    "hiddens": [16],
    "model": {"fcnet_hiddens": [16]},
    "target_network_update_freq": 50,
    "log_sys_usage": False,
}


def make(env="CartPole-v1", **overrides):
    return DQNTrainer({**copy.deepcopy(SMALL), **overrides}, env=env)


def weights_of(trainer):
    return trainer.get_weights()["default_policy"]


def assert_same_weights(one, two):
    for name, array in weights_of(one).items():
        np.testing.assert_array_equal(array, weights_of(two)[name], err_msg=name)
