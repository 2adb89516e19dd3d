"""Environments that a program's own loop polls, against what RLlib 1.9.2 gave for the same steps."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.env import BaseEnv, ExternalEnv, MultiAgentEnv, VectorEnv
from rlframe.utils.errors import EnvError


class Counting:
    """Of the older contract; over after two steps."""

    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def __init__(self, index=0):
        self.index, self.resets = index, 0

    def reset(self):
        self.t, self.resets = 0, self.resets + 1
        return np.array([self.index * 10 + self.resets], np.float32)

    def step(self, action):
        self.t += 1
        return np.array([self.t], np.float32), float(action), self.t >= 2, {"a": action}

    def render(self):
        return f"copy {self.index}"

    def close(self):
        self.t = None


class Turns(MultiAgentEnv):
    """Agent b observes every other step, and gets rewards at each."""

    def reset(self):
        self.t = 0
        return {"a": 0, "b": 0}

    def step(self, actions):
        self.t += 1
        seen = ["a", "b"] if self.t % 2 == 0 else ["a"]
        rewards = {"a": 1.0, "b": 0.5 + sum(actions.values())}
        over = self.t >= 3
        return dict.fromkeys(seen, self.t), rewards, {"b": over, "__all__": over}, {agent: {} for agent in seen}


def of_agent0(part):
    return [value["agent0"] for _, value in sorted(part.items())]


def test_single_environments_are_polled_together():
    env = BaseEnv.to_base_env(Counting(), make_env=Counting, num_envs=2)
    assert (env.num_envs, [each.index for each in env.get_sub_environments()]) == (2, [0, 1])
    assert BaseEnv.to_base_env(env) is env
    obs, rewards, dones, infos, off_policy = env.poll()
    assert np.concatenate(of_agent0(obs)).tolist() == [1, 11]
    assert (of_agent0(rewards), of_agent0(infos), off_policy) == ([None, None], [None, None], {})
    assert dones == {0: {"__all__": False}, 1: {"__all__": False}}
    for over in (False, True):
        env.send_actions({0: {"agent0": 1}, 1: {"agent0": 2}})
        obs, rewards, dones, infos, _ = env.poll()
        assert of_agent0(rewards) == [1, 2]
        assert dones == {0: {"__all__": over}, 1: {"__all__": over}}
    assert env.try_reset(1)["agent0"] == [12]
    assert env.try_render(1) == "copy 1"
    env.stop()
    assert env.envs[0].t is None


def test_time_limits_are_done_and_told():
    env = VectorEnv.vectorize_gym_envs(make_env=lambda _: gym.make("CartPole-v1", max_episode_steps=1), num_envs=2)
    assert env.action_space.n == 2
    assert env.reset_at().shape == (4,)
    env.vector_reset()
    _, rewards, dones, infos = env.vector_step([0, 1])
    assert (rewards, dones) == ([1.0, 1.0], [True, True])
    assert [info["TimeLimit.truncated"] for info in infos] == [True, True]
    with pytest.raises(ValueError, match="Got 1 environments and no make_env; wanted 2"):
        env.wrap(existing_envs=[Counting()], num_envs=2)


def test_rewards_wait_until_their_agent_observes():
    env = BaseEnv.to_base_env(Turns(), make_env=lambda _: Turns(), num_envs=2)
    obs, rewards, dones, _, _ = env.poll()
    assert (obs[1], rewards[1], dones[1]) == ({"a": 0, "b": 0}, {}, {"__all__": False})
    env.send_actions({0: {"a": 1, "b": 1}, 1: {"a": 0, "b": 0}})
    obs, rewards, _, _, _ = env.poll()
    assert (obs[0], rewards[0]) == ({"a": 1}, {"a": 1.0})
    env.send_actions({0: {"a": 1}})
    _, rewards, dones, _, _ = env.poll()
    assert rewards == {0: {"a": 1.0, "b": 4.0}, 1: {}}
    assert dones[0] == {"b": False, "__all__": False}
    env.send_actions({0: {"a": 2, "b": 1}})
    obs, rewards, dones, _, _ = env.poll()
    assert (obs[0], rewards[0], dones[0]) == ({"a": 3}, {"a": 1.0, "b": 3.5}, {"b": True, "__all__": True})
    with pytest.raises(ValueError, match=r"environment 0 is over; wanted try_reset\(0\)"):
        env.send_actions({0: {"a": 1}})
    assert env.try_reset(0) == {"a": 0, "b": 0}


def test_what_cannot_be_polled_says_so():
    with pytest.raises(NotImplementedError, match=r"BaseEnv\.to_base_env\(env\)"):
        BaseEnv([]).poll()
    with pytest.raises(EnvError, match="set num_workers"):
        BaseEnv.to_base_env(Counting(), remote_envs=True)
    with pytest.raises(EnvError, match="num_envs is 2 and make_env None"):
        BaseEnv.to_base_env(Counting(), num_envs=2)
    external = ExternalEnv(Counting.action_space, Counting.observation_space)
    with pytest.raises(EnvError, match="has a main loop of its own"):
        BaseEnv.to_base_env(external)


def test_a_subclass_may_keep_its_own_under_the_names_of_the_view():
    class Mine(BaseEnv):
        def __init__(self):
            self.envs, self.num_envs = [Counting(0), Counting(1)], 2
            self.observation_space, self.action_space = Counting.observation_space, Counting.action_space

    env = Mine()
    assert env.get_sub_environments() == env.envs
    assert (len(env.envs), env.num_envs, env.action_space) == (2, 2, Counting.action_space)
    assert BaseEnv([]).num_envs == 0
