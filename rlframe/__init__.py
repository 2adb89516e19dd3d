"""Reinforcement learning with trainers, policies, rollout workers and execution plans, on today's libraries.

Importing this package loads neither a learning framework nor Ray; names are looked up when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlframe._tune_names import name_streams_as_before, register_when_tune_is_imported
from rlframe.rllib1x.finder import install
from rlframe.utils.spinning import shorten_spinning

if TYPE_CHECKING:
    from rlframe.agents.a3c import A2CTrainer, A3CTrainer
    from rlframe.agents.acer import ACERTrainer
    from rlframe.agents.alpha_zero import AlphaZeroTrainer
    from rlframe.agents.appo import APPOTrainer
    from rlframe.agents.bandit import BanditLinTSTrainer, BanditLinUCBTrainer
    from rlframe.agents.ddpg import ApexDDPGTrainer, DDPGTrainer, TD3BCTrainer, TD3Trainer
    from rlframe.agents.dqn import ApexTrainer, DQNTrainer, PQNTrainer, R2D2Trainer, SimpleQTrainer
    from rlframe.agents.dreamer import DREAMERTrainer
    from rlframe.agents.es import ARSTrainer, ESTrainer
    from rlframe.agents.impala import ImpalaTrainer
    from rlframe.agents.iql import IQLTrainer
    from rlframe.agents.maddpg import MADDPGTrainer
    from rlframe.agents.maml import MAMLTrainer
    from rlframe.agents.marwil import BCTrainer, MARWILTrainer
    from rlframe.agents.mbmpo import MBMPOTrainer
    from rlframe.agents.pg import PGTrainer
    from rlframe.agents.ppo import DDPPOTrainer, PPOTrainer
    from rlframe.agents.qmix import QMixTrainer
    from rlframe.agents.random_agent import RandomAgentTrainer
    from rlframe.agents.sac import CQLTrainer, RNNSACTrainer, SACTrainer
    from rlframe.agents.slateq import SlateQTrainer
    from rlframe.agents.trpo import TRPOTrainer
    from rlframe.data.sample_batch import SampleBatch
    from rlframe.env.base_env import BaseEnv
    from rlframe.env.external_env import ExternalEnv
    from rlframe.env.multi_agent_env import MultiAgentEnv
    from rlframe.env.vector_env import VectorEnv
    from rlframe.evaluation.rollout_worker import RolloutWorker
    from rlframe.policy.policy import Policy
    from rlframe.policy.torch_policy import TorchPolicy
    from rlframe.trainer.template import build_trainer
    from rlframe.trainer.trainer import Trainer

__version__ = "0.1.0"  # a literal: the packaging reads it without importing

_LAZY = {
    "RandomAgentTrainer": "rlframe.agents.random_agent",
    "BanditLinUCBTrainer": "rlframe.agents.bandit",
    "BanditLinTSTrainer": "rlframe.agents.bandit",
    "AlphaZeroTrainer": "rlframe.agents.alpha_zero",
    "A2CTrainer": "rlframe.agents.a3c",
    "A3CTrainer": "rlframe.agents.a3c",
    "ACERTrainer": "rlframe.agents.acer",
    "APPOTrainer": "rlframe.agents.appo",
    "ApexDDPGTrainer": "rlframe.agents.ddpg",
    "ApexTrainer": "rlframe.agents.dqn",
    "BCTrainer": "rlframe.agents.marwil",
    "BaseEnv": "rlframe.env.base_env",
    "CQLTrainer": "rlframe.agents.sac",
    "DDPGTrainer": "rlframe.agents.ddpg",
    "DDPPOTrainer": "rlframe.agents.ppo",
    "DQNTrainer": "rlframe.agents.dqn",
    "DREAMERTrainer": "rlframe.agents.dreamer",
    "ExternalEnv": "rlframe.env.external_env",
    "IQLTrainer": "rlframe.agents.iql",
    "ARSTrainer": "rlframe.agents.es",
    "ESTrainer": "rlframe.agents.es",
    "ImpalaTrainer": "rlframe.agents.impala",
    "MADDPGTrainer": "rlframe.agents.maddpg",
    "MAMLTrainer": "rlframe.agents.maml",
    "MARWILTrainer": "rlframe.agents.marwil",
    "MBMPOTrainer": "rlframe.agents.mbmpo",
    "MultiAgentEnv": "rlframe.env.multi_agent_env",
    "PGTrainer": "rlframe.agents.pg",
    "PPOTrainer": "rlframe.agents.ppo",
    "PQNTrainer": "rlframe.agents.dqn",
    "Policy": "rlframe.policy.policy",
    "QMixTrainer": "rlframe.agents.qmix",
    "R2D2Trainer": "rlframe.agents.dqn",
    "RNNSACTrainer": "rlframe.agents.sac",
    "RolloutWorker": "rlframe.evaluation.rollout_worker",
    "SACTrainer": "rlframe.agents.sac",
    "SampleBatch": "rlframe.data.sample_batch",
    "SimpleQTrainer": "rlframe.agents.dqn",
    "SlateQTrainer": "rlframe.agents.slateq",
    "TD3BCTrainer": "rlframe.agents.ddpg",
    "TD3Trainer": "rlframe.agents.ddpg",
    "TRPOTrainer": "rlframe.agents.trpo",
    "TorchPolicy": "rlframe.policy.torch_policy",
    "Trainer": "rlframe.trainer.trainer",
    "VectorEnv": "rlframe.env.vector_env",
    "build_trainer": "rlframe.trainer.template",
}

__all__ = [
    "A2CTrainer",
    "A3CTrainer",
    "ACERTrainer",
    "APPOTrainer",
    "ARSTrainer",
    "AlphaZeroTrainer",
    "ApexDDPGTrainer",
    "ApexTrainer",
    "BCTrainer",
    "BanditLinTSTrainer",
    "BanditLinUCBTrainer",
    "BaseEnv",
    "CQLTrainer",
    "DDPGTrainer",
    "DDPPOTrainer",
    "DQNTrainer",
    "DREAMERTrainer",
    "ESTrainer",
    "ExternalEnv",
    "IQLTrainer",
    "ImpalaTrainer",
    "MADDPGTrainer",
    "MAMLTrainer",
    "MARWILTrainer",
    "MBMPOTrainer",
    "MultiAgentEnv",
    "PGTrainer",
    "PPOTrainer",
    "PQNTrainer",
    "Policy",
    "QMixTrainer",
    "R2D2Trainer",
    "RNNSACTrainer",
    "RandomAgentTrainer",
    "RolloutWorker",
    "SACTrainer",
    "SampleBatch",
    "SimpleQTrainer",
    "SlateQTrainer",
    "TD3BCTrainer",
    "TD3Trainer",
    "TRPOTrainer",
    "TorchPolicy",
    "Trainer",
    "VectorEnv",
    "__version__",
    "build_trainer",
]


def __getattr__(name: str) -> Any:
    if name == "tune":  # of programs that write `rlframe.tune.run(...)`
        return importlib.import_module("rlframe.tune")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


install()
register_when_tune_is_imported()
name_streams_as_before()
shorten_spinning()
