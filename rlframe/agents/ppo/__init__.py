"""Proximal policy optimisation: `PPOTrainer` and its policies (imported when asked for)."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.ppo.ppo import DEFAULT_CONFIG, PPOConfig, PPOTrainer

_POLICIES = {
    "PPOTFPolicy": "rlframe.agents.ppo.ppo_tf_policy",
    "PPOTorchPolicy": "rlframe.agents.ppo.ppo_torch_policy",
}

__all__ = ["DEFAULT_CONFIG", "PPOConfig", "PPOTrainer", *sorted(_POLICIES)]


def __getattr__(name: str) -> Any:
    if name not in _POLICIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_POLICIES[name]), name)
