"""Linear contextual bandits: trainers, configs, policy and models; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.bandit.bandit import (
        DEFAULT_CONFIG,
        TS_CONFIG,
        UCB_CONFIG,
        BanditConfig,
        BanditLinTSTrainer,
        BanditLinUCBTrainer,
        LinTSConfig,
        LinUCBConfig,
    )
    from rlframe.agents.bandit.bandit_policy import BanditPolicy
    from rlframe.agents.bandit.linear_models import OnlineLinearRegression

_NAMES = {
    "BanditConfig": "rlframe.agents.bandit.bandit",
    "BanditLinTSTrainer": "rlframe.agents.bandit.bandit",
    "BanditLinUCBTrainer": "rlframe.agents.bandit.bandit",
    "BanditPolicy": "rlframe.agents.bandit.bandit_policy",
    "DEFAULT_CONFIG": "rlframe.agents.bandit.bandit",
    "LinTSConfig": "rlframe.agents.bandit.bandit",
    "LinUCBConfig": "rlframe.agents.bandit.bandit",
    "OnlineLinearRegression": "rlframe.agents.bandit.linear_models",
    "TS_CONFIG": "rlframe.agents.bandit.bandit",
    "UCB_CONFIG": "rlframe.agents.bandit.bandit",
}

__all__ = [
    "DEFAULT_CONFIG",
    "TS_CONFIG",
    "UCB_CONFIG",
    "BanditConfig",
    "BanditLinTSTrainer",
    "BanditLinUCBTrainer",
    "BanditPolicy",
    "LinTSConfig",
    "LinUCBConfig",
    "OnlineLinearRegression",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
