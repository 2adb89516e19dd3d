"""Simulators with main loops of their own."""

import contextlib
import threading

import gymnasium as gym
import numpy as np

from rlframe.env.external_env import ExternalEnv
from rlframe.env.external_multi_agent_env import ExternalMultiAgentEnv

SPACE = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)
CARTPOLE_SPACE = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)


def number(value):
    return np.array([value], np.float32)


class Scripted(ExternalEnv):
    """Runs the function `config["play"](env)`, and keeps what it was told in `seen`."""

    def __init__(self, config):
        super().__init__(gym.spaces.Discrete(2), SPACE, **config.get("options", {}))
        self.play = config["play"]
        self.seen = []

    def run(self):
        self.play(self)


class ScriptedAgents(ExternalMultiAgentEnv):
    """The same with several agents."""

    def __init__(self, config):
        super().__init__(gym.spaces.Discrete(2), SPACE, **config.get("options", {}))
        self.play = config["play"]
        self.seen = []

    def run(self):
        self.play(self)


class ExternalCartPole(ExternalEnv):
    """CartPole in a loop; every `logged`-th action is one of its own. With `threads` several of them at once."""

    def __init__(self, config):
        env = gym.make("CartPole-v1")
        super().__init__(env.action_space, CARTPOLE_SPACE)
        self.threads, self.logged = int(config.get("threads", 1)), int(config.get("logged", 0))

    def run(self):
        others = [threading.Thread(target=self.guarded, args=(i,), daemon=True) for i in range(1, self.threads)]
        for thread in others:
            thread.start()
        self.loop(0)

    def guarded(self, seed):
        with contextlib.suppress(SystemExit):
            self.loop(seed)

    def loop(self, seed):
        env, rng, steps = gym.make("CartPole-v1"), np.random.default_rng(seed), 0
        obs, _ = env.reset(seed=seed)
        while True:
            episode, over = self.start_episode(), False
            while not over:
                steps += 1
                if self.logged and steps % self.logged == 0:
                    action = int(rng.integers(2))
                    self.log_action(episode, obs, action)
                else:
                    action = self.get_action(episode, obs)
                obs, reward, terminated, truncated, _ = env.step(action)
                self.log_returns(episode, reward)
                over = terminated or truncated
            self.end_episode(episode, obs, truncated=truncated)
            obs, _ = env.reset()
