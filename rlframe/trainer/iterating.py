"""Trainers that train by a method, `training_iteration` or `training_step`, instead of an execution plan."""

from __future__ import annotations

import inspect
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.execution.plan.context import MetricsContext
    from rlframe.trainer.training_iteration import Iterations
    from rlframe.utils.typing import ResultDict

#: Names of the method, the one that is called where a class has both first.
METHODS = ("training_step", "training_iteration")


class _OfPlan:
    """An attribute that is looked up in the metrics of the trainer's plan; a program may put its own in its place."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __get__(self, trainer: Any, cls: type) -> Any:
        if trainer is None:
            return self
        if trainer.train_exec_impl is None:
            raise ConfigError(f"self.{self._part}: there is no plan yet; wanted after super().setup(config), or later")
        metrics: MetricsContext = trainer.train_exec_impl.shared_metrics.get()
        from rlframe.trainer.training_iteration import Counters  # for such a method: plans count in the metrics

        return Counters(metrics.counters) if self._part == "_counters" else metrics.timers


class IterationNumber(int):
    """How often a trainer trained, as `Trainable.training_iteration` says it; called, it trains one item."""

    _trainer: Any

    def __call__(self) -> ResultDict:
        """Trains one item of the algorithm's own plan; see `IteratingMixin.training_step`."""
        return _train_one_item(self._trainer)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class _TrainingIteration:
    """Both that Ray means by `training_iteration`: a trainer's number, and what a subclass calls by `super()`."""

    #: `inspect` takes what has `__get__` for a builtin.
    __signature__ = inspect.Signature([inspect.Parameter("trainer", inspect.Parameter.POSITIONAL_OR_KEYWORD)])

    def __get__(self, trainer: Any, cls: type) -> Any:
        if trainer is None:
            return self
        number = IterationNumber(trainer.iteration)
        number._trainer = trainer
        return number

    def __call__(self, trainer: Any) -> ResultDict:
        """Does what `super().training_iteration()` does, for a class that names the other: `PGTrainer.training_…`."""
        return _train_one_item(trainer)


class IteratingMixin:
    """What a trainer has for the sake of a `training_iteration` or `training_step` of its own."""

    train_exec_impl: Any
    config: dict[str, Any]
    _iterations: Iterations | None = None
    #: Totals by name, 0 until first touched: those of the plan, and those of a program's own.
    _counters: Any = _OfPlan("_counters")
    #: Timers by name, made when they are first used as context managers.
    _timers: Any = _OfPlan("_timers")
    training_iteration: Any = _TrainingIteration()

    @cached_property
    def remote_requests_in_flight(self) -> defaultdict[Any, set[Any]]:
        """Calls under way, by remote worker: for `asynchronous_parallel_requests` in a method of one's own."""
        return defaultdict(set)

    @property
    def _by_agent_steps(self) -> bool:
        """Whether `multiagent.count_steps_by` is "agent_steps"."""
        return bool(self.config["multiagent"]["count_steps_by"] == "agent_steps")

    def training_step(self) -> ResultDict:
        """Hook: trains once; a subclass that has it (or `training_iteration`) trains by it, and not by the plan.

        `train()` calls it until an iteration is over, as `timesteps_per_iteration` and `min_iter_time_s` say, and
        reports episodes, counters and timers as for plans. Where a class has an `execution_plan`, too, the one of the
        more derived class trains; of the same class, this method. `_disable_execution_plan_api=False` has the plan
        train in any case.

        Here it trains one item of the algorithm's own plan, for `super().training_step()`.

        Returns:
            `{policy id: learner info}`, the result's `info["learner"]`; an empty dict where nothing was learned, which
            leaves that as it was. An entry `custom_metrics` joins those of the result.

        Raises:
            ConfigError: If it is called on a trainer that trains by its plan.
        """
        return _train_one_item(self)


def _train_one_item(trainer: Any) -> ResultDict:
    if trainer._iterations is None:
        raise ConfigError(
            f"{type(trainer).__name__} trains by its execution plan, of which training_iteration() and training_step() "
            "are no part; call train(), or override one of them in a subclass"
        )
    return trainer._iterations.of_algorithm()  # type: ignore[no-any-return]


def training_method(trainer: Any) -> str | None:
    """Returns the name of the method that a trainer trains by; None where its execution plan does.

    Args:
        trainer: Of its classes the most derived one decides that has either.
    """
    if not trainer.config.get("_disable_execution_plan_api", True):
        return None
    for level in type(trainer).__mro__:
        own = vars(level)
        # Ray derives a class from that of an actor, and puts all its methods into it, inherited ones too.
        skipped = level is IteratingMixin or "__ray_actor_class__" in own
        if skipped or not any(name in own for name in (*METHODS, "execution_plan")):
            continue
        return next((name for name in METHODS if name in own), None)
    return None


def trains_by_own_code(trainer: Any) -> bool:
    """Returns whether a trainer's plan, or what it has in place of one, is the program's, which may read the rows."""
    ways = (trainer.execution_plan, type(trainer).step)
    own = any(not str(getattr(way, "__module__", None)).startswith("rlframe.") for way in ways)
    return own or training_method(trainer) is not None


def learns_in_workers(trainer: Any) -> bool:
    """Returns whether a program's own plan or `step` has workers compute gradients, by the names that it reads."""
    from rlframe.evaluation.code_names import OF_LEARNING_WORKERS, code_reads_any_of  # with the sampling around it

    ways = (trainer.execution_plan, type(trainer).step, *(getattr(type(trainer), name, None) for name in METHODS))
    own = [way for way in ways if not str(getattr(way, "__module__", "rlframe.")).startswith("rlframe.")]
    return code_reads_any_of([getattr(way, "__func__", way) for way in own], OF_LEARNING_WORKERS)
