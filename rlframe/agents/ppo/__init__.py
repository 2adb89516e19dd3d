"""Proximal policy optimisation: PPO and DD-PPO; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.ppo.ddppo import DDPPOConfig, DDPPOTrainer
    from rlframe.agents.ppo.ppo import DEFAULT_CONFIG, PPOConfig, PPOTrainer
    from rlframe.agents.ppo.ppo_policy import PPOTFPolicy, PPOTorchPolicy

_NAMES = {
    "DDPPOConfig": "rlframe.agents.ppo.ddppo",
    "DDPPOTrainer": "rlframe.agents.ppo.ddppo",
    "DEFAULT_CONFIG": "rlframe.agents.ppo.ppo",
    "PPOConfig": "rlframe.agents.ppo.ppo",
    "PPOTFPolicy": "rlframe.agents.ppo.ppo_policy",
    "PPOTorchPolicy": "rlframe.agents.ppo.ppo_policy",
    "PPOTrainer": "rlframe.agents.ppo.ppo",
}

__all__ = [
    "DEFAULT_CONFIG",
    "DDPPOConfig",
    "DDPPOTrainer",
    "PPOConfig",
    "PPOTFPolicy",
    "PPOTorchPolicy",
    "PPOTrainer",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
