"""What every plan has: counters, timers, the context through which operators reach them; local rollouts."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.execution.plan.item_state import pack_item, unpack_item
from rlframe.utils.timer import TimerStat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Batch = SampleBatch | MultiAgentBatch

# Counters.
STEPS_SAMPLED_COUNTER = "num_steps_sampled"
AGENT_STEPS_SAMPLED_COUNTER = "num_agent_steps_sampled"
STEPS_TRAINED_COUNTER = "num_steps_trained"
STEPS_TRAINED_THIS_ITER_COUNTER = "num_steps_trained_this_iter"
AGENT_STEPS_TRAINED_COUNTER = "num_agent_steps_trained"
LAST_TARGET_UPDATE_TS = "last_target_update_ts"
NUM_TARGET_UPDATES = "num_target_updates"

# Timers.
SAMPLE_TIMER = "sample"
GRAD_WAIT_TIMER = "grad_wait"
COMPUTE_GRADS_TIMER = "compute_grads"
APPLY_GRADS_TIMER = "apply_grad"
WORKER_UPDATE_TIMER = "update"
LEARN_ON_BATCH_TIMER = "learn"
LOAD_BATCH_TIMER = "load"

# Keys of `MetricsContext.info`.
LEARNER_INFO = "learner"
CUSTOM_METRICS_INFO = "custom_metrics"


class _NextValueNotReady(Exception):  # noqa: N818 - the name under which RLlib 1.x programs know it
    """The marker an iterator hands on when it has no item yet; it is passed as a value and never raised.

    Attributes:
        ends_waiting: Whether the end of a plan hands it on, too, instead of waiting for an item.
    """

    ends_waiting = False


class StepsLimitReached(Exception):  # noqa: N818 - no fault: it ends an iteration
    """Raised by a source of samples that is asked for more than `MetricsContext.steps_limit` allows.

    It passes through the plan without changing it, so that a later pull goes on where this one was.
    """


class MetricsContext:
    """Counters, timers and values shared by all operators of one plan.

    Attributes:
        counters: Running totals by name, 0 until first touched.
        timers: One `TimerStat` by name, made on first use.
        info: Anything an operator wants in the result's `info`, such as `info["learner"]`.
        current_actor: The remote actor that produced the item now in flight, or None.
        steps_limit: Env steps after which no further round is sampled, so that the iteration ends; None for no limit.
        env_steps_handed_out: What `synchronous_parallel_sample` has returned, which its caller counts.
    """

    def __init__(self) -> None:
        self.counters: defaultdict[str, int] = defaultdict(int)
        self.timers: defaultdict[str, TimerStat] = defaultdict(TimerStat)
        self.info: dict[str, Any] = {}
        self.current_actor: Any = None
        self.steps_limit: int | None = None
        self.env_steps_handed_out = 0

    def check_steps_limit(self) -> None:
        """Raises StepsLimitReached where no further round is to be sampled; called before each."""
        if self.steps_limit is not None and self.counters[STEPS_SAMPLED_COUNTER] >= self.steps_limit:
            raise StepsLimitReached

    def absorb(self, other: MetricsContext) -> None:
        """Adds what `other` has counted, timed and noted so far to this context."""
        for name, count in other.counters.items():
            self.counters[name] += count
        self.timers.update(other.timers)
        self.info.update(other.info)
        self.current_actor = self.current_actor or other.current_actor

    def get_state(self) -> dict[str, Any]:
        """Returns counters and info as plain state. Timers are left out: they describe this process only."""
        return {
            # Those of programs may be fractions.
            "counters": {
                name: float(count) if isinstance(count, float) else int(count) for name, count in self.counters.items()
            },
            "info": pack_item(self.info, on_unknown="drop"),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes counters and info back from `get_state()`."""
        self.counters.clear()
        self.counters.update(state["counters"])
        self.info.clear()
        self.info.update(unpack_item(state["info"]))

    save, restore = get_state, set_state  # Ray's names, which trainers write into states of their own


class SharedMetrics:
    """A holder through which joined iterators come to share one `MetricsContext`.

    Args:
        metrics: The context to hold; a new one when None.
        parents: Holders that must follow this one. What they have counted so far is added up.
    """

    def __init__(self, metrics: MetricsContext | None = None, parents: Sequence[SharedMetrics] = ()) -> None:
        self._parents = tuple(parents)
        self._metrics = metrics or MetricsContext()
        seen: set[int] = set()
        for parent in self._parents:
            context = parent.get()
            if id(context) not in seen:
                seen.add(id(context))
                self._metrics.absorb(context)
        self.set(self._metrics)

    def get(self) -> MetricsContext:
        """Returns the context held now."""
        return self._metrics

    def set(self, metrics: MetricsContext) -> None:
        """Holds `metrics` from now on, here and in all parents."""
        self._metrics = metrics
        for parent in self._parents:
            parent.set(metrics)


