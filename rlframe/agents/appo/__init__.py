"""Asynchronous proximal policy optimisation: `APPOTrainer` and its policies, imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.appo.appo import DEFAULT_CONFIG, APPOConfig, APPOTrainer
    from rlframe.agents.appo.appo_policy import AsyncPPOTFPolicy, AsyncPPOTorchPolicy

_NAMES = {
    "APPOConfig": "rlframe.agents.appo.appo",
    "APPOTrainer": "rlframe.agents.appo.appo",
    "AsyncPPOTFPolicy": "rlframe.agents.appo.appo_policy",
    "AsyncPPOTorchPolicy": "rlframe.agents.appo.appo_policy",
    "DEFAULT_CONFIG": "rlframe.agents.appo.appo",
}

__all__ = ["DEFAULT_CONFIG", "APPOConfig", "APPOTrainer", "AsyncPPOTFPolicy", "AsyncPPOTorchPolicy"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
