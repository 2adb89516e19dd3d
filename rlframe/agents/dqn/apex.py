"""APEX: DQN whose workers, replay shards and learner work side by side; config and trainer."""

from __future__ import annotations

from typing import Any

from rlframe.agents.dqn.dqn import DQNConfig, DQNTrainer
from rlframe.agents.families.distributed_replay import (
    DistributedReplayConfig,
    UpdateWorkerWeights,
    apex_execution_plan,
)

__all__ = ["APEX_DEFAULT_CONFIG", "ApexConfig", "ApexTrainer", "UpdateWorkerWeights", "apex_execution_plan"]


class ApexConfig(DistributedReplayConfig, DQNConfig):
    """Keys of APEX: DQN's, with those of Ape-X (Horgan et al. 2018)."""

    new_defaults = {"exploration_config": {"type": "PerWorkerEpsilonGreedy"}}  # noqa: RUF012


APEX_DEFAULT_CONFIG: dict[str, Any] = ApexConfig.defaults()

ApexTrainer = DQNTrainer.with_updates(name="APEX", config_class=ApexConfig, execution_plan=apex_execution_plan)
