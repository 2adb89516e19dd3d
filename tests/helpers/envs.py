"""Environments whose every number is known."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np

from rlframe.env.wrappers.atari_wrappers import EpisodicLifeEnv


class Counting(gym.Env):
    """Observation [episode number, step]; reward is the step's number; ends as `ends` says after `length` steps."""

    def __init__(self, config=None):
        config = dict(config or {})
        self.length = config.get("length", 5)
        self.ends = config.get("ends", "terminated")
        self.observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.episode = -1
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.steps = 0
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        over = self.steps >= self.length
        terminated, truncated = over and self.ends == "terminated", over and self.ends == "truncated"
        return self._obs(), float(self.steps), terminated, truncated, {"action": action}

    def _obs(self):
        return np.array([self.episode, self.steps], np.float32)


class Failing(Counting):
    """Raises, or returns something wrong, at step `fail_at` of episode `fail_in`."""

    def __init__(self, config=None):
        super().__init__(config)
        config = dict(config or {})
        self.fail_at, self.fail_in = config.get("fail_at", 3), config.get("fail_in", 1)
        self.how = config.get("how", "raise")

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.episode == self.fail_in and self.steps == self.fail_at:
            if self.how == "raise":
                raise RuntimeError("the motor is broken")
            if self.how == "nan_reward":
                reward = float("nan")
            if self.how == "nan_obs":
                obs = obs * np.float32("nan")
            if self.how == "exit":
                import os

                os._exit(1)
        return obs, reward, terminated, truncated, info


class ThreeLives(gym.Env):
    """A random walk that loses one of three lives at every fourth step; a game is over with the last."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-1e3, 1e3, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.ale = SimpleNamespace(lives=lambda: self.left)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.steps, self.place = 3, 0, 0.0
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        self.place += float(action) + self.np_random.normal()
        self.left -= self.steps % 4 == 0
        return self._obs(), self.place, self.left == 0, False, {}

    def _obs(self):
        return np.array([self.left, self.steps, self.place], np.float32)


def lives_as_episodes(config=None):
    """Returns a game with three lives, each of them an episode."""
    return EpisodicLifeEnv(ThreeLives())


class Bandit(gym.Env):
    """One step: action 1 pays 1, action 0 pays 0."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action == 1), True, False, {}


class Masked(gym.Env):
    """Dict observation with an action mask: only the allowed one of four actions may be taken."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Dict(
            {
                "action_mask": gym.spaces.Box(0, 1, (4,), np.float32),
                "observations": gym.spaces.Box(0, 1, (4,), np.float32),
            }
        )
        self.action_space = gym.spaces.Discrete(4)

    def _obs(self):
        self.allowed = self.np_random.integers(4, size=2)
        mask = np.zeros(4, np.float32)
        mask[self.allowed] = 1
        return {"action_mask": mask, "observations": mask.copy()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action):
        if action not in self.allowed:
            raise AssertionError(f"masked action {action} was taken; allowed were {self.allowed}")
        self.steps += 1
        return self._obs(), 1.0, False, self.steps >= 10, {}
