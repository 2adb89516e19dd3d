"""Environments that old gym's `make` returns: its wrappers around one written for the contract before them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from rlframe.env.adapt import adapt_env
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, is_multi_agent
from rlframe.env.multi_agent_env import MultiAgentEnv

gym = pytest.importorskip("gym")


class Corridor(gym.Env):
    """Ends after 9 steps; written for gym 0.21."""

    observation_space = gym.spaces.Box(0, 99, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.t, self.seeds = 0, []

    def seed(self, seed=None):
        self.seeds.append(seed)

    def reset(self):
        self.t = 0
        return np.array([0.0], np.float32)

    def step(self, action):
        self.t += 1
        return np.array([self.t], np.float32), 1.0, self.t >= 9, {}


class Doubled(gym.Wrapper):
    """Doubles rewards; written for gym 0.21."""

    def reset(self):
        return self.env.reset()

    def step(self, action):
        obs, reward, done, info = self.env.step(action)
        return obs, 2 * reward, done, info


@pytest.fixture(scope="module", autouse=True)
def registered():
    for limit in (5, 9, 20):
        gym.register(id=f"CorridorOf{limit}-v0", entry_point=Corridor, max_episode_steps=limit)


def episode(env):
    """Returns the observation of the reset, and rewards and the last two booleans."""
    obs, _ = env.reset(seed=3)
    rewards, ends = [], (False, False)
    while not any(ends):
        _, reward, *ends, _ = env.step(0)
        rewards.append(reward)
    return obs.tolist(), rewards, ends


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("limit", "steps", "ends"), [(5, 5, [False, True]), (9, 9, [True, False]), (20, 9, [True, False])]
)
def test_time_limits_count_steps_of_four_items(limit, steps, ends):
    env = adapt_env(gym.make(f"CorridorOf{limit}-v0"))
    for _ in range(2):
        assert episode(env) == ([0.0], [1.0] * steps, ends)
    assert env.unwrapped.seeds == [3, 3]


@pytest.mark.filterwarnings("ignore")
def test_wrappers_of_the_same_contract_stand_around_them():
    assert episode(adapt_env(Doubled(gym.make("CorridorOf5-v0")))) == ([0.0], [2.0] * 5, [False, True])


@pytest.mark.filterwarnings("ignore")
def test_steps_of_five_items_are_counted_as_they_were():
    env = adapt_env(gym.make("CartPole-v1", max_episode_steps=3))
    assert episode(env)[1:] == ([1.0] * 3, [False, True])


def test_steps_may_come_as_lists():
    class Listed(Corridor):
        def step(self, action):
            return list(super().step(action))

    assert episode(adapt_env(Listed())) == ([0.0], [1.0] * 9, [True, False])
    limited = gym.wrappers.TimeLimit(Listed(), 5)
    assert episode(adapt_env(limited)) == ([0.0], [1.0] * 5, [False, True])


@pytest.mark.parametrize("library", [gym, gymnasium], ids=["gym", "gymnasium"])
def test_environments_with_several_agents_are_known_within_what_make_puts_around_them(library):
    class Pair(MultiAgentEnv, library.Env):
        observation_space, action_space = library.spaces.Box(0, 99, (1,), np.float32), library.spaces.Discrete(2)

        def reset(self):
            return dict.fromkeys("ab", np.zeros(1, np.float32))

        def step(self, actions):
            return self.reset(), dict.fromkeys(actions, 1.0), {"__all__": True}, {}

    library.register(id="Pair-v0", entry_point=Pair)
    made = library.make("Pair-v0")
    library.envs.registration.registry.pop("Pair-v0")
    assert not isinstance(made, MultiAgentEnv)
    assert is_multi_agent(made)
    env = MultiAgentAdapter(made)
    assert set(env.reset()[0]) == {"a", "b"}
    assert env.step({"a": 0, "b": 1})[1:3] == ({"a": 1.0, "b": 1.0}, {"__all__": True})
