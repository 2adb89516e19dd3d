"""Wrappers that rlframe brings."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlframe.env.apis.task_settable_env import TaskSettableEnv
from rlframe.env.wrappers.exception_wrapper import ResetOnExceptionWrapper
from rlframe.utils.errors import EnvError


class Unreliable(gymnasium.Env):
    """Raises at the calls whose numbers are given."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(2)

    def __init__(self, bad_resets=(), bad_steps=()):
        self.bad = {"reset": set(bad_resets), "step": set(bad_steps)}
        self.count = {"reset": 0, "step": 0}

    def _call(self, name):
        self.count[name] += 1
        if self.count[name] in self.bad[name]:
            raise RuntimeError(f"{name} {self.count[name]}")

    def reset(self, *, seed=None, options=None):
        self._call("reset")
        return 0, {}

    def step(self, action):
        self._call("step")
        return self.count["step"], 1.0, False, False, {}


def test_step_that_raises_truncates_at_last_observation():
    env = ResetOnExceptionWrapper(Unreliable(bad_steps=[3]))
    env.reset()
    env.step(0)
    env.step(0)
    obs, reward, terminated, truncated, info = env.step(0)
    assert (obs, reward, terminated, truncated) == (2, 0.0, False, True)
    assert info["exception"] == "RuntimeError: step 3"
    assert env.reset() == (0, {})
    assert env.step(0)[0] == 4


def test_reset_that_raises_is_tried_again():
    env = ResetOnExceptionWrapper(Unreliable(bad_resets=[1, 2]), max_reset_attempts=3)
    assert env.reset(seed=1) == (0, {})
    assert env.unwrapped.count["reset"] == 3


def test_reset_that_always_raises_ends_with_cause():
    env = ResetOnExceptionWrapper(Unreliable(bad_resets=range(100)), max_reset_attempts=2)
    with pytest.raises(EnvError, match="raised 2 times, at last RuntimeError: reset 2") as caught:
        env.reset()
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(EnvError, match="wanted at least 1"):
        ResetOnExceptionWrapper(Unreliable(), max_reset_attempts=0)


def test_old_environment_is_adapted_inside():
    class Old:
        observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

        def reset(self):
            return np.zeros(1)

        def step(self, action):
            return np.zeros(1), 0.0, True, {}

    env = ResetOnExceptionWrapper(Old())
    assert env.reset(seed=None)[1] == {}
    assert env.step(0)[2:4] == (True, False)


def test_task_settable_env_not_defined_names_class_and_method():
    env = TaskSettableEnv()
    for call in (lambda: env.sample_tasks(2), lambda: env.set_task(1), env.get_task):
        with pytest.raises(NotImplementedError, match="TaskSettableEnv must define"):
            call()
