"""Advantage actor-critic: `A2CTrainer`, `A3CTrainer` and their policies (imported when asked for)."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.a3c.a2c import A2C_DEFAULT_CONFIG, A2CConfig, A2CTrainer
from rlframe.agents.a3c.a3c import DEFAULT_CONFIG, A3CConfig, A3CTrainer

_POLICIES = {
    "A3CTFPolicy": "rlframe.agents.a3c.a3c_tf_policy",
    "A3CTorchPolicy": "rlframe.agents.a3c.a3c_torch_policy",
}

__all__ = [
    "A2C_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "A2CConfig",
    "A2CTrainer",
    "A3CConfig",
    "A3CTrainer",
    *sorted(_POLICIES),
]


def __getattr__(name: str) -> Any:
    if name not in _POLICIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_POLICIES[name]), name)
