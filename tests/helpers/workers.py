"""Workers and policies for tests, with small networks."""

from __future__ import annotations

from typing import Any

from rlframe.agents.dqn.dqn import DQNConfig
from rlframe.agents.dqn.dqn_torch_policy import DQNTorchPolicy
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.policy.policy import PolicySpec

SMALL = {"fcnet_hiddens": [16, 16]}


def dqn_config(**overrides: Any) -> dict[str, Any]:
    """Returns DQN's config with small networks and a seed."""
    config = DQNConfig.defaults()
    config["model"].update(SMALL)
    return {**config, "hiddens": [16], "seed": 3, **overrides}


def make_worker(env: Any, policy: Any = DQNTorchPolicy, **overrides: Any) -> RolloutWorker:
    """Returns a local worker with `env(env_config)` in each slot."""
    config = dqn_config(**overrides)
    worker = RolloutWorker(env_creator=env, policy_config=config)
    worker.add_policies(PolicySpec(policy_class=policy))
    return worker
