"""Advantage actor-critic: `A2CTrainer`, `A3CTrainer` and their policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.a3c.a2c import A2C_DEFAULT_CONFIG, A2CConfig, A2CTrainer
    from rlframe.agents.a3c.a3c import DEFAULT_CONFIG, A3CConfig, A3CTrainer
    from rlframe.agents.a3c.a3c_policy import A3CTFPolicy, A3CTorchPolicy

_NAMES = {
    "A2CConfig": "rlframe.agents.a3c.a2c",
    "A2CTrainer": "rlframe.agents.a3c.a2c",
    "A2C_DEFAULT_CONFIG": "rlframe.agents.a3c.a2c",
    "A3CConfig": "rlframe.agents.a3c.a3c",
    "A3CTFPolicy": "rlframe.agents.a3c.a3c_policy",
    "A3CTorchPolicy": "rlframe.agents.a3c.a3c_policy",
    "A3CTrainer": "rlframe.agents.a3c.a3c",
    "DEFAULT_CONFIG": "rlframe.agents.a3c.a3c",
}

__all__ = [
    "A2C_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "A2CConfig",
    "A2CTrainer",
    "A3CConfig",
    "A3CTFPolicy",
    "A3CTorchPolicy",
    "A3CTrainer",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
