"""QMIX: `QMixTrainer`, its policies; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.qmix.qmix import DEFAULT_CONFIG, QMixConfig, QMixTrainer
    from rlframe.agents.qmix.qmix_policy import QMixTFPolicy, QMixTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.qmix.qmix",
    "QMixConfig": "rlframe.agents.qmix.qmix",
    "QMixTFPolicy": "rlframe.agents.qmix.qmix_policy",
    "QMixTorchPolicy": "rlframe.agents.qmix.qmix_policy",
    "QMixTrainer": "rlframe.agents.qmix.qmix",
}

__all__ = ["DEFAULT_CONFIG", "QMixConfig", "QMixTFPolicy", "QMixTorchPolicy", "QMixTrainer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
