"""Environments: what the user may give, and how it becomes something that can be sampled from."""

from rlframe.env.base_env import BaseEnv
from rlframe.env.checks import check_env
from rlframe.env.env_context import EnvContext
from rlframe.env.external_env import ExternalEnv
from rlframe.env.external_multi_agent_env import ExternalMultiAgentEnv
from rlframe.env.multi_agent_env import GroupAgentsWrapper, MultiAgentEnv
from rlframe.env.registry import register_env
from rlframe.env.vector_env import VectorEnv
from rlframe.env.wrappers.pettingzoo_env import ParallelPettingZooEnv, PettingZooEnv

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
