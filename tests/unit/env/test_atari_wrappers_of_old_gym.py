"""Atari wrappers around games of the old gym: they answer in its contract, and trainers sample from them."""

from __future__ import annotations

import types

import numpy as np
import pytest

from rlframe.agents.pg import PGTorchPolicy
from rlframe.env.adapt import adapt_env
from rlframe.env.wrappers import atari_wrappers as aw
from rlframe.evaluation.rollout_worker import RolloutWorker
from tests.helpers.workers import dqn_config

pytest.importorskip("cv2", reason="needs opencv-python-headless")
gym = pytest.importorskip("gym")


class Emulator:
    """Counts lives."""

    left = 3

    def lives(self):
        return self.left


class Game(gym.Env):
    """A game of 12 frames and 3 lives, whose screens show the number of the frame; written for gym 0.21."""

    observation_space = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)
    spec = types.SimpleNamespace(id="GameNoFrameskip-v0")

    def __init__(self, config=None):
        self.ale, self.seeds, self.t = Emulator(), [], 0
        self.np_random = np.random.RandomState(0)

    def get_action_meanings(self):
        return ["NOOP", "FIRE", "RIGHT"]

    def seed(self, seed=None):
        self.seeds.append(seed)

    def reset(self):
        self.t, self.ale.left = 0, 3
        return self._screen()

    def step(self, action):
        self.t += 1
        self.ale.left = 3 - self.t // 4
        return self._screen(), 1.0, self.t >= 12, {"frame": self.t}

    def _screen(self):
        return np.full((210, 160, 3), self.t, np.uint8)


class NewerGame(Game):
    """The same, written for gym 0.26."""

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return super().reset(), {}

    def step(self, action):
        obs, reward, done, info = super().step(action)
        return obs, reward, done, False, info


def test_wrapped_game_of_old_gym_answers_as_the_game_does():
    game = Game()
    env = aw.FrameStack(aw.WarpFrame(aw.MonitorEnv(game), 42), 4)
    assert isinstance(env, aw.FrameStack)
    assert isinstance(env.observation_space, gym.spaces.Box)
    assert env.unwrapped is game
    env.seed(5)
    assert game.seeds == [5]
    obs = env.reset()
    assert obs.shape == (42, 42, 4)
    obs, reward, done, info = env.step(0)
    assert (obs[0, 0].tolist(), reward, done, info) == ([0, 0, 0, 1], 1.0, False, {"frame": 1})
    while not done:
        *_, done, info = env.step(0)
    assert aw.get_wrapper_by_cls(env, aw.MonitorEnv).get_episode_rewards() == [12.0]


def test_game_of_the_last_gym_keeps_five_values():
    env = aw.WarpFrame(NewerGame())
    obs, info = env.reset(seed=3)
    assert (obs.shape, info, env.unwrapped.seeds) == ((84, 84, 1), {}, [3])
    assert len(env.step(0)) == 5


def test_wrap_deepmind_takes_what_is_no_emulator_of_today():
    env = aw.wrap_deepmind(Game(), dim=42)
    env.reset()
    steps = [env.step(2) for _ in range(2)]
    assert all(len(step) == 4 for step in steps)
    assert any(done for _, _, done, _ in steps), "a lost life ends an episode"
    adapted = adapt_env(env)
    adapted.reset(seed=1)
    assert adapted.step(0)[2:4] in {(True, False), (False, False)}
    assert env.unwrapped.seeds[-1] == 1


def test_workers_wrap_games_of_old_gym_and_report_whole_games():
    config = dqn_config(preprocessor_pref="deepmind", rollout_fragment_length=12)
    config["model"].update({"dim": 42, "conv_filters": [[4, [8, 8], 8], [4, [6, 6], 1]]})
    worker = RolloutWorker(env_creator=Game, policy_config=config, policy_spec=PGTorchPolicy)
    batch = worker.sample()
    assert batch["obs"].shape == (12, 42, 42, 4)
    games = worker.get_metrics()
    assert games
    assert {game.episode_reward for game in games} <= {float(left) for left in range(13)}
