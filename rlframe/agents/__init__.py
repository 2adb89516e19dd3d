"""Trainers: one folder per algorithm, and what they are built from."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "Trainer": "rlframe.agents.trainer",
    "with_common_config": "rlframe.agents.trainer",
    "DefaultCallbacks": "rlframe.evaluation.callbacks",
    "MemoryTrackingCallbacks": "rlframe.evaluation.callbacks",
    "MultiCallbacks": "rlframe.evaluation.callbacks",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
