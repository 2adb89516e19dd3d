"""The README's table of algorithms says what the registry has, and what each trainer takes: all are built and asked."""

import re

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.registry import ALGORITHMS
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.offline.json_writer import JsonWriter
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, EnvError, UnsupportedSpaceException
from tests.docs.test_pages import README
from tests.helpers import slates

OBS = gym.spaces.Box(-1, 1, (4,), np.float32)
SPACES = {"Discrete": gym.spaces.Discrete(3), "Continuous": gym.spaces.Box(-1, 1, (2,), np.float32)}
#: What SlateQ sees, and chooses from.
RECOMMENDED, SLATES = slates.spaces()
#: What is no default, and needed without remote workers, or to have no memory.
OWN = {"A3C": {"sample_async": False}, "APEX": {"worker_side_prioritization": False}}
OWN["APEX_DDPG"] = OWN["APEX"]
FRAMEWORKS = {"torch": "PyTorch", "tf": "TensorFlow"}


def rows():
    """Returns the table's rows by algorithm: cells by heading."""
    table = README.read_text().split("<!-- algorithms")[1].split("<!-- end of algorithms")[0]
    headings, _, *lines = [re.split(r"\s*\|\s*", line)[1:-1] for line in table.splitlines() if line.startswith("|")]
    read = [dict(zip(headings, line, strict=True)) for line in lines]
    return {name.strip(): row for row in read for name in row["Algorithm"].replace("from data", "").split(",")}


def names():
    return sorted(name for name in ALGORITHMS if "/" not in name)


def test_the_table_has_every_algorithm_of_the_registry():
    assert sorted(name for name in rows() if name) == names(), "add a row to README.md's table, or take one out"


def observed(space):
    return RECOMMENDED if space == SLATES else OBS


class OneAgent(gym.Env):
    def __init__(self, config):
        self.observation_space, self.action_space = observed(config["space"]), config["space"]

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}

    def reward(self, obs, action, obs_next):  # MBMPO asks for it
        return np.zeros(len(obs))


class TwoAgents(MultiAgentEnv):
    def __init__(self, config):
        super().__init__()
        self.observation_space, self.action_space = observed(config["space"]), config["space"]

    def reset(self, *, seed=None, options=None):
        return {i: self.observation_space.sample() for i in (0, 1)}, {}

    def step(self, actions):
        return self.reset()[0], {0: 0.0, 1: 0.0}, {"__all__": True}, {"__all__": False}, {}


def group(config):
    return TwoStepGame().with_agent_groups({"team": [0, 1]})


def each_its_policy(name, space):
    specs = [PolicySpec(None, OBS, space, {"agent_id": i}) if name == "MADDPG" else PolicySpec() for i in (0, 1)]
    return {
        "multiagent": {"policies": dict(zip("ab", specs, strict=True)), "policy_mapping_fn": lambda a, **_: "ab"[a]}
    }


def from_files(folder, space, policies=()):
    """Returns the config by which files of a few rows are read, of some policies or of the only one."""
    space.seed(0)
    batch = {"obs": np.zeros((8, 4), np.float32), "new_obs": np.zeros((8, 4), np.float32), "eps_id": np.zeros(8, int)}
    batch |= {"actions": np.array([space.sample() for _ in range(8)]), "rewards": np.ones(8, np.float32)}
    rows = SampleBatch({**batch, "dones": np.arange(8) == 7})
    JsonWriter(str(folder)).write(MultiAgentBatch(dict.fromkeys(policies, rows), 8) if policies else rows)
    return {"input": str(folder)}


def remembers(name, env, space, config):
    """Builds a trainer; returns whether its policies have memory, or None where it refuses."""
    trainer_class, _ = ALGORITHMS[name]()
    given = {"num_workers": 0, "log_sys_usage": False, "env_config": {"space": space}, "input": "sampler"}
    try:
        trainer = trainer_class({**given, **OWN.get(name, {}), **config}, env=env)
    except (ConfigError, EnvError, UnsupportedSpaceException):
        return None
    found = all(policy.is_recurrent() for policy in trainer.workers.local_worker().policy_map.values())
    trainer.stop()
    return found


@pytest.mark.parametrize("name", names())
def test_a_row_says_what_the_trainer_takes(name, tmp_path):
    built = {}
    recommends = name == "SlateQ"  # of which slates are the choices
    for kind, space in {**SPACES, **({"Discrete": SLATES} if recommends else {})}.items():
        one, two = {}, each_its_policy(name, space)
        if name in ("CQL", "IQL", "TD3BC"):
            one, two = from_files(tmp_path / kind, space), two | from_files(tmp_path / f"{kind} of two", space, "ab")
        for model in ({}, {"use_lstm": True}):
            built[kind, "one", len(model)] = remembers(name, OneAgent, space, {**one, "model": model})
            built[kind, "two", len(model)] = remembers(name, TwoAgents, space, {**two, "model": model})
    built["Discrete", "group", 0] = remembers(name, group, None, {})
    taken = {key: memory for key, memory in built.items() if memory is not None}
    assert taken, f"{name} was built with none of these environments"
    one, two, groups = (any(key[1] == env for key in taken) for env in ("one", "two", "group"))
    assert (
        rows()[name]
        | {
            "Frameworks": ", ".join(FRAMEWORKS[each] for each in ALGORITHMS[name]()[0]._arguments["policies"]),
            **{
                kind: ("slates" if recommends else "yes") if any(key[0] == kind for key in taken) else "–"
                for kind in SPACES
            },
            "Several agents": ("yes" if one else "needed") if two else "groups" if groups and not one else "–",
            "Memory": "needed" if all(taken.values()) else "yes" if any(taken.values()) else "–",
        }
        == rows()[name]
    )