class ActiveContext(threading.local):
    """The context of the plan that this thread is pulling an item through; None outside of any plan."""

    _metrics: MetricsContext | None = None

    @property
    def metrics(self) -> MetricsContext | None:
        """The context itself."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: MetricsContext | None) -> None:
        self._metrics = metrics
        ray_iterators = sys.modules.get("ray.util.iter")
        if ray_iterators is not None:  # its LocalIterator.get_metrics() is what operators of Ray 1.x ask
            ray_iterators.LocalIterator.thread_local.metrics = metrics


ACTIVE_CONTEXT = ActiveContext()


def _get_shared_metrics() -> MetricsContext:
    """Returns the context of the running plan.

    Raises:
        ValueError: If no plan is running in this thread.
    """
    metrics = ACTIVE_CONTEXT.metrics
    if metrics is None:
        raise ValueError(
            "No metrics context: this must be called while an iterator pulls an item, for example inside the function "
            "given to for_each(); outside of a plan use `iterator.shared_metrics.get()`"
        )
    return metrics


def _get_global_vars() -> dict[str, int]:
    """Returns the variables that every worker is told after a train step: `{"timestep": env steps sampled}`."""
    return {"timestep": _get_shared_metrics().counters[STEPS_SAMPLED_COUNTER]}


def _check_sample_batch_type(batch: Any) -> None:
    """Raises ValueError unless `batch` is a SampleBatch or a MultiAgentBatch."""
    if not isinstance(batch, (SampleBatch, MultiAgentBatch)):
        raise ValueError(
            f"Got an item of type {type(batch).__name__}, wanted a SampleBatch or a MultiAgentBatch; "
            "check what the operator before this one returns"
        )


class OncePerTimestepsElapsed:
    """True once in every `delay_steps` env steps; for `.filter()`.

    Takes any item. Reads `num_steps_sampled`, or `num_steps_trained` with `by_steps_trained`.

    Args:
        delay_steps: Least number of env steps between two items that pass; 0 lets all pass.
        by_steps_trained: Count steps trained instead of steps sampled.
    """

    def __init__(self, delay_steps: int, by_steps_trained: bool = False) -> None:
        self.delay_steps = delay_steps or 0
        self.by_steps_trained = by_steps_trained
        self._counter = STEPS_TRAINED_COUNTER if by_steps_trained else STEPS_SAMPLED_COUNTER
        self.last_called = 0

    def plan_args(self) -> str:
        """Returns the interval, for reports."""
        return f"{self.delay_steps} steps {'trained' if self.by_steps_trained else 'sampled'}"

    def __call__(self, _item: Any) -> bool:
        """Returns whether enough steps have passed since this was last true."""
        if self.delay_steps <= 0:
            return True
        now = _get_shared_metrics().counters[self._counter]
        if now - self.last_called < self.delay_steps:
            return False
        self.last_called = now
        return True

    def get_state(self) -> dict[str, Any]:
        """Returns the count at which the last item passed."""
        return {"last_called": self.last_called}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes that count back."""
        self.last_called = int(state["last_called"])


def agent_steps(batch: Batch) -> int:
    """Returns the number of agent steps in a batch: rows of all policies together."""
    return int(batch.agent_steps()) if isinstance(batch, MultiAgentBatch) else int(batch.count)


def policy_parts(local: Any, batch: Batch, policies: Sequence[str] = ()) -> list[tuple[str, SampleBatch]]:
    """Returns the ids of the policies to train, each with its rows of a batch; those without rows are left out.

    Args:
        local: The local worker.
        batch: SampleBatch or MultiAgentBatch.
        policies: Ids of the policies to train; all that are to be trained when empty.

    Raises:
        ValueError: If it cannot be told whose rows these are.
    """
    if isinstance(batch, MultiAgentBatch):
        parts = list(batch.policy_batches.items())
    elif DEFAULT_POLICY_ID in local.policy_map:
        parts = [(DEFAULT_POLICY_ID, batch)]
    elif len(local.policy_map) == 1:  # a single policy that the user named
        parts = [(pid, batch) for pid in local.policy_map]
    else:
        raise ValueError(
            f"Got a SampleBatch for the policies {sorted(local.policy_map)}, wanted a MultiAgentBatch that says "
            "which rows belong to which policy"
        )
    trains = getattr(local, "is_policy_to_train", None) or (lambda pid, _: pid in local.policies_to_train)
    # Rows of a policy that was removed meanwhile may still be on their way.
    known = [(pid, rows) for pid, rows in parts if rows.count > 0 and pid in local.policy_map]
    # They share random numbers, so the order is the worker's own: that of a batch depends on who acted first where.
    order = {pid: place for place, pid in enumerate(local.policy_map)}
    known.sort(key=lambda part: order[part[0]])
    return [(pid, rows) for pid, rows in known if (pid in policies if policies else trains(pid, rows))]


def count_sampled(batch: Batch) -> Batch:
    """Counts the steps of a batch that was sampled, and returns it."""
    counters = _get_shared_metrics().counters
    counters[STEPS_SAMPLED_COUNTER] += batch.count
    counters[AGENT_STEPS_SAMPLED_COUNTER] += agent_steps(batch)
    return batch


class LocalRollouts:
    """Batches of the local worker."""

    plan_name = "ParallelRollouts"

    def __init__(self, workers: Any) -> None:
        self._workers, self._local = workers, workers.local_worker()

    def plan_args(self) -> str:
        """Returns who samples, for reports."""
        return "local worker"

    def __iter__(self) -> LocalRollouts:
        return self

    def __next__(self) -> Any:
        _get_shared_metrics().check_steps_limit()
        return count_sampled(self._local.sample())


def concat(batches: Sequence[Batch]) -> Batch:
    """Returns one batch of several; of one, itself."""
    if len(batches) == 1:
        return batches[0]
    joined: Batch = SampleBatch.concat_samples(batches)
    return joined
