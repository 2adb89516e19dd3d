"""Weights from which one gradient step adapts to a new task: MAML; each name is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.maml.maml import DEFAULT_CONFIG, MAMLConfig, MAMLTrainer
    from rlframe.agents.maml.maml_policy import MAMLTFPolicy, MAMLTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.maml.maml",
    "MAMLConfig": "rlframe.agents.maml.maml",
    "MAMLTFPolicy": "rlframe.agents.maml.maml_policy",
    "MAMLTorchPolicy": "rlframe.agents.maml.maml_policy",
    "MAMLTrainer": "rlframe.agents.maml.maml",
}

__all__ = ["DEFAULT_CONFIG", "MAMLConfig", "MAMLTFPolicy", "MAMLTorchPolicy", "MAMLTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
