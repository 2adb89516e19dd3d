"""Operators that decide when an iteration ends, and make its result."""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.evaluation.metrics import RolloutMetrics, collect_episodes, part_estimates, summarize_episodes
from rlframe.execution.plan.context import (
    AGENT_STEPS_SAMPLED_COUNTER,
    CUSTOM_METRICS_INFO,
    STEPS_SAMPLED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    MetricsContext,
    OncePerTimestepsElapsed,
    _get_shared_metrics,
)
from rlframe.execution.plan.local_iterator import LocalIterator, as_local_iterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


#: Env steps of an iteration where neither a batch nor the clock gives it a sensible length.
SYNCHRONOUS_ITER_STEPS = 4000


#: Whether plans that are being built give a result for each item; see `results_of_items`.
_OF_ITEMS: ContextVar[bool] = ContextVar("results_of_items", default=False)


@contextmanager
def results_of_items() -> Iterator[None]:
    """Plans that are built within give a result for each item that they train, without episodes.

    For plans that are a part of something else, which reports the episodes: each can be asked for once.
    """
    token = _OF_ITEMS.set(True)
    try:
        yield
    finally:
        _OF_ITEMS.reset(token)


class OncePerTimeInterval:
    """True once in every `delay` seconds; the first item passes. For `.filter()`.

    Args:
        delay: Least number of seconds between two items that pass; 0 or None lets all pass.
    """

    def __init__(self, delay: float | None) -> None:
        self.delay = delay or 0.0
        self._last_s: float | None = None

    def plan_args(self) -> str:
        """Returns the interval, for reports."""
        return f"{self.delay:g} s"

    def __call__(self, _item: Any) -> bool:
        """Returns whether enough time has passed since this was last true."""
        if self.delay <= 0.0:
            return True
        now = monotonic()
        if self._last_s is not None and now - self._last_s <= self.delay:
            return False
        self._last_s = now
        return True

    def get_state(self) -> dict[str, Any]:
        """Returns the seconds since the last item passed: clocks of two processes cannot be compared."""
        return {"elapsed_s": None if self._last_s is None else monotonic() - self._last_s}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on as if those seconds had passed since the last item."""
        elapsed = state["elapsed_s"]
        self._last_s = None if elapsed is None else monotonic() - float(elapsed)


class CollectMetrics:
    """Makes the result of an iteration: episodes of all workers, counters, timers, and what operators noted.

    Takes any item; gives a result dict. Reads all counters and timers; sets `num_steps_trained_this_iter` back to 0.

    Args:
        workers: The WorkerSet.
        min_history: Episodes to summarise when fewer are new; older ones fill up.
        timeout_seconds: How long to wait for remote workers; what comes later is counted in the next result.
        selected_workers: Remote workers to ask, instead of all.
        keep_custom_metrics: Whether custom metrics are lists of the episodes' values.
    """

    def __init__(
        self,
        workers: Any,
        min_history: int = 100,
        timeout_seconds: float = 180,
        selected_workers: Sequence[Any] | None = None,
        keep_custom_metrics: bool = False,
    ) -> None:
        self.workers = workers
        self.min_history = min_history
        self.timeout_seconds = timeout_seconds
        self.selected_workers = selected_workers
        self.keep_custom_metrics = keep_custom_metrics
        self.episode_history: list[RolloutMetrics] = []
        self.to_be_collected: list[Any] = []
        self._custom_keys: list[str] = []
        self._reported_steps = 0

    def plan_args(self) -> str:
        """Returns the smoothing window, for reports."""
        return f"{self.min_history} episodes"

    def __call__(self, _item: Any) -> dict[str, Any]:
        """Returns the result of the iteration that ends here."""
        remote = self.workers.remote_workers()
        new, self.to_be_collected = collect_episodes(
            self.workers.local_worker(), self.selected_workers or remote, self.to_be_collected, self.timeout_seconds
        )
        selected = remote if not self.selected_workers else self.selected_workers
        for worker in remote:
            if worker not in selected:
                worker.get_metrics.remote()  # what nobody reports must not pile up there
        new, estimates = part_estimates(new)
        missing = self.min_history - len(new)
        window = (self.episode_history[-missing:] if missing > 0 else []) + new
        self.episode_history = (self.episode_history + new)[-self.min_history :] if self.min_history > 0 else []
        result = summarize_episodes(window, new, estimates, keep_custom_metrics=self.keep_custom_metrics)
        metrics = _get_shared_metrics()
        result["custom_metrics"] = self._with_stable_keys(
            {**result["custom_metrics"], **metrics.info.get(CUSTOM_METRICS_INFO, {})}
        )
        sampled = metrics.counters[STEPS_SAMPLED_COUNTER]
        result.update(
            num_healthy_workers=len(remote),
            timesteps_total=sampled,
            timesteps_this_iter=sampled - self._reported_steps,
            agent_timesteps_total=metrics.counters[AGENT_STEPS_SAMPLED_COUNTER],
            timers=_timers(metrics),
            info=_info(metrics),
        )
        self._reported_steps = sampled
        metrics.counters[STEPS_TRAINED_THIS_ITER_COUNTER] = 0
        metrics.info.pop(CUSTOM_METRICS_INFO, None)
        return result

    def _with_stable_keys(self, custom: dict[str, Any]) -> dict[str, Any]:
        """Adds NaN under every name that was reported before: a table must not lose a column for a quiet iteration."""
        self._custom_keys += [key for key in custom if key not in self._custom_keys]
        return {key: custom.get(key, [] if self.keep_custom_metrics else math.nan) for key in self._custom_keys}

    def get_state(self) -> dict[str, Any]:
        """Returns the episodes in the window, the names of custom metrics and the steps reported so far."""
        return {
            "episode_history": [episode.to_state() for episode in self.episode_history],
            "custom_keys": list(self._custom_keys),
            "reported_steps": self._reported_steps,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        self.episode_history = [RolloutMetrics.from_state(episode) for episode in state["episode_history"]]
        self._custom_keys = list(state["custom_keys"])
        self._reported_steps = int(state["reported_steps"])


def _timers(metrics: MetricsContext) -> dict[str, float]:
    timers = {}
    for name, timer in metrics.timers.items():
        timers[f"{name}_time_ms"] = round(timer.mean * 1000, 3)
        if timer.has_units_processed():
            timers[f"{name}_throughput"] = round(timer.mean_throughput, 3)
    return timers


def _info(metrics: MetricsContext) -> dict[str, Any]:
    from rlframe.utils.metrics.learner_info import as_learner_infos

    info = {key: value for key, value in metrics.info.items() if key != CUSTOM_METRICS_INFO}
    info["learner"] = as_learner_infos(info.get("learner", {}))
    info.update(metrics.counters)
    return info


def _result_of_item(_item: Any) -> dict[str, Any]:
    metrics = _get_shared_metrics()
    return {"timers": _timers(metrics), "info": _info(metrics)}


def StandardMetricsReporting(
    train_op: Any,
    workers: Any,
    config: Mapping[str, Any],
    selected_workers: Sequence[Any] | None = None,
    by_steps_trained: bool = False,
    *,
    asynchronous_iter_time_s: float | None = 10,
) -> LocalIterator[dict[str, Any]]:
    """Runs the plan, and gives one result dict per iteration; never a not-ready marker.

    An iteration ends with the first item at which `timesteps_per_iteration` env steps have passed since that was last
    so, provided that `min_iter_time_s` seconds have passed since the last result; in any case where `steps_limit` of
    the metrics is reached. Where `min_iter_time_s` is None, as in plans whose remote workers sample on their own, the
    clock is that of these workers: without any, iterations are the same work on every machine.

    Args:
        train_op: The plan, an iterator of any kind; its items are dropped.
        workers: The WorkerSet whose episodes are reported.
        config: Reads `timesteps_per_iteration`, `min_iter_time_s`, `metrics_smoothing_episodes`,
            `collect_metrics_timeout` and `keep_per_episode_custom_metrics`.
        selected_workers: Remote workers whose episodes are reported, instead of all.
        by_steps_trained: Count `timesteps_per_iteration` in steps trained instead of steps sampled.
        asynchronous_iter_time_s: What `min_iter_time_s=None` means with remote workers; without, or with None here as
            in plans that sample synchronously, it means 0, and `timesteps_per_iteration=0` `SYNCHRONOUS_ITER_STEPS`.
    """
    if _OF_ITEMS.get():
        return as_local_iterator(train_op).for_each(_result_of_item).skip_not_ready()
    seconds, steps = config["min_iter_time_s"], config["timesteps_per_iteration"]
    if seconds is None and asynchronous_iter_time_s is not None and workers.remote_workers():
        seconds = asynchronous_iter_time_s
    elif seconds is None:
        steps = steps or SYNCHRONOUS_ITER_STEPS
    collect = CollectMetrics(
        workers,
        min_history=config["metrics_smoothing_episodes"],
        timeout_seconds=config["collect_metrics_timeout"],
        selected_workers=selected_workers,
        keep_custom_metrics=bool(config.get("keep_per_episode_custom_metrics")),
    )
    return (
        as_local_iterator(train_op)
        .filter(OncePerTimestepsElapsed(steps, by_steps_trained))
        .filter(OncePerTimeInterval(seconds))
        .for_each(collect)
        .finish_at_limit(collect)
    )
