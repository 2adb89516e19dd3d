"""Sampling: rollout workers, the sets they form, episodes, callbacks and metrics."""

from __future__ import annotations

from typing import Any

from rlframe.utils.lazy import import_name

_NAMES = {
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

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
