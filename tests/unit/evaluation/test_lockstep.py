"""Several agents in lockstep: rows of one step of the environment are replayed together."""

import numpy as np
import pytest

from rlframe.agents.dqn import DQNTrainer
from rlframe.utils.errors import ConfigError
from tests.helpers.multi_agent_envs import COME_AND_GO, ON, OVER, TURNS
from tests.helpers.scripted import sample, trainer

LOCKSTEP = {
    "cls": DQNTrainer,
    "prioritized_replay": False,
    "hiddens": [4],
    "learning_starts": 0,
    "multiagent": {
        "policies": {"a", "b"},
        "policy_mapping_fn": lambda agent: agent,
        "replay_mode": "lockstep",
    },
}


TOGETHER = [
    {"a": 1, "b": 2},
    ({"a": 3, "b": 4}, {"a": 1.0, "b": 2.0}, ON, ON, {}),
    ({"a": 5, "b": 6}, {"a": 1.0}, OVER, ON, {}),
]


def test_in_lockstep_rows_say_at_which_step_of_the_environment_they_are():
    batch, _ = sample(TURNS, **LOCKSTEP)
    assert batch.policy_batches["a"]["t"].tolist() == [0, 2]
    assert batch.policy_batches["b"]["t"].tolist() == [1, 3]


@pytest.mark.slow
def test_any_trainer_that_replays_can_do_so_in_lockstep():
    made = trainer(TOGETHER, **LOCKSTEP)
    for _ in range(3):
        result = made.train()
    assert set(result["info"]["learner"]) == {"a", "b"}
    drawn = made.local_replay_buffer.replay().policy_batches
    np.testing.assert_array_equal(drawn["a"]["obs"] + 1.0, drawn["b"]["obs"])  # what b sees is 1 more, at each step


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (TURNS, "agent of policy 'a' acted and that of 'b' did not; wanted all agents to act at every step"),
        ([COME_AND_GO[0], ({"a": 3}, {}, {"b": True, "__all__": False}, ON, {}), ({"a": 4}, {}, OVER, ON, {})],
         "at step 1 of episode .* the agent of policy 'a' acted and that of 'b' did not"),
    ],
    ids=["turns", "gone"],
)  # fmt: skip
def test_lockstep_names_the_step_at_which_an_agent_did_not_act(script, message):
    with pytest.raises(ValueError, match=message):
        trainer(script, **LOCKSTEP).train()


def test_lockstep_names_a_policy_with_two_agents():
    shared = {**LOCKSTEP, "multiagent": {"policies": {"a"}, "replay_mode": "lockstep"}}
    with pytest.raises(
        ValueError, match=r"policy .a. has several rows of step 0 .* give every agent a policy of its own"
    ):
        trainer(TOGETHER, **shared).train()


def test_lockstep_is_refused_with_priorities_and_without_replay():
    with pytest.raises(ConfigError, match="it needs prioritized_replay=False"):
        trainer(TOGETHER, **{**LOCKSTEP, "prioritized_replay": True})
    with pytest.raises(ConfigError, match="is for algorithms that replay"):
        trainer(TOGETHER, multiagent={"replay_mode": "lockstep"})
