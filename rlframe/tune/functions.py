"""Functions as trainables, and how they report, as in Ray 1.x.

| Then | Now |
|---|---|
| `fn(config, reporter)`, `reporter(loss=…)` | `fn(config)`, `ray.tune.report({"loss": …})` |
| `tune.report(loss=…)` | the same |
| `fn(config, checkpoint_dir=None)`, `with tune.checkpoint_dir(step) as folder:` | a `Checkpoint` beside a report |
| a checkpoint after the last report | one without a result of its own, when the function has returned |
| what it writes, by relative paths and into `get_trial_dir()`, in the trial's directory | the same |
| workers that a function starts, nothing reserved for them | reserved, as `num_workers` of the config says |
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from numbers import Number
from typing import Any

import numpy as np
import ray.tune
from ray.tune import PlacementGroupFactory
from ray.tune.result import RESULT_DUPLICATE

from rlframe.trainer.checkpoint_paths import number_by_iteration
from rlframe.trainer.resources import function_resources
from rlframe.trainer.saving import enter_trial_directory, trial_directory

_DEFAULT_METRIC = "_metric"

#: The folder that `checkpoint_dir` filled in this process, with its step, until the next report takes it along.
_waiting: list[tuple[tempfile.TemporaryDirectory[str], Any]] = []


def is_function(trainable: Any) -> bool:
    """Returns whether a trainable is a function, a method or a partial of one."""
    function = trainable.func if isinstance(trainable, functools.partial) else trainable
    return inspect.isfunction(function) or inspect.ismethod(function)


def as_trainable(trainable: Any, resources: Any = None) -> Any:
    """Returns a function of Ray 1.x, a method or a partial of one, as today's Ray takes it; anything else as it is.

    Args:
        trainable: What `tune.run` is given.
        resources: What the program itself reserves for a trial, or a function of the config that says so; None reserves
            for the trainer that a function makes.
    """
    if not is_function(trainable):
        return trainable
    function = trainable.func if isinstance(trainable, functools.partial) else trainable
    wanted = list(inspect.signature(trainable).parameters.values())[1:]
    names = [parameter.name for parameter in wanted if parameter.default is inspect.Parameter.empty]
    names += [parameter.name for parameter in wanted if parameter.name == "checkpoint_dir"]
    unknown = set(names) - {"reporter", "checkpoint_dir"}
    if unknown:
        return trainable  # Ray says what it wants

    def arguments() -> dict[str, Any]:
        given = {"reporter": Reporter, "checkpoint_dir": _loaded_directory}
        enter_trial_directory(_of_trial("get_storage"))
        _forget_waiting()  # of a trial that this process ran before
        return {name: given[name]() for name in dict.fromkeys(names)}

    def called_as_declared(config: dict[str, Any]) -> Any:
        return _with_waiting(trainable(config, **arguments()))

    def generator_as_declared(config: dict[str, Any]) -> Any:
        yield from trainable(config, **arguments())
        _with_waiting(None)

    called: Any = generator_as_declared if inspect.isgeneratorfunction(function) else called_as_declared
    functools.update_wrapper(called, function)
    vars(called).update(vars(trainable) if trainable is not function else {})
    del called.__wrapped__  # Ray looks through it at what the user declared
    own = resources if callable(resources) and not isinstance(resources, PlacementGroupFactory) else None
    if getattr(called, "_resources", None) in (None, function_resources):  # else those of `tune.with_resources`
        called._resources = function_resources if resources is None else own
    return called


class Reporter:
    """What a function `fn(config, reporter)` reports with: `reporter(timesteps_total=…, episode_reward_mean=…)`.

    Attributes:
        logdir: Directory of the trial.
        trial_id: Its id.
        trial_name: Its name.
    """

    def __init__(self) -> None:
        self.logdir, self.trial_id, self.trial_name = get_trial_dir(), get_trial_id(), get_trial_name()

    def __call__(self, _metric: float | None = None, **metrics: Any) -> None:
        """Reports a result."""
        report(_metric, **metrics)


def get_trial_dir() -> str | None:
    """Returns the directory of the trial that this process runs, None outside of one."""
    return trial_directory(_of_trial("get_storage")) if is_session_enabled() else None


def get_trial_id() -> str | None:
    """Returns the id of the trial that this process runs, None outside of one."""
    told: str | None = _of_trial("get_trial_id")
    return told


def get_trial_name() -> str | None:
    """Returns the name of the trial that this process runs, None outside of one."""
    told: str | None = _of_trial("get_trial_name")
    return told


def get_trial_resources() -> Any:
    """Returns the `PlacementGroupFactory` of the trial that this process runs, None outside of one."""
    return _of_trial("get_trial_resources")


def is_session_enabled() -> bool:
    """Returns whether this process runs a trial."""
    return get_trial_id() is not None


def _of_trial(what: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's, outside of a trial
        context = ray.tune.get_context()
        return None if context is None else getattr(context, what)()


def report(_metric: Any = None, *, checkpoint: Any = None, **metrics: Any) -> None:
    """Reports a result of a trial, as `tune.report(loss=0.1)` of Ray 1.x or `tune.report({"loss": 0.1})` of today.

    Args:
        _metric: A dict of metrics, or one number.
        checkpoint: A `Checkpoint` that belongs to the result; None takes what `checkpoint_dir` wrote.
        **metrics: Metrics by name.
    """
    if isinstance(_metric, Mapping):
        metrics = {**_metric, **metrics}
    elif _metric is not None:
        metrics = {_DEFAULT_METRIC: _metric, **metrics}
    if checkpoint is None and _waiting:
        folder, step = _waiting.pop()
        storage = _of_trial("get_storage")
        if storage is not None and isinstance(step, (int, np.integer)):
            number_by_iteration(storage, int(step))
        ray.tune.report(metrics, checkpoint=ray.tune.Checkpoint.from_directory(folder.name))
        folder.cleanup()  # Ray has copied it
        if storage.storage_filesystem.type_name == "local":  # paths into the folder stay good, as in Ray 1.x
            os.symlink(storage.checkpoint_fs_path, folder.name)
        return
    ray.tune.report(metrics, checkpoint=checkpoint)


@contextlib.contextmanager
def checkpoint_dir(step: int) -> Iterator[str]:
    """Gives a folder to write a checkpoint into; the next `report` takes it along, or the end of the function.

    Paths into the folder, such as `trainer.save(folder)`, are good behind that, too, as long as the checkpoint is kept.

    Args:
        step: Number of the checkpoint, whose directory is `checkpoint_000005` for 5; where it is not above the last
            one's, the next.
    """
    # What a killed process leaves of it goes with Ray's session.
    storage = _of_trial("get_storage")
    session = None if storage is None else storage.trial_working_directory
    folder = tempfile.TemporaryDirectory(prefix="checkpoint_", dir=session if os.path.isdir(session or "") else None)
    yield folder.name
    _forget_waiting()
    _waiting.append((folder, step))


def _forget_waiting() -> None:
    while _waiting:
        _waiting.pop()[0].cleanup()


def _with_waiting(output: Any) -> Any:
    """Reports a checkpoint that was written after the last report, and returns what is left of a function's output."""
    if not _waiting:
        return output
    if isinstance(output, (Mapping, Number)) and output:  # reported by Ray, which knows nothing of the checkpoint
        report(output)
        return None
    report({RESULT_DUPLICATE: True})  # no result: `results.NamesOfRay1` gives the checkpoint to the trial
    return output


def _loaded_directory() -> str | None:
    """Returns the folder of the checkpoint that a trial goes on from, None for a new trial."""
    checkpoint = ray.tune.get_checkpoint()
    return None if checkpoint is None else str(checkpoint.to_directory())


def register_trainable(name: str, trainable: Callable[..., Any], *args: Any) -> None:
    """Registers a trainable by name, as `ray.tune.register_trainable`; functions of Ray 1.x too."""
    ray.tune.register_trainable(name, as_trainable(trainable), *args)


__all__ = [
    "Reporter",
    "as_trainable",
    "checkpoint_dir",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_trial_resources",
    "is_session_enabled",
    "register_trainable",
    "report",
]
