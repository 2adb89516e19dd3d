"""Ray Tune under this package's roof: `from rlframe import tune; tune.run("DQN", …)`.

It is Ray's own, with two additions: the names of algorithms mean those of this package, and what programs for Ray 1.x
write (`local_dir`, `loggers`, `queue_trials`, `tune.function`, …) is understood and translated.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import ray.tune

from rlframe.agents.registry import register_trainables
from rlframe.env.registry import register_env  # noqa: F401
from rlframe.trainer.resources import searching
from rlframe.tune.analysis import Analysis  # noqa: F401
from rlframe.tune.experiment import Experiment, with_present_keys  # noqa: F401
from rlframe.tune.functions import (  # noqa: F401
    checkpoint_dir,
    get_trial_dir,
    get_trial_id,
    get_trial_name,
    get_trial_resources,
    is_session_enabled,
    register_trainable,
    report,
)
from rlframe.tune.results import ExperimentAnalysis, NamesOfRay1, with_logdir
from rlframe.tune.specs import has_several_trials
from rlframe.tune.trainable import Trainable  # noqa: F401
from rlframe.tune.translate import loggers_of_experiments, printing, reserving, translate_experiments, translate_run

F = TypeVar("F", bound=Callable[..., Any])

#: Ray's names come through `__getattr__`.
__all__ = sorted(
    {
        *ray.tune.__all__,
        "Analysis",
        "Experiment",
        "ExperimentAnalysis",
        "Trainable",
        "checkpoint_dir",
        "function",
        "get_trial_dir",
        "get_trial_id",
        "get_trial_name",
        "get_trial_resources",
        "is_session_enabled",
        "register_trainable",
        "report",
        "run",
        "run_experiments",
    }
)

register_trainables()


def run(run_or_experiment: Any, name: str | None = None, **kwargs: Any) -> ExperimentAnalysis:
    """Runs trials, as `ray.tune.run` of today and of Ray 1.x.

    What is printed is a table of the trials now and then; `verbose=2` prints each result.

    Args:
        run_or_experiment: Name of an algorithm, a trainer class, a function, or an `Experiment`.
        name: The experiment's name. None takes the algorithm's, with `local_dir`, as in Ray 1.x; else Ray adds a date.
        **kwargs: Arguments of either version; old ones are translated, see `rlframe.tune.translate`.

    Returns:
        The trials' results, with the methods of both versions.

    Raises:
        ConfigError: If an old argument has no counterpart; the message names what to use.
    """
    if name is None and isinstance(run_or_experiment, str) and kwargs.get("local_dir") is not None:
        name = run_or_experiment  # the folder below local_dir, as Ray 1.x named it
    register_trainables()  # once more: ray.shutdown() forgets them
    arguments = _with_defaults(translate_run(kwargs))
    with printing(arguments), searching(has_several_trials(arguments)):
        trainable = reserving(with_present_keys(run_or_experiment), arguments)
        return ExperimentAnalysis.of(ray.tune.run(trainable, name=name, **arguments))


def run_experiments(experiments: Any, **kwargs: Any) -> list[Any]:
    """Runs several experiments, as `ray.tune.run_experiments`, and returns their trials.

    Args:
        experiments: `{name: {"run": …, "stop": …, "config": …}}` with the keys of either version, or `Experiment`s.
        **kwargs: Arguments of either version.

    Raises:
        ConfigError: If an old argument has no counterpart.
    """
    register_trainables()  # as above
    arguments = _with_defaults(translate_run(kwargs))
    arguments["callbacks"] += loggers_of_experiments(experiments)
    specs = [spec for spec in experiments.values() if isinstance(spec, dict)] if isinstance(experiments, dict) else []
    several = len(specs) > 1 or any(map(has_several_trials, specs))
    with printing(arguments), searching(several):
        trials: list[Any] = ray.tune.run_experiments(translate_experiments(experiments), **arguments)
    return with_logdir(trials)


def _with_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments that print little, and whose callbacks see trials with the names of Ray 1.x."""
    callbacks = [NamesOfRay1(), *(arguments.get("callbacks") or ())]
    return {"verbose": 1, **arguments, "callbacks": callbacks}


def function(func: F) -> F:
    """Returns a function as it is: in Ray 1.x it had to be marked inside of a config."""
    return func


#: Modules of Ray 1.x that `import ray.tune` had imported already.
_MODULES = ("analysis", "config_parser", "logger", "registry", "resources", "result", "trial", "tune", "utils")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(ray.tune, name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(dir(ray.tune)))
