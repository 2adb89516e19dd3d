"""Execution plans: iterators, the operators that plans are written in, and replay buffers.

Names are loaded when they are first used, so that importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "ApplyGradients": "train_ops",
    "AsyncGradients": "rollout_ops",
    "AverageGradients": "train_ops",
    "CollectMetrics": "metric_ops",
    "ComputeGradients": "train_ops",
    "ConcatBatches": "rollout_ops",
    "Concurrently": "concurrency_ops",
    "Dequeue": "concurrency_ops",
    "Enqueue": "concurrency_ops",
    "LearnerThread": "learner_thread",
    "LocalIterator": "local_iterator",
    "LocalReplayBuffer": "replay_buffer",
    "MixInReplay": "replay_ops",
    "MultiGPULearnerThread": "multi_gpu_learner_thread",
    "MultiGPUTrainOneStep": "train_ops",
    "OncePerTimeInterval": "metric_ops",
    "OncePerTimestepsElapsed": "metric_ops",
    "ParallelIterator": "parallel_iterator",
    "ParallelRollouts": "rollout_ops",
    "PrioritizedReplayBuffer": "replay_buffer",
    "Replay": "replay_ops",
    "ReplayActor": "replay_buffer",
    "ReplayBuffer": "replay_buffer",
    "SelectExperiences": "rollout_ops",
    "SharedMetrics": "common",
    "SimpleReplayBuffer": "replay_ops",
    "StandardMetricsReporting": "metric_ops",
    "StandardizeFields": "rollout_ops",
    "StoreToReplayBuffer": "replay_ops",
    "TrainOneStep": "train_ops",
    "UpdatePriorities": "replay_ops",
    "UpdateTargetNetwork": "train_ops",
    "WaitUntilTimestepsElapsed": "replay_ops",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name == "TrainTFMultiGPU":
        from rlframe.utils.deprecation import deprecation_warning

        deprecation_warning("TrainTFMultiGPU", "MultiGPUTrainOneStep")
        name = "MultiGPUTrainOneStep"
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_EXPORTS[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
