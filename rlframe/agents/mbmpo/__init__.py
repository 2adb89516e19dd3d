"""A policy that adapts to learned models of its environment: MBMPO; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.mbmpo.mbmpo import DEFAULT_CONFIG, MBMPOConfig, MBMPOTrainer
    from rlframe.agents.mbmpo.mbmpo_policy import MBMPOTFPolicy, MBMPOTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.mbmpo.mbmpo",
    "MBMPOConfig": "rlframe.agents.mbmpo.mbmpo",
    "MBMPOTFPolicy": "rlframe.agents.mbmpo.mbmpo_policy",
    "MBMPOTorchPolicy": "rlframe.agents.mbmpo.mbmpo_policy",
    "MBMPOTrainer": "rlframe.agents.mbmpo.mbmpo",
}

__all__ = ["DEFAULT_CONFIG", "MBMPOConfig", "MBMPOTFPolicy", "MBMPOTorchPolicy", "MBMPOTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
