"""Deterministic actor-critics: `DDPGTrainer`, `TD3Trainer`, `ApexDDPGTrainer`, policies; imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.ddpg.apex import APEX_DDPG_DEFAULT_CONFIG, ApexDDPGConfig, ApexDDPGTrainer
    from rlframe.agents.ddpg.ddpg import DEFAULT_CONFIG, DDPGConfig, DDPGTrainer
    from rlframe.agents.ddpg.ddpg_policy import DDPGTFPolicy, DDPGTorchPolicy
    from rlframe.agents.ddpg.td3 import TD3_DEFAULT_CONFIG, TD3Config, TD3Trainer
    from rlframe.agents.ddpg.td3_bc import TD3_BC_DEFAULT_CONFIG, TD3BCConfig, TD3BCTrainer
    from rlframe.agents.ddpg.td3_bc_policy import TD3BCTFPolicy, TD3BCTorchPolicy

_NAMES = {
    "APEX_DDPG_DEFAULT_CONFIG": "rlframe.agents.ddpg.apex",
    "ApexDDPGConfig": "rlframe.agents.ddpg.apex",
    "ApexDDPGTrainer": "rlframe.agents.ddpg.apex",
    "DDPGConfig": "rlframe.agents.ddpg.ddpg",
    "DDPGTFPolicy": "rlframe.agents.ddpg.ddpg_policy",
    "DDPGTorchPolicy": "rlframe.agents.ddpg.ddpg_policy",
    "DDPGTrainer": "rlframe.agents.ddpg.ddpg",
    "DEFAULT_CONFIG": "rlframe.agents.ddpg.ddpg",
    "TD3BCConfig": "rlframe.agents.ddpg.td3_bc",
    "TD3BCTFPolicy": "rlframe.agents.ddpg.td3_bc_policy",
    "TD3BCTorchPolicy": "rlframe.agents.ddpg.td3_bc_policy",
    "TD3BCTrainer": "rlframe.agents.ddpg.td3_bc",
    "TD3Config": "rlframe.agents.ddpg.td3",
    "TD3Trainer": "rlframe.agents.ddpg.td3",
    "TD3_BC_DEFAULT_CONFIG": "rlframe.agents.ddpg.td3_bc",
    "TD3_DEFAULT_CONFIG": "rlframe.agents.ddpg.td3",
}

__all__ = [
    "APEX_DDPG_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "TD3_BC_DEFAULT_CONFIG",
    "TD3_DEFAULT_CONFIG",
    "ApexDDPGConfig",
    "ApexDDPGTrainer",
    "DDPGConfig",
    "DDPGTFPolicy",
    "DDPGTorchPolicy",
    "DDPGTrainer",
    "TD3BCConfig",
    "TD3BCTFPolicy",
    "TD3BCTorchPolicy",
    "TD3BCTrainer",
    "TD3Config",
    "TD3Trainer",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
