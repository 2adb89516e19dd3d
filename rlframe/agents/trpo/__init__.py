"""Trust region policy optimisation: TRPO; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.trpo.trpo import DEFAULT_CONFIG, TRPOConfig, TRPOTrainer
    from rlframe.agents.trpo.trpo_policy import TRPOTFPolicy, TRPOTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.trpo.trpo",
    "TRPOConfig": "rlframe.agents.trpo.trpo",
    "TRPOTFPolicy": "rlframe.agents.trpo.trpo_policy",
    "TRPOTorchPolicy": "rlframe.agents.trpo.trpo_policy",
    "TRPOTrainer": "rlframe.agents.trpo.trpo",
}

__all__ = ["DEFAULT_CONFIG", "TRPOConfig", "TRPOTFPolicy", "TRPOTorchPolicy", "TRPOTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
