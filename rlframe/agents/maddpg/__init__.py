"""Multi-agent actor-critics: `MADDPGTrainer` and its policies (imported when asked for)."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.maddpg.maddpg import DEFAULT_CONFIG, MADDPGConfig, MADDPGTrainer

_POLICIES = {
    "MADDPGTFPolicy": "rlframe.agents.maddpg.maddpg_tf_policy",
    "MADDPGTorchPolicy": "rlframe.agents.maddpg.maddpg_torch_policy",
}

__all__ = ["DEFAULT_CONFIG", "MADDPGConfig", "MADDPGTrainer", *sorted(_POLICIES)]


def __getattr__(name: str) -> Any:
    if name not in _POLICIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_POLICIES[name]), name)
