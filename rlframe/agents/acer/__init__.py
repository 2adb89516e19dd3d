"""ACER: `ACERTrainer` and its policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.acer.acer import DEFAULT_CONFIG, ACERConfig, ACERTrainer
    from rlframe.agents.acer.acer_policy import ACERTFPolicy, ACERTorchPolicy

_NAMES = {
    "ACERConfig": "rlframe.agents.acer.acer",
    "ACERTFPolicy": "rlframe.agents.acer.acer_policy",
    "ACERTorchPolicy": "rlframe.agents.acer.acer_policy",
    "ACERTrainer": "rlframe.agents.acer.acer",
    "DEFAULT_CONFIG": "rlframe.agents.acer.acer",
}

__all__ = ["DEFAULT_CONFIG", "ACERConfig", "ACERTFPolicy", "ACERTorchPolicy", "ACERTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
