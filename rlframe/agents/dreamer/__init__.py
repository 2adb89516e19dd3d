"""Dreamer: trainer, config, networks and policy; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.dreamer.dreamer import DEFAULT_CONFIG, DreamerConfig, DREAMERTrainer
    from rlframe.agents.dreamer.dreamer_torch_model import DreamerModel
    from rlframe.agents.dreamer.dreamer_torch_policy import DreamerTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.dreamer.dreamer",
    "DREAMERTrainer": "rlframe.agents.dreamer.dreamer",
    "DreamerConfig": "rlframe.agents.dreamer.dreamer",
    "DreamerModel": "rlframe.agents.dreamer.dreamer_torch_model",
    "DreamerTorchPolicy": "rlframe.agents.dreamer.dreamer_torch_policy",
}

__all__ = ["DEFAULT_CONFIG", "DREAMERTrainer", "DreamerConfig", "DreamerModel", "DreamerTorchPolicy"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
