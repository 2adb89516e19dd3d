"""AlphaZero: trainer, config, search and policy; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.alpha_zero.alpha_zero import DEFAULT_CONFIG, AlphaZeroConfig, AlphaZeroTrainer
    from rlframe.agents.alpha_zero.alpha_zero_policy import AlphaZeroTFPolicy, AlphaZeroTorchPolicy
    from rlframe.agents.alpha_zero.mcts import MCTS, Node

_NAMES = {
    "AlphaZeroConfig": "rlframe.agents.alpha_zero.alpha_zero",
    "AlphaZeroTFPolicy": "rlframe.agents.alpha_zero.alpha_zero_policy",
    "AlphaZeroTorchPolicy": "rlframe.agents.alpha_zero.alpha_zero_policy",
    "AlphaZeroTrainer": "rlframe.agents.alpha_zero.alpha_zero",
    "DEFAULT_CONFIG": "rlframe.agents.alpha_zero.alpha_zero",
    "MCTS": "rlframe.agents.alpha_zero.mcts",
    "Node": "rlframe.agents.alpha_zero.mcts",
}

__all__ = [
    "DEFAULT_CONFIG",
    "MCTS",
    "AlphaZeroConfig",
    "AlphaZeroTFPolicy",
    "AlphaZeroTorchPolicy",
    "AlphaZeroTrainer",
    "Node",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
