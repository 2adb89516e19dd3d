"""Environments with several agents whose every step is written down."""

import gymnasium as gym
import numpy as np

from rlframe.env.multi_agent_env import MultiAgentEnv

SPACE = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)


def number(value):
    """An observation that tells which it is."""
    return np.array([value], np.float32)


class Script(MultiAgentEnv):
    """Plays `script`: first the dict that `reset` returns, then the tuples that `step` returns; again and again.

    Numbers stand for observations. Notes the actions it was given in `seen`.
    """

    observation_space = SPACE
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.script = config["script"]
        self.seen = []

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self._numbers(self.script[0])

    def step(self, action_dict):
        self.seen.append(dict(action_dict))
        self.at += 1
        obs, *rest = self.script[self.at]
        return (self._numbers(obs), *rest)

    def _numbers(self, obs):
        return {agent: number(value) for agent, value in obs.items()}


ON, OVER = {"__all__": False}, {"__all__": True}
#: a and b in turns; b's second move wins: a, whose turn it is not, loses.
TURNS = [
    {"a": 1},
    ({"b": 2}, {"a": 0.5}, ON, ON, {}),
    ({"a": 3}, {"a": 0.25, "b": 1.0}, ON, ON, {}),
    ({"b": 4}, {}, ON, ON, {}),
    ({"a": 5, "b": 6}, {"a": -1.0, "b": 1.0}, OVER, ON, {}),
]
#: a and b together; b is through after one step, c comes for the last two, and time is up.
COME_AND_GO = [
    {"a": 1, "b": 2},
    ({"a": 3, "b": 4}, {"a": 1.0, "b": 2.0}, {"b": True, "__all__": False}, ON, {}),
    ({"a": 5, "c": 6}, {"a": 1.0}, ON, ON, {}),
    ({"a": 7, "c": 8}, {"a": 1.0, "c": 3.0}, ON, {"__all__": True}, {}),
]
