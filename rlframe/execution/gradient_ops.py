"""Operators for gradients that are computed in one place and applied in another."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.execution.plan.context import (
    AGENT_STEPS_SAMPLED_COUNTER,
    AGENT_STEPS_TRAINED_COUNTER,
    APPLY_GRADS_TIMER,
    COMPUTE_GRADS_TIMER,
    GRAD_WAIT_TIMER,
    LEARNER_INFO,
    STEPS_SAMPLED_COUNTER,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    WORKER_UPDATE_TIMER,
    LocalRollouts,
    MetricsContext,
    SharedMetrics,
    _check_sample_batch_type,
    _get_shared_metrics,
    agent_steps,
)
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.plan.remote_sources import AsyncRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rlframe.execution.plan.context import Batch


def _sample_gradients(worker: Any) -> tuple[Any, int, int]:
    """Runs on a worker: samples a batch, and returns `((gradients, info), env steps, agent steps)`."""
    batch = worker.sample()
    return worker.compute_gradients(batch), batch.count, agent_steps(batch)


def _request_gradients(worker: Any) -> Any:
    return worker.apply.remote(_sample_gradients)


class _LocalGradients(LocalRollouts):
    plan_name = "AsyncGradients"

    def __next__(self) -> Any:
        _get_shared_metrics().check_steps_limit()
        return _sample_gradients(self._workers.local_worker())


class _RemoteGradients(AsyncRequests):
    """Gradients of remote workers as they come."""

    def __init__(self, workers: Any, timeout_s: float | None) -> None:
        super().__init__(workers.remote_workers, _request_gradients, 1, timeout_s)

    def __next__(self) -> Any:
        _get_shared_metrics().check_steps_limit()
        return super().__next__()


class _RecordGradients:
    """((gradients, info), env and agent steps) -> (gradients, env steps); counts them, notes the learner's info."""

    def __init__(self) -> None:
        self._fetch_started = perf_counter()

    def _on_fetch_start(self) -> None:
        self._fetch_started = perf_counter()

    def __call__(self, item: Any) -> tuple[Any, int]:
        (gradients, info), count, of_agents = item
        metrics = _get_shared_metrics()
        metrics.counters[STEPS_SAMPLED_COUNTER] += count
        metrics.counters[AGENT_STEPS_SAMPLED_COUNTER] += of_agents
        metrics.counters[AGENT_STEPS_TRAINED_COUNTER] += of_agents
        metrics.info[LEARNER_INFO] = by_policy(info)
        metrics.timers[GRAD_WAIT_TIMER].push(perf_counter() - self._fetch_started)
        return gradients, count


def by_policy(info: dict[str, Any]) -> dict[str, Any]:
    """Returns learner info keyed by policy id, also where a worker with one policy returned its info bare."""
    return {DEFAULT_POLICY_ID: info} if "learner_stats" in info else info


def AsyncGradients(workers: Any) -> LocalIterator[tuple[Any, int]]:
    """Lets every worker sample and compute gradients, and hands them on as they come.

    Gives `(gradients, env steps)`. Counts `num_steps_sampled`, `num_agent_steps_sampled` and `num_agent_steps_trained`;
    sets `info["learner"]`; times `grad_wait`. Without remote workers the local worker does it.

    Args:
        workers: The WorkerSet.
    """
    if workers.remote_workers():
        workers.sync_weights()
        source: Callable[..., Any] = partial(_RemoteGradients, workers)
    else:
        source = partial(_LocalGradients, workers)
    gradients: LocalIterator[Any] = LocalIterator(source, SharedMetrics(), name="AsyncGradients")
    return gradients.for_each(_RecordGradients())


