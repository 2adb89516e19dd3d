"""Policies from data: `MARWILTrainer`, `BCTrainer` and their policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.marwil.marwil import (
        BC_DEFAULT_CONFIG,
        DEFAULT_CONFIG,
        BCConfig,
        BCTrainer,
        MARWILConfig,
        MARWILTrainer,
    )
    from rlframe.agents.marwil.marwil_policy import MARWILTFPolicy, MARWILTorchPolicy

_NAMES = {
    "BCConfig": "rlframe.agents.marwil.marwil",
    "BCTrainer": "rlframe.agents.marwil.marwil",
    "BC_DEFAULT_CONFIG": "rlframe.agents.marwil.marwil",
    "DEFAULT_CONFIG": "rlframe.agents.marwil.marwil",
    "MARWILConfig": "rlframe.agents.marwil.marwil",
    "MARWILTFPolicy": "rlframe.agents.marwil.marwil_policy",
    "MARWILTorchPolicy": "rlframe.agents.marwil.marwil_policy",
    "MARWILTrainer": "rlframe.agents.marwil.marwil",
}

__all__ = [
    "BC_DEFAULT_CONFIG",
    "DEFAULT_CONFIG",
    "BCConfig",
    "BCTrainer",
    "MARWILConfig",
    "MARWILTFPolicy",
    "MARWILTorchPolicy",
    "MARWILTrainer",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
