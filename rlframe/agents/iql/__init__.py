"""Implicit Q-learning, from data alone: IQL; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.iql.iql import DEFAULT_CONFIG, IQLConfig, IQLTrainer
    from rlframe.agents.iql.iql_policy import IQLTFPolicy, IQLTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.iql.iql",
    "IQLConfig": "rlframe.agents.iql.iql",
    "IQLTFPolicy": "rlframe.agents.iql.iql_policy",
    "IQLTorchPolicy": "rlframe.agents.iql.iql_policy",
    "IQLTrainer": "rlframe.agents.iql.iql",
}

__all__ = ["DEFAULT_CONFIG", "IQLConfig", "IQLTFPolicy", "IQLTorchPolicy", "IQLTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