class ComputeGradients:
    """Computes gradients on the local worker.

    Takes a SampleBatch or MultiAgentBatch; gives `(gradients, env steps)`. Counts `num_agent_steps_trained`; sets
    `info["learner"]`; times `compute_grads`.

    Args:
        workers: The WorkerSet.
    """

    def __init__(self, workers: Any) -> None:
        self.workers = workers

    def __call__(self, batch: Batch) -> tuple[Any, int]:
        """Returns the gradients and the env steps they were made from."""
        _check_sample_batch_type(batch)
        metrics = _get_shared_metrics()
        with metrics.timers[COMPUTE_GRADS_TIMER]:
            gradients, info = self.workers.local_worker().compute_gradients(batch)
        metrics.counters[AGENT_STEPS_TRAINED_COUNTER] += agent_steps(batch)
        metrics.info[LEARNER_INFO] = by_policy(info)
        return gradients, batch.count


class ApplyGradients:
    """Applies gradients to the local worker's policies, and sends the new weights to remote workers.

    Takes `(gradients, env steps)` and gives it on. Counts `num_steps_trained` and `num_steps_trained_this_iter`; times
    `apply_grad` and `update`.

    Args:
        workers: The WorkerSet.
        policies: Ids of the policies whose weights are sent; all that are trained when empty.
        update_all: Whether all remote workers get the weights, or only the one that the item came from.
    """

    def __init__(self, workers: Any, policies: Sequence[str] = (), update_all: bool = True) -> None:
        self.workers = workers
        self.policies = policies
        self.update_all = update_all

    def plan_args(self) -> str:
        """Returns whose weights are updated, for reports."""
        return "update all" if self.update_all else "update the source"

    def __call__(self, item: tuple[Any, int]) -> tuple[Any, int]:
        """Applies the gradients and returns the item."""
        if not isinstance(item, tuple) or len(item) != 2:
            raise ValueError(f"Got an item of type {type(item).__name__}, wanted a tuple (gradients, env steps)")
        gradients, count = item
        metrics = _get_shared_metrics()
        metrics.counters[STEPS_TRAINED_COUNTER] += count
        metrics.counters[STEPS_TRAINED_THIS_ITER_COUNTER] += count
        local = self.workers.local_worker()
        timer = metrics.timers[APPLY_GRADS_TIMER]
        with timer:
            local.apply_gradients(gradients)
        timer.push_units_processed(count)
        global_vars = {"timestep": metrics.counters[STEPS_SAMPLED_COUNTER]}
        local.set_global_vars(global_vars)
        if self.workers.remote_workers():
            with metrics.timers[WORKER_UPDATE_TIMER]:
                self._send_weights(metrics, local, global_vars)
        return item

    def _send_weights(self, metrics: MetricsContext, local: Any, global_vars: dict[str, int]) -> None:
        policies = list(self.policies or local.policies_to_train)
        if self.update_all:
            self.workers.sync_weights(policies=policies, global_vars=global_vars)
            return
        if metrics.current_actor is None:
            raise ValueError(
                "Got gradients that no remote worker produced, wanted ones gathered from workers; "
                "use update_all=True, or AsyncGradients as the source"
            )
        metrics.current_actor.set_weights.remote(local.get_weights(policies), global_vars)


class AverageGradients:
    """Averages the gradients of several workers.

    Takes a list of `(gradients, env steps)`; gives one such tuple with the mean of the gradients and the sum of steps.
    A gradient that is None counts as zero, unless it is None everywhere.
    """

    def __call__(self, gradients: Sequence[tuple[Any, int]]) -> tuple[Any, int]:
        """Returns the mean gradients and the sum of the env steps."""
        if not gradients:
            raise ValueError("Got an empty list of gradients, wanted at least one (gradients, env steps)")
        return _average([grads for grads, _ in gradients]), sum(count for _, count in gradients)


def _average(values: Sequence[Any]) -> Any:
    """Averages arrays, or lists, tuples and dicts of them, element by element."""
    first = values[0]
    if isinstance(first, dict):
        pids = dict.fromkeys(pid for value in values for pid in value)
        return {pid: _average([value[pid] for value in values if pid in value]) for pid in pids}
    if isinstance(first, (list, tuple)):
        return [_average(parts) for parts in zip(*values, strict=True)]
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) / len(values) if known else None
