"""Reinforcement learning with trainers, policies, rollout workers and execution plans, on today's libraries.

Importing this package loads neither a learning framework nor Ray; names are looked up when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlframe._tune_names import register_when_tune_is_imported
from rlframe.rllib1x.finder import install

if TYPE_CHECKING:
    from rlframe.data.sample_batch import SampleBatch
    from rlframe.env.base_env import BaseEnv
    from rlframe.env.external_env import ExternalEnv
    from rlframe.env.multi_agent_env import MultiAgentEnv
    from rlframe.env.vector_env import VectorEnv
    from rlframe.evaluation.rollout_worker import RolloutWorker
    from rlframe.policy.policy import Policy
    from rlframe.policy.torch_policy import TorchPolicy

__version__ = "0.1.0"  # a literal: the packaging reads it without importing

_LAZY = {
    "BaseEnv": "rlframe.env.base_env",
    "ExternalEnv": "rlframe.env.external_env",
    "MultiAgentEnv": "rlframe.env.multi_agent_env",
    "Policy": "rlframe.policy.policy",
    "RolloutWorker": "rlframe.evaluation.rollout_worker",
    "SampleBatch": "rlframe.data.sample_batch",
    "TorchPolicy": "rlframe.policy.torch_policy",
    "VectorEnv": "rlframe.env.vector_env",
}

__all__ = [
    "BaseEnv",
    "ExternalEnv",
    "MultiAgentEnv",
    "Policy",
    "RolloutWorker",
    "SampleBatch",
    "TorchPolicy",
    "VectorEnv",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


install()
register_when_tune_is_imported()
