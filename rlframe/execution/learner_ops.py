"""Operators around a learner: the one that a config asks for, and what is done with what it has learned."""

from __future__ import annotations

from queue import Full
from time import sleep
from typing import TYPE_CHECKING, Any

from rlframe.execution.concurrency_ops import QUEUE_WAIT_S
from rlframe.execution.learner.inline import InlineLearner
from rlframe.execution.learner.loader import MultiGPULearnerThread
from rlframe.execution.learner.thread import LearnerThread
from rlframe.execution.plan.context import (
    AGENT_STEPS_TRAINED_COUNTER,
    LEARNER_INFO,
    STEPS_SAMPLED_COUNTER,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    _get_shared_metrics,
    _NextValueNotReady,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rlframe.execution.learner.inline import LearnerResult

    Learner = InlineLearner | LearnerThread


def make_learner(
    workers: Any, config: Mapping[str, Any], after_train_step: Callable[..., Any] | None = None
) -> Learner:
    """Returns what learns from the batches in its `inqueue`: a thread, or, without remote workers, nothing of the kind.

    Args:
        workers: The WorkerSet.
        config: Reads `minibatch_buffer_size`, `num_sgd_iter`, `learner_queue_size`, `learner_queue_timeout`,
            `num_multi_gpu_tower_stacks` (above 1, batches are unpacked ahead by a thread of their own),
            `broadcast_interval`, and `after_train_step`: `fn(workers, config) -> fn((env steps, infos))`.
        after_train_step: Stands in where the config says none.
    """
    make_after_step = config["after_train_step"] or after_train_step
    after_step = None if make_after_step is None else make_after_step(workers, config)
    local, passes = workers.local_worker(), (config["minibatch_buffer_size"], config["num_sgd_iter"])
    if not workers.remote_workers():
        return InlineLearner(local, *passes, after_step=after_step)
    queues = (config["learner_queue_size"], config["learner_queue_timeout"])
    stacks, every = config["num_multi_gpu_tower_stacks"], config["broadcast_interval"]
    learner = (
        MultiGPULearnerThread(local, stacks, *passes, *queues, snapshot_every=every, after_step=after_step)
        if stacks > 1
        else LearnerThread(local, *passes, *queues, snapshot_every=every, after_step=after_step)
    )
    learner.end_with(workers)
    return learner


class FeedLearner:
    """Puts train batches into a learner's queue; only one may wait there until the learner has done its first step.

    Takes a train batch; gives it on once it is in the queue, and not-ready markers before. The first step may take
    seconds, in which TensorFlow traces or a GPU loads its kernels. Meanwhile the queue would fill up with what the very
    first policy sampled, and the next steps would be on that.

    Args:
        learner: The learner.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner, self.queue = learner, learner.inqueue

    def plan_args(self) -> str:
        """Returns the capacity, for reports."""
        return f"queue of {self.queue.maxsize or 'any size'}"

    def __call__(self, item: Any) -> Any:
        """Returns the item, or a not-ready marker while the queue is full, or waits for the first step."""
        if not (self.learner.has_learned or self.queue.empty()):
            sleep(QUEUE_WAIT_S)
            return _NextValueNotReady()
        try:
            self.queue.put(item, timeout=QUEUE_WAIT_S)  # a program's own code may have filled it
        except Full:
            return _NextValueNotReady()
        return item


class BroadcastLearned:
    """Counts what was learned, and has each worker get the new weights before it samples again.

    Takes a `LearnerResult`; gives `(env steps, {policy id: learner info})`. Counts `num_steps_trained`,
    `num_steps_trained_this_iter` and `num_agent_steps_trained`; sets `info["learner"]`.

    Args:
        workers: The WorkerSet.
        learner: The learner whose results these are; it is told the count of env steps.
    """

    def __init__(self, workers: Any, learner: Learner) -> None:
        self.workers = workers
        self.learner = learner

    def __call__(self, learned: LearnerResult) -> tuple[int, dict[str, Any]]:
        """Counts, tells and sends."""
        metrics = _get_shared_metrics()
        counters = metrics.counters
        counters[STEPS_TRAINED_COUNTER] += learned.env_steps
        counters[STEPS_TRAINED_THIS_ITER_COUNTER] += learned.env_steps
        counters[AGENT_STEPS_TRAINED_COUNTER] += learned.agent_steps
        metrics.info[LEARNER_INFO] = learned.infos
        global_vars = {"timestep": counters[STEPS_SAMPLED_COUNTER]}
        self.learner.set_global_vars(global_vars)
        if learned.weights is not None:
            self.workers.weights_changed(list(learned.weights), global_vars, weights=learned.weights)
        return learned.env_steps, learned.infos
