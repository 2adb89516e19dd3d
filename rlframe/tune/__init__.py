"""Ray Tune under this package's roof: `from rlframe import tune; tune.run("DQN", …)`.

It is Ray's own, with two additions: the names of algorithms mean those of this package, and what programs for Ray 1.x
write (`local_dir`, `loggers`, `queue_trials`, `tune.function`, …) is understood and translated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ray.tune

from rlframe.agents.registry import register_trainables
from rlframe.tune.results import ExperimentAnalysis
from rlframe.tune.translate import translate_experiments, translate_run

F = TypeVar("F", bound=Callable[..., Any])

#: Ray's names come through `__getattr__`.
__all__ = sorted({*ray.tune.__all__, "ExperimentAnalysis", "function", "run", "run_experiments"})

register_trainables()


def run(run_or_experiment: Any, *args: Any, **kwargs: Any) -> ExperimentAnalysis:
    """Runs trials, as `ray.tune.run` of today and of Ray 1.x.

    Args:
        run_or_experiment: Name of an algorithm, a trainer class, a function, or an `Experiment`.
        *args: The experiment's name, as in Ray 1.x.
        **kwargs: Arguments of either version; old ones are translated, see `rlframe.tune.translate`.

    Returns:
        The trials' results, with the methods of both versions.

    Raises:
        ConfigError: If an old argument has no counterpart; the message names what to use.
    """
    arguments = translate_run(kwargs)
    return ExperimentAnalysis.of(ray.tune.run(run_or_experiment, *args, **arguments))


def run_experiments(experiments: Any, **kwargs: Any) -> list[Any]:
    """Runs several experiments, as `ray.tune.run_experiments`, and returns their trials.

    Args:
        experiments: `{name: {"run": …, "stop": …, "config": …}}` with the keys of either version, or `Experiment`s.
        **kwargs: Arguments of either version.

    Raises:
        ConfigError: If an old argument has no counterpart.
    """
    arguments = translate_run(kwargs)
    trials: list[Any] = ray.tune.run_experiments(translate_experiments(experiments), **arguments)
    return trials


def function(func: F) -> F:
    """Returns a function as it is: in Ray 1.x it had to be marked inside of a config."""
    return func


def __getattr__(name: str) -> Any:
    return getattr(ray.tune, name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(ray.tune)))
