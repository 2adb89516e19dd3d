"""QMIX: `QMixTrainer`, its policy and its mixers; each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.agents.qmix.qmix import DEFAULT_CONFIG, QMixConfig, QMixTrainer
    from rlframe.agents.qmix.qmix_torch_model import QMixer, VDNMixer
    from rlframe.agents.qmix.qmix_torch_policy import QMixTorchPolicy

_NAMES = {
    "DEFAULT_CONFIG": "rlframe.agents.qmix.qmix",
    "QMixConfig": "rlframe.agents.qmix.qmix",
    "QMixTorchPolicy": "rlframe.agents.qmix.qmix_torch_policy",
    "QMixTrainer": "rlframe.agents.qmix.qmix",
    "QMixer": "rlframe.agents.qmix.qmix_torch_model",
    "VDNMixer": "rlframe.agents.qmix.qmix_torch_model",
}

__all__ = ["DEFAULT_CONFIG", "QMixConfig", "QMixTorchPolicy", "QMixTrainer", "QMixer", "VDNMixer"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
