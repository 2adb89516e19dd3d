"""Deep Q-networks: `DQNTrainer`, `SimpleQTrainer` and their policies (imported when asked for)."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.dqn.dqn import DEFAULT_CONFIG, DQNConfig, DQNTrainer
from rlframe.agents.dqn.simple_q import DEFAULT_CONFIG as SIMPLE_Q_DEFAULT_CONFIG
from rlframe.agents.dqn.simple_q import SimpleQConfig, SimpleQTrainer

_POLICIES = {
    "DQNTFPolicy": "rlframe.agents.dqn.dqn_tf_policy",
    "DQNTorchPolicy": "rlframe.agents.dqn.dqn_torch_policy",
    "SimpleQTFPolicy": "rlframe.agents.dqn.simple_q_tf_policy",
    "SimpleQTorchPolicy": "rlframe.agents.dqn.simple_q_torch_policy",
}

__all__ = [
    "DEFAULT_CONFIG",
    "SIMPLE_Q_DEFAULT_CONFIG",
    "DQNConfig",
    "DQNTrainer",
    "SimpleQConfig",
    "SimpleQTrainer",
    *sorted(_POLICIES),
]


def __getattr__(name: str) -> Any:
    if name not in _POLICIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_POLICIES[name]), name)
