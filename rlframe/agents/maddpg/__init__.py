"""Multi-agent actor-critics: `MADDPGTrainer` and its policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.maddpg.maddpg import DEFAULT_CONFIG, MADDPGConfig, MADDPGTrainer
    from rlframe.agents.maddpg.maddpg_policy import MADDPGTFPolicy, MADDPGTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.maddpg.maddpg",
    "MADDPGConfig": "rlframe.agents.maddpg.maddpg",
    "MADDPGTFPolicy": "rlframe.agents.maddpg.maddpg_policy",
    "MADDPGTorchPolicy": "rlframe.agents.maddpg.maddpg_policy",
    "MADDPGTrainer": "rlframe.agents.maddpg.maddpg",
}

__all__ = ["DEFAULT_CONFIG", "MADDPGConfig", "MADDPGTFPolicy", "MADDPGTorchPolicy", "MADDPGTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
