"""The algorithms, a folder each; `registry` knows them by name, `presets` has tuned configs."""

from __future__ import annotations

from typing import Any

from rlframe.utils.lazy import import_name

_NAMES = {
    "Trainer": "rlframe.trainer.trainer",
    "with_common_config": "rlframe.trainer.trainer",
    "DefaultCallbacks": "rlframe.evaluation.callbacks",
    "MemoryTrackingCallbacks": "rlframe.evaluation.callbacks",
    "MultiCallbacks": "rlframe.evaluation.callbacks",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
