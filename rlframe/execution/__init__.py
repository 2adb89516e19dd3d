"""Execution plans: iterators, the operators that plans are written in, and replay buffers.

Names are loaded when they are first used, so that importing the package is cheap.
"""

from __future__ import annotations

from typing import Any

from rlframe.utils.lazy import import_name

_NAMES = {
    "ApplyGradients": "rlframe.execution.gradient_ops",
    "AsyncGradients": "rlframe.execution.gradient_ops",
    "AverageGradients": "rlframe.execution.gradient_ops",
    "CollectMetrics": "rlframe.execution.metric_ops",
    "ComputeGradients": "rlframe.execution.gradient_ops",
    "ConcatBatches": "rlframe.execution.rollout_ops",
    "Concurrently": "rlframe.execution.concurrency_ops",
    "Dequeue": "rlframe.execution.concurrency_ops",
    "Enqueue": "rlframe.execution.concurrency_ops",
    "LearnerThread": "rlframe.execution.learner.thread",
    "LocalIterator": "rlframe.execution.plan.local_iterator",
    "LocalReplayBuffer": "rlframe.execution.replay_buffer",
    "MixInReplay": "rlframe.execution.mixing_ops",
    "MultiGPULearnerThread": "rlframe.execution.learner.loader",
    "MultiGPUTrainOneStep": "rlframe.execution.train_ops",
    "OncePerTimeInterval": "rlframe.execution.metric_ops",
    "OncePerTimestepsElapsed": "rlframe.execution.plan.context",
    "ParallelIterator": "rlframe.execution.plan.parallel_iterator",
    "ParallelRollouts": "rlframe.execution.rollout_ops",
    "PrioritizedReplayBuffer": "rlframe.execution.replay_buffer",
    "Replay": "rlframe.execution.train_ops",
    "ReplayActor": "rlframe.execution.replay_buffer",
    "ReplayBuffer": "rlframe.execution.replay_buffer",
    "SelectExperiences": "rlframe.execution.rollout_ops",
    "SharedMetrics": "rlframe.execution.plan.context",
    "SimpleReplayBuffer": "rlframe.execution.mixing_ops",
    "StandardMetricsReporting": "rlframe.execution.metric_ops",
    "StandardizeFields": "rlframe.execution.rollout_ops",
    "StoreToReplayBuffer": "rlframe.execution.train_ops",
    "TrainOneStep": "rlframe.execution.train_ops",
    "UpdatePriorities": "rlframe.execution.train_ops",
    "UpdateTargetNetwork": "rlframe.execution.train_ops",
    "WaitUntilTimestepsElapsed": "rlframe.execution.mixing_ops",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name == "TrainTFMultiGPU":
        from rlframe.utils.deprecation import deprecation_warning

        deprecation_warning("TrainTFMultiGPU", "MultiGPUTrainOneStep")
        name = "MultiGPUTrainOneStep"
    return import_name(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return __all__
