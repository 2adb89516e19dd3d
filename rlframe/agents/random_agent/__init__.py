"""Acting at random: trainer, config and policy; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.random_agent.random_agent import DEFAULT_CONFIG, RandomAgentConfig, RandomAgentTrainer
    from rlframe.agents.random_agent.random_policy import RandomAgentPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.random_agent.random_agent",
    "RandomAgentConfig": "rlframe.agents.random_agent.random_agent",
    "RandomAgentPolicy": "rlframe.agents.random_agent.random_policy",
    "RandomAgentTrainer": "rlframe.agents.random_agent.random_agent",
}

__all__ = ["DEFAULT_CONFIG", "RandomAgentConfig", "RandomAgentPolicy", "RandomAgentTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
