"""`make_multi_agent`: independent copies of an environment, of either contract."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlframe.env import MultiAgentEnv, multi_agent_env
from rlframe.env.multi_agent_adapt import MultiAgentAdapter
from rlframe.env.multi_agent_env import make_multi_agent


class Count:
    """Counts to 3, or to `limit`, where its time is over; in the old gym's contract."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, config):
        self.limit = config.get("limit")

    def reset(self):
        self.steps = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.steps += 1
        cut = self.steps == self.limit
        info = {"TimeLimit.truncated": True} if cut else {}
        return np.full(1, self.steps, np.float32), 1.0, cut or self.steps == 3, info


def test_copies_of_an_old_environment_answer_by_its_contract():
    env = make_multi_agent(Count)({"num_agents": 2})
    assert isinstance(env, MultiAgentEnv)
    assert env.reset() == {0: 0, 1: 0}
    for last in (False, False, True):
        obs, rewards, dones, infos = env.step({0: 1, 1: 1})
        assert dones == {0: last, 1: last, "__all__": last}
    assert (obs, rewards, infos) == ({0: 3, 1: 3}, {0: 1.0, 1: 1.0}, {0: {}, 1: {}})


def test_copies_of_gymnasiums_environments_answer_by_its_contract():
    env = make_multi_agent("CartPole-v1")({"num_agents": 2})
    obs, infos = env.reset(seed=0)
    assert set(obs) == set(infos) == {0, 1}
    assert len(env.step({0: 0, 1: 1})) == 5


@pytest.mark.parametrize(("limit", "terminated"), [(2, False), (None, True)])
def test_the_loop_knows_old_copies_that_were_cut_off(limit, terminated):
    env = MultiAgentAdapter(make_multi_agent(Count)({"num_agents": 2, "limit": limit}))
    env.reset()
    for _ in range(limit or 3):
        *_, terminateds, truncateds, _ = env.step({0: 1, 1: 1})
    assert terminateds == {0: terminated, 1: terminated, "__all__": terminated}
    assert (truncateds.get(0, False), truncateds.get("__all__", False)) == (not terminated, not terminated)


def test_an_info_of_several_agents_says_that_the_time_was_over():
    class Pair(MultiAgentEnv):
        def reset(self):
            return {"a": 0, "b": 0}

        def step(self, action_dict):
            return (
                {"a": 0, "b": 0},
                {"a": 1.0, "b": 1.0},
                {"__all__": True},
                {"a": {"TimeLimit.truncated": True}, "b": {}},
            )

    env = MultiAgentAdapter(Pair())
    env.reset()
    *_, terminateds, truncateds, _ = env.step({"a": 0, "b": 0})
    assert (terminateds["__all__"], truncateds) == (False, {"a": True, "__all__": True})


def test_ids_of_the_old_gym_give_copies_of_what_gymnasium_has_in_their_place(caplog):
    multi_agent_env._warn_once.cache_clear()  # another test may have asked before
    env = make_multi_agent("Pendulum-v0")({"num_agents": 2})  # an id that Gymnasium has no more
    assert [agent.spec.id for agent in env.agents] == ["Pendulum-v1"] * 2
    make_multi_agent("Pendulum-v0")({"num_agents": 3})
    assert caplog.text.count("Pendulum-v0 is not in Gymnasium any more") == 1
    with pytest.raises(gymnasium.error.Error, match="CartPoel"):
        make_multi_agent("CartPoel-v1")({})
    assert isinstance(make_multi_agent("CartPole-v1")().agents[0].unwrapped, gymnasium.envs.classic_control.CartPoleEnv)
