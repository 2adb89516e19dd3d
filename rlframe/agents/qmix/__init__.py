"""QMIX: `QMixTrainer`, its policy and its mixers (imported when asked for)."""

from __future__ import annotations

import importlib
from typing import Any

from rlframe.agents.qmix.qmix import DEFAULT_CONFIG, QMixConfig, QMixTrainer

_TORCH = {
    "QMixTorchPolicy": "rlframe.agents.qmix.qmix_torch_policy",
    "QMixer": "rlframe.agents.qmix.qmix_torch_model",
    "VDNMixer": "rlframe.agents.qmix.qmix_torch_model",
}

__all__ = ["DEFAULT_CONFIG", "QMixConfig", "QMixTrainer", *sorted(_TORCH)]


def __getattr__(name: str) -> Any:
    if name not in _TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_TORCH[name]), name)
