"""Deep Q-learning: DQN, SimpleQ, PQN and APEX, trainers and policies; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.dqn.apex import APEX_DEFAULT_CONFIG, ApexConfig, ApexTrainer
    from rlframe.agents.dqn.dqn import DEFAULT_CONFIG, DQNConfig, DQNTrainer
    from rlframe.agents.dqn.dqn_policy import DQNTFPolicy, DQNTorchPolicy
    from rlframe.agents.dqn.pqn import DEFAULT_CONFIG as PQN_DEFAULT_CONFIG
    from rlframe.agents.dqn.pqn import PQNConfig, PQNTrainer
    from rlframe.agents.dqn.pqn_policy import PQNTFPolicy, PQNTorchPolicy
    from rlframe.agents.dqn.r2d2 import DEFAULT_CONFIG as R2D2_DEFAULT_CONFIG
    from rlframe.agents.dqn.r2d2 import R2D2Config, R2D2Trainer
    from rlframe.agents.dqn.r2d2_policy import R2D2TFPolicy, R2D2TorchPolicy
    from rlframe.agents.dqn.simple_q import DEFAULT_CONFIG as SIMPLE_Q_DEFAULT_CONFIG
    from rlframe.agents.dqn.simple_q import SimpleQConfig, SimpleQTrainer
    from rlframe.agents.dqn.simple_q_policy import SimpleQTFPolicy, SimpleQTorchPolicy

_NAMES = {
    "APEX_DEFAULT_CONFIG": "rlframe.agents.dqn.apex",
    "ApexConfig": "rlframe.agents.dqn.apex",
    "ApexTrainer": "rlframe.agents.dqn.apex",
    "DEFAULT_CONFIG": "rlframe.agents.dqn.dqn",
    "DQNConfig": "rlframe.agents.dqn.dqn",
    "DQNTFPolicy": "rlframe.agents.dqn.dqn_policy",
    "DQNTorchPolicy": "rlframe.agents.dqn.dqn_policy",
    "DQNTrainer": "rlframe.agents.dqn.dqn",
    "PQNConfig": "rlframe.agents.dqn.pqn",
    "PQNTFPolicy": "rlframe.agents.dqn.pqn_policy",
    "PQNTorchPolicy": "rlframe.agents.dqn.pqn_policy",
    "PQNTrainer": "rlframe.agents.dqn.pqn",
    "PQN_DEFAULT_CONFIG": "rlframe.agents.dqn.pqn:DEFAULT_CONFIG",
    "R2D2_DEFAULT_CONFIG": "rlframe.agents.dqn.r2d2:DEFAULT_CONFIG",
    "R2D2Config": "rlframe.agents.dqn.r2d2",
    "R2D2TFPolicy": "rlframe.agents.dqn.r2d2_policy",
    "R2D2TorchPolicy": "rlframe.agents.dqn.r2d2_policy",
    "R2D2Trainer": "rlframe.agents.dqn.r2d2",
    "SIMPLE_Q_DEFAULT_CONFIG": "rlframe.agents.dqn.simple_q:DEFAULT_CONFIG",
    "SimpleQConfig": "rlframe.agents.dqn.simple_q",
    "SimpleQTFPolicy": "rlframe.agents.dqn.simple_q_policy",
    "SimpleQTorchPolicy": "rlframe.agents.dqn.simple_q_policy",
    "SimpleQTrainer": "rlframe.agents.dqn.simple_q",
}

__all__ = [
    "APEX_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "PQN_DEFAULT_CONFIG",
    "R2D2_DEFAULT_CONFIG",
    "SIMPLE_Q_DEFAULT_CONFIG",
    "ApexConfig",
    "ApexTrainer",
    "DQNConfig",
    "DQNTFPolicy",
    "DQNTorchPolicy",
    "DQNTrainer",
    "PQNConfig",
    "PQNTFPolicy",
    "PQNTorchPolicy",
    "PQNTrainer",
    "R2D2Config",
    "R2D2TFPolicy",
    "R2D2TorchPolicy",
    "R2D2Trainer",
    "SimpleQConfig",
    "SimpleQTFPolicy",
    "SimpleQTorchPolicy",
    "SimpleQTrainer",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
