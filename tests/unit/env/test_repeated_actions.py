"""Actions that are done several times: rewards, ends, limits of steps."""

import gymnasium as gym
import pytest

from rlframe.env.registry import resolve_env
from rlframe.env.wrappers.repeated_actions import RepeatedActions, RepeatingCreator


class Counting(gym.Env):
    """Pays 1, 2, 3, ..., and ends behind so many steps."""

    observation_space = gym.spaces.Box(0, 99, ())
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return 0.0, {}

    def step(self, action):
        self.steps += 1
        return float(self.steps), float(self.steps), self.steps >= self.length, False, {"steps": self.steps}


def test_rewards_add_up_until_the_end():
    env = RepeatedActions(Counting(), 3)
    env.reset()
    assert env.step(None) == (3.0, 6.0, False, False, {"steps": 3})
    assert env.step(None) == (5.0, 9.0, True, False, {"steps": 5})


@pytest.mark.parametrize(("count", "limit", "actions"), [(1, None, 200), (3, None, 67), (2, 11, 6), (2, -1, 500)])
def test_limits_of_steps_are_limits_of_actions(count, limit, actions):
    _, creator = resolve_env("Pendulum-v1")
    context = {"frame_skip": count} | ({} if limit is None else {"max_episode_steps": limit})
    env = RepeatingCreator(creator.spec, creator.make)(context)
    env.reset(seed=0)
    done = 0
    while done < 500:
        done += 1
        if env.step(env.action_space.sample())[3]:
            break
    assert done == actions


def test_without_the_key_actions_are_done_once():
    _, creator = resolve_env("Pendulum-v1")
    env = RepeatingCreator(creator.spec, creator.make)({})
    assert env.get_wrapper_attr("_max_episode_steps") == 200
