"""APEX_DDPG: DDPG whose workers, replay shards and learner work side by side; config and trainer."""

from __future__ import annotations

from typing import Any

from rlframe.agents.ddpg.ddpg import DDPGConfig, DDPGTrainer
from rlframe.agents.families.distributed_replay import DistributedReplayConfig, apex_execution_plan

__all__ = ["APEX_DDPG_DEFAULT_CONFIG", "ApexDDPGConfig", "ApexDDPGTrainer", "apex_execution_plan"]


class ApexDDPGConfig(DistributedReplayConfig, DDPGConfig):
    """Keys of APEX_DDPG: DDPG's (or TD3's, by DDPG's keys), with those of Ape-X (Horgan et al. 2018)."""

    new_defaults = {"exploration_config": {"type": "PerWorkerOrnsteinUhlenbeckNoise"}}  # noqa: RUF012


APEX_DDPG_DEFAULT_CONFIG: dict[str, Any] = ApexDDPGConfig.defaults()

ApexDDPGTrainer = DDPGTrainer.with_updates(
    name="APEX_DDPG", config_class=ApexDDPGConfig, execution_plan=apex_execution_plan
)
