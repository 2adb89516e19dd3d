"""The plan of a trainer that trains by a `training_iteration` (or `training_step`) of a program's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from rlframe.execution.iteration_ops import learner_steps
from rlframe.execution.metric_ops import StandardMetricsReporting, results_of_items
from rlframe.execution.plan.context import (
    CUSTOM_METRICS_INFO,
    LEARNER_INFO,
    STEPS_SAMPLED_COUNTER,
    STEPS_TRAINED_COUNTER,
    STEPS_TRAINED_THIS_ITER_COUNTER,
    MetricsContext,
    SharedMetrics,
    _get_shared_metrics,
)
from rlframe.execution.plan.local_iterator import LocalIterator, in_context_of
from rlframe.utils.errors import ConfigError
from rlframe.utils.metrics.counter_names import (
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_TRAINED,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_THIS_ITER,
)

if TYPE_CHECKING:
    from rlframe.utils.typing import ResultDict

#: What RLlib has called counters of the plan since 1.11.
OTHER_NAMES = {
    NUM_ENV_STEPS_SAMPLED: STEPS_SAMPLED_COUNTER,
    NUM_ENV_STEPS_TRAINED: STEPS_TRAINED_COUNTER,
    NUM_ENV_STEPS_TRAINED_THIS_ITER: STEPS_TRAINED_THIS_ITER_COUNTER,
}
_IN_RESULTS = (NUM_ENV_STEPS_SAMPLED, NUM_AGENT_STEPS_SAMPLED, NUM_ENV_STEPS_TRAINED, NUM_AGENT_STEPS_TRAINED)
#: Entries of what the method returns that are no learner info, and what the metrics call them.
_NO_LEARNER_INFO = {"custom_metrics": CUSTOM_METRICS_INFO}


class Counters(MutableMapping[str, int]):
    """The plan's counters under their names and RLlib's newer ones; 0 where nothing was counted.

    Args:
        counters: The plan's own.
    """

    def __init__(self, counters: MutableMapping[str, int]) -> None:
        self._counters = counters

    def __getitem__(self, name: str) -> int:
        return self._counters.get(OTHER_NAMES.get(name, name), 0)

    def __setitem__(self, name: str, count: int) -> None:
        self._counters[OTHER_NAMES.get(name, name)] = count

    def __delitem__(self, name: str) -> None:
        del self._counters[OTHER_NAMES.get(name, name)]

    def __contains__(self, name: object) -> bool:
        return any(name == counted for counted in self)

    def __iter__(self) -> Iterator[str]:
        yield from self._counters
        yield from (name for name, own in OTHER_NAMES.items() if own in self._counters)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Counters({dict(self)})"


def training_plan(trainer: Any, method: str) -> LocalIterator[Any]:
    """Returns the plan of a trainer that trains by a method: it calls the method, and reports as all plans do."""
    config = trainer.config
    shared = SharedMetrics()
    trainer._iterations = iterations = Iterations(trainer, method, shared)
    items: LocalIterator[Any] = LocalIterator(lambda: iterations, shared, name=method)
    results = StandardMetricsReporting(items, trainer.workers, config, asynchronous_iter_time_s=None)
    return results.for_each(_with_other_names)


def _with_other_names(result: dict[str, Any]) -> dict[str, Any]:
    """Adds the counters under RLlib's newer names, where results have had them since 1.11."""
    counted = dict(_get_shared_metrics().counters)
    if STEPS_TRAINED_THIS_ITER_COUNTER in counted:  # set back to 0 by now, for the next iteration
        counted[STEPS_TRAINED_THIS_ITER_COUNTER] = result["info"].get(STEPS_TRAINED_THIS_ITER_COUNTER, 0)
    counters = Counters(counted)
    result["info"].update({name: counters[name] for name in OTHER_NAMES if name in counters})
    result["counters"] = dict(counters)
    result.update({name: counters[name] for name in _IN_RESULTS})
    return result


