"""Sampling: rollout workers, the sets they form, episodes, callbacks and metrics."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "RolloutWorker": "rlframe.evaluation.rollout_worker",
    "WorkerSet": "rlframe.evaluation.worker_set",
    "SampleBatch": "rlframe.data.sample_batch",
    "SampleBatchBuilder": "rlframe.data.sample_batch_builder",
    "MultiAgentBatch": "rlframe.data.sample_batch",
    "Episode": "rlframe.evaluation.episode",
    "MultiAgentEpisode": "rlframe.evaluation.episode",
    "DefaultCallbacks": "rlframe.evaluation.callbacks",
    "collect_metrics": "rlframe.evaluation.metrics",
    "compute_advantages": "rlframe.evaluation.postprocessing",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
