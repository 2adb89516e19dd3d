"""Proximal policy optimisation: `PPOTrainer`, `APPOTrainer`, `DDPPOTrainer`; policies are imported when asked for."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.ppo.appo import APPOConfig, APPOTrainer
from rlframe.agents.ppo.ddppo import DDPPOConfig, DDPPOTrainer
from rlframe.agents.ppo.ppo import DEFAULT_CONFIG, PPOConfig, PPOTrainer

_POLICIES = {
    "AsyncPPOTFPolicy": "rlframe.agents.ppo.appo_tf_policy",
    "AsyncPPOTorchPolicy": "rlframe.agents.ppo.appo_torch_policy",
    "PPOTFPolicy": "rlframe.agents.ppo.ppo_tf_policy",
    "PPOTorchPolicy": "rlframe.agents.ppo.ppo_torch_policy",
}

__all__ = [
    "DEFAULT_CONFIG",
    "APPOConfig",
    "APPOTrainer",
    "DDPPOConfig",
    "DDPPOTrainer",
    "PPOConfig",
    "PPOTrainer",
    *sorted(_POLICIES),
]


def __getattr__(name: str) -> Any:
    if name not in _POLICIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_POLICIES[name]), name)
