"""Policies of one worker draw from streams of their own."""

import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import PolicySpec
from tests.helpers.frameworks import FRAMEWORKS


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_policies_with_one_seed_begin_and_explore_differently_and_repeatably(framework):
    config = {
        "num_workers": 0,
        "seed": 3,
        "framework": framework,
        "env_config": {"num_agents": 2},
        "multiagent": {
            "policies": {"a": PolicySpec(), "b": PolicySpec()},
            "policy_mapping_fn": lambda agent_id: "ab"[agent_id],
        },
    }
    obs = np.zeros((64, 4), np.float32)  # all actions are as likely: outputs at 0 are 0
    actions, weights = [], []
    for _ in range(2):
        trainer = PPOTrainer(config, env=MultiAgentCartPole)
        for pid in ("a", "b"):
            policy = trainer.get_policy(pid)
            actions.append(policy.compute_actions(obs)[0].tolist())
            weights.append(np.concatenate([array.ravel() for array in policy.get_weights().values()]))
        trainer.stop()
    assert actions[:2] == actions[2:]
    assert actions[0] != actions[1]
    np.testing.assert_array_equal(weights[0], weights[2])
    assert np.abs(weights[0] - weights[1]).max() > 0.1


def test_a_policys_own_seed_is_its_seed():
    multiagent = {"policies": {"a": PolicySpec(config={"seed": 7}), "b": PolicySpec()},
                  "policy_mapping_fn": lambda agent_id: "ab"[agent_id]}  # fmt: skip
    config = {"num_workers": 0, "seed": 3, "env_config": {"num_agents": 2}, "multiagent": multiagent}
    trainer = PPOTrainer(config, env=MultiAgentCartPole)
    assert trainer.get_policy("a").config["seed"] == 7
    assert trainer.get_policy("b").config["seed"] not in (3, 7)
    trainer.stop()
