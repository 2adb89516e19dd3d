"""Groups of agents that play as one."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.env.multi_agent_adapt import MultiAgentAdapter
from rlframe.env.multi_agent_env import GROUP_INFO, GROUP_REWARDS, GroupAgentsWrapper, MultiAgentEnv
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.utils.errors import EnvError, NonFiniteError
from tests.helpers.multi_agent_envs import Script

ACTIONS = gym.spaces.Discrete(2)
#: a and b in a group, c alone; b is through after the second step, and goes on observing.
STEPS = [
    {"a": 1, "b": 2, "c": 3},
    ({"a": 4, "b": 5}, {"a": 1.0, "b": 2.5, "c": 9.0}, {"__all__": False}, {"__all__": False}, {"b": {"lives": 2}}),
    ({"a": 6, "b": 7, "c": 8}, {"c": 1.0}, {"b": True, "__all__": False}, {"__all__": False}, {"c": {"x": 1}}),
    ({"a": 9, "b": 7}, {"a": -1.0}, {"__all__": False}, {"a": True, "__all__": False}, {}),
]
OLD = [STEPS[0], *((obs, rewards, dones, infos) for obs, rewards, dones, _, infos in STEPS[1:])]


class Scripted(Script):
    """A script whose agents are known."""

    possible_agents = ("a", "b", "c")


def grouped(script=STEPS, groups=None, env_class=Scripted, **spaces):
    return env_class({"script": script}).with_agent_groups({"team": ["b", "a"]} if groups is None else groups, **spaces)


def test_a_group_is_one_agent_and_others_pass_through():
    env = grouped()
    obs = env.reset(seed=3)
    assert set(obs) == {"team", "c"}
    assert [float(part[0]) for part in obs["team"]] == [2.0, 1.0], "in the order of the group"
    obs, rewards, terminateds, truncateds, infos = env.step({"team": (1, 0), "c": 1})
    assert env.env.seen == [{"b": 1, "a": 0, "c": 1}]
    assert rewards == {"team": 3.5, "c": 9.0}
    assert infos == {"team": {GROUP_INFO: [{"lives": 2}, {}], GROUP_REWARDS: [2.5, 1.0]}}
    assert terminateds == truncateds == {"__all__": False}
    obs, rewards, terminateds, _, infos = env.step({"team": (0, 0)})
    assert set(obs) == {"team", "c"}
    assert rewards == {"c": 1.0}
    assert infos == {"c": {"x": 1}, "team": {GROUP_INFO: [{}, {}], GROUP_REWARDS: [0.0, 0.0]}}
    assert terminateds == {"__all__": False, "team": False}, "one member is through, the other goes on"


def test_a_group_is_over_when_all_its_members_are():
    env = grouped()
    env.reset()
    for _ in range(3):
        _, _, terminateds, truncateds, _ = env.step({"team": (0, 0), "c": 0})
    assert (terminateds["team"], truncateds["team"]) == (False, True), "b terminated, a was truncated"
    env.reset()
    _, _, terminateds, truncateds, _ = env.step({"team": (0, 0), "c": 0})
    assert "team" not in {**terminateds, **truncateds}, "another episode"


def test_the_older_contract_stays_one_of_four_parts():
    env = grouped([*OLD[:3], ({"a": 9, "b": 7}, {}, {"a": True, "__all__": False}, {})])
    env.reset()
    for wanted in ({"__all__": False}, {"__all__": False, "team": False}, {"__all__": False, "team": True}):
        obs, _, dones, _ = env.step({"team": (0, 0), "c": 0})
        assert dones == wanted
        assert len(obs["team"]) == 2
    five = MultiAgentAdapter(env)
    five.reset(seed=1)
    assert five.step({"team": (0, 0), "c": 0})[3] == {}


def test_spaces_are_made_of_those_of_the_members():
    env = grouped()
    seen = Script.observation_space
    assert env.observation_spaces == {"team": gym.spaces.Tuple([seen, seen]), "c": seen}
    assert env.action_spaces == {"team": gym.spaces.Tuple([ACTIONS] * 2), "c": ACTIONS}
    assert env.possible_agents == ["team", "c"]
    assert MultiAgentAdapter(env).observation_space == env.observation_spaces
    assert env.observation_space is None, "there is none that all have"
    whole = TwoStepGame().with_agent_groups({"both": [0, 1]})
    assert whole.action_space == gym.spaces.Tuple([ACTIONS] * 2)
    assert whole.observation_space.contains(whole.reset(seed=1)["both"])


def test_spaces_may_be_given_and_may_be_unknown():
    class Silent(Scripted):
        observation_space = action_space = None

    env = grouped(env_class=Silent)
    assert env.observation_spaces == env.action_spaces == {}
    pair = gym.spaces.Tuple([Script.observation_space] * 2)
    env = grouped(env_class=Silent, obs_space=pair, act_space=gym.spaces.Tuple([ACTIONS] * 2))
    assert env.observation_spaces == {"team": pair}
    assert env.observation_space == pair


class ByAgent(Scripted):
    observation_space = None

    def __init__(self, config):
        super().__init__(config)
        self.observation_spaces = {"a": Script.observation_space, "c": Script.observation_space}


@pytest.mark.parametrize(
    ("groups", "more", "message"),
    [
        ({"team": ["a", "z"]}, {}, r"group 'team': the environment has no agent 'z', wanted one of 'a', 'b', 'c'"),
        ({"one": ["a"], "two": ["b", "a"]}, {}, "agent 'a' is in group 'one' and again in group 'two'; wanted it once"),
        ({"one": ["a", "a"]}, {}, "agent 'a' is in group 'one' and again"),
        ({"c": ["a", "b"]}, {}, "group 'c': there is an agent of this id"),
        ({"__all__": ["a", "b"]}, {}, "group '__all__': there is an agent of this id"),
        ({"team": []}, {}, "group 'team' has no members"),
        ({}, {}, "groups of agents: got none"),
        ({"team": ["a", "b"]}, {"obs_space": ACTIONS}, r"got the observation_space .* wanted a Tuple of 2"),
        ({"team": ["a", "b"]}, {"act_space": gym.spaces.Tuple([ACTIONS])}, r"the action_space .* wanted a Tuple of 2"),
        ({"team": ["a", "b"]}, {"env_class": ByAgent}, "tells no observation_space for agent 'b'.*pass obs_space"),
    ],
)  # fmt: skip
def test_groups_that_cannot_be_are_named(groups, more, message):
    with pytest.raises(EnvError, match=message):
        grouped(groups=groups, **more)


@pytest.mark.parametrize("agent", ["a", "b"])
def test_a_member_that_does_not_observe_is_named(agent):
    obs, *rest = STEPS[1]
    env = grouped([STEPS[0], ({key: value for key, value in obs.items() if key != agent}, *rest)])
    env.reset()
    with pytest.raises(EnvError, match=f"group 'team': there is no observation of agent '{agent}', but of other"):
        env.step({"team": (0, 0), "c": 0})
    with pytest.raises(EnvError, match="no observation of agent 'b'"):
        grouped([{"a": 1, "c": 2}]).reset()


def test_a_member_that_is_through_goes_on_observing():
    rest = STEPS[3][1:]
    env = grouped([*STEPS[:3], ({"a": 1}, *rest)])
    env.reset()
    env.step({"team": (0, 0), "c": 0})
    env.step({"team": (0, 0), "c": 0})
    with pytest.raises(EnvError, match=r"agent 'b'.*an agent that is through goes on observing"):
        env.step({"team": (0, 0), "c": 0})


def test_a_group_may_wait_while_others_act():
    on = ({"__all__": False}, {"__all__": False}, {})
    env = grouped([STEPS[0], ({"c": 1}, {"a": 2.0}, *on), ({"a": 1, "b": 1}, {}, *on)])
    env.reset()
    obs, rewards, *_ = env.step({"team": (0, 0), "c": 0})
    assert set(obs) == {"c"}
    assert rewards == {"team": 2.0}
    assert set(env.step({"c": 0})[0]) == {"team"}


def test_an_action_of_the_wrong_length_is_named():
    env = grouped()
    env.reset()
    with pytest.raises(EnvError, match=r"group 'team': got an action of 3 parts, wanted 2.*\['b', 'a'\]"):
        env.step({"team": (0, 0, 1)})
    env.step({"team": np.array([1, 0]), "c": 0})
    assert env.env.seen == [{"b": 1, "a": 0, "c": 0}]


def test_a_wrong_reward_names_the_member():
    env = grouped([STEPS[0], (STEPS[0], {"a": 1.0, "b": float("nan")}, {"__all__": False}, {"__all__": False}, {})])
    env.reset()
    with pytest.raises(NonFiniteError, match="agent 'b'"):
        env.step({"team": (0, 0), "c": 0})


def test_other_environments_are_refused():
    with pytest.raises(EnvError, match="got CartPoleEnv, wanted a MultiAgentEnv"):
        GroupAgentsWrapper(gym.make("CartPole-v1").unwrapped, {"team": [0]})


def test_what_an_environment_has_beside_is_within_reach():
    class More(TwoStepGame):
        level = 4

    env = More().with_agent_groups({"both": [0, 1]})
    assert env.level == 4
    assert isinstance(env, MultiAgentEnv)
    with pytest.raises(AttributeError):
        _ = env.nothing
    env.render()
    env.close()