class Iterations:
    """Source of a plan: each item is one call of the trainer's method. Sets `info["learner"]`.

    Args:
        trainer: The trainer.
        method: Name of its method.
        shared: Holds the plan's metrics.
    """

    def __init__(self, trainer: Any, method: str, shared: SharedMetrics) -> None:
        self._trainer, self.plan_name, self._shared = trainer, method, shared
        self._of_algorithm: LocalIterator[Any] | None = None
        config = trainer.config
        self._ends_by_steps = bool(config["timesteps_per_iteration"]) or config["min_iter_time_s"] is None

    def __iter__(self) -> Iterations:
        return self

    def __next__(self) -> Any:
        metrics = _get_shared_metrics()
        metrics.check_steps_limit()
        before, metrics.env_steps_handed_out = metrics.counters[STEPS_SAMPLED_COUNTER], 0
        try:
            made = getattr(self._trainer, self.plan_name)()
        except StopIteration as error:  # else a fault in the method would look like the end of the plan
            raise RuntimeError(f"{self.plan_name} raised StopIteration; return {{}} where there is nothing") from error
        self._check(made, metrics, before)
        for name, noted in _NO_LEARNER_INFO.items():
            if name in made:
                metrics.info[noted] = made[name]
        learned = {key: info for key, info in made.items() if key not in _NO_LEARNER_INFO}
        if learned:
            metrics.info[LEARNER_INFO] = learned
        return made

    def _check(self, made: Any, metrics: MetricsContext, sampled_before: int) -> None:
        """Raises ConfigError where a method returned no dict, or counted nothing that an iteration could end by."""
        name = f"{type(self._trainer).__name__}.{self.plan_name}()"
        if not isinstance(made, Mapping):
            raise ConfigError(
                f"{name} returned {made!r:.100}, wanted a dict of learner infos by policy id, such as what "
                "train_one_step() returns, or {} where nothing was learned"
            )
        uncounted = metrics.env_steps_handed_out and metrics.counters[STEPS_SAMPLED_COUNTER] == sampled_before
        if uncounted and self._ends_by_steps:
            raise ConfigError(
                f"{name} sampled {metrics.env_steps_handed_out} env steps and counted none, so that no iteration would "
                f'end: wanted self._counters["{NUM_ENV_STEPS_SAMPLED}"] += batch.env_steps() behind '
                "synchronous_parallel_sample(), or timesteps_per_iteration=0 and min_iter_time_s=0"
            )

    def of_algorithm(self) -> ResultDict:
        """Trains one item of the algorithm's own plan, in the same metrics, and returns its learner infos."""
        with in_context_of(self._trainer):
            result = next(self._built())
        info = result.get("info", {}) if isinstance(result, Mapping) else {}
        metrics = self._shared.get()
        # What operators behind the report add, such as the state of a learner's queue.
        metrics.info.update({key: value for key, value in info.items() if key not in metrics.counters})
        return dict(info.get(LEARNER_INFO) or {})

    def _built(self) -> LocalIterator[Any]:
        if self._of_algorithm is None:
            with results_of_items():
                plan = self._trainer._plan_of_operators()
            plan.shared_metrics.set(self._shared.get())
            self._of_algorithm = plan
        return self._of_algorithm

    def get_state(self) -> dict[str, Any]:
        """Returns the positions in the algorithm's own plan, if it was asked for, and the order of minibatches."""
        plan = self._of_algorithm
        nodes = None if plan is None else plan.get_state()["nodes"]
        return {"of_algorithm": nodes, "learner_steps": learner_steps(self._trainer).get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back; positions of other operators, which other settings can mean, are left out."""
        learner_steps(self._trainer).set_state(state["learner_steps"])
        self.close()
        if state["of_algorithm"] is None:
            return
        whole = {"metrics": self._shared.get().get_state(), "nodes": state["of_algorithm"]}
        plan = self._built()
        if plan.has_operators_of(whole):
            plan.set_state(whole)
        else:
            self._trainer._goes_on_exactly = False

    def close(self) -> None:
        """Ends the threads and actors of the algorithm's own plan."""
        if self._of_algorithm is not None:
            self._of_algorithm.close()
            self._of_algorithm = None
