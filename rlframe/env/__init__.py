"""Environments: what the user may give, and how it becomes something that can be sampled from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.env.base_env import BaseEnv
    from rlframe.env.checks import check_env
    from rlframe.env.env_context import EnvContext
    from rlframe.env.external_env import ExternalEnv
    from rlframe.env.external_multi_agent_env import ExternalMultiAgentEnv
    from rlframe.env.multi_agent_env import GroupAgentsWrapper, MultiAgentEnv
    from rlframe.env.registry import register_env
    from rlframe.env.vector_env import VectorEnv
    from rlframe.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv

_NAMES = {
    "BaseEnv": "rlframe.env.base_env",
    "EnvContext": "rlframe.env.env_context",
    "ExternalEnv": "rlframe.env.external_env",
    "ExternalMultiAgentEnv": "rlframe.env.external_multi_agent_env",
    "GroupAgentsWrapper": "rlframe.env.multi_agent_env",
    "MultiAgentEnv": "rlframe.env.multi_agent_env",
    "ParallelPettingZooEnv": "rlframe.env.wrappers.pettingzoo_env",
    "PettingZooEnv": "rlframe.env.wrappers.pettingzoo_env",
    "VectorEnv": "rlframe.env.vector_env",
    "check_env": "rlframe.env.checks",
    "register_env": "rlframe.env.registry",
}

__all__ = [
    "BaseEnv",
    "EnvContext",
    "ExternalEnv",
    "ExternalMultiAgentEnv",
    "GroupAgentsWrapper",
    "MultiAgentEnv",
    "ParallelPettingZooEnv",
    "PettingZooEnv",
    "VectorEnv",
    "check_env",
    "register_env",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
