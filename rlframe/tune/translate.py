"""Arguments of Ray 1.x's `tune.run`, in today's words.

| Then | Now |
|---|---|
| `local_dir` | `storage_path`, an absolute path |
| `checkpoint_freq`, `checkpoint_at_end`, `keep_checkpoints_num`, `checkpoint_score_attr` | `checkpoint_config` |
| `loggers`, of a run or of one experiment | callbacks; those that Tune makes anyway are left out |
| `resume="LOCAL"`, `"ERRORED_ONLY"`, `run_errored_only` | `resume="AUTO"`, `"AUTO+RESTART_ERRORED"` |
| `restore`: a path in a checkpoint, its directory, a `Checkpoint` | `restore`: the directory |
| `resources_per_trial={"cpu": 1, "extra_cpu": 2}` | bundles, of which the first is the trial's own |
| `resources_per_trial={"extra_cpu": lambda spec: spec.config.num_workers}` | a function's own resources |
| `progress_reporter` | the same, and it prints |
| `sample_from(lambda spec: spec.stop["training_iteration"])` in `config` | `rlframe.tune.specs.Sampled` |
| `sync_config={"upload_dir": None}` | nothing |
| `queue_trials`, `ray_auto_init` and the like | nothing: Ray does so by itself, or has no such thing any more |
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray.tune
from ray.tune.execution.placement_groups import resource_dict_to_pg_factory
from ray.tune.search.variant_generator import _UnresolvedAccessGuard

from rlframe.trainer.checkpoint_paths import noted_directory
from rlframe.tune.functions import as_trainable, is_function
from rlframe.tune.logger import logger_callbacks
from rlframe.tune.resources import Resources
from rlframe.tune.specs import with_specs
from rlframe.utils.deprecation import deprecation_warning
from rlframe.utils.errors import ConfigError

#: What has no meaning today, and does no harm: resources are always waited for, Ray starts by itself, and the rest is
#: gone.
_DROPPED = (
    "queue_trials",
    "ray_auto_init",
    "with_server",
    "server_port",
    "global_checkpoint_period",
    "sync_on_checkpoint",
)
#: What would change a run if it were dropped, and what to use instead.
_REFUSED = {
    "trial_executor": "Ray places trials itself; set resources_per_trial or max_concurrent_trials",
    "upload_dir": 'give storage_path="s3://…"',
    "sync_to_cloud": 'give storage_path="s3://…"',
    "sync_to_driver": 'give storage_path="s3://…", or a path that all machines share',
}
#: From where to go on: Ray looks in the storage path today. Of those that had failed, "ERRORED_ONLY" began anew.
_RESUMED = {"LOCAL": "AUTO", "REMOTE": "AUTO", "PROMPT": "AUTO", "ERRORED_ONLY": "AUTO+RESTART_ERRORED"}
_CHECKPOINTS = ("checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num", "checkpoint_score_attr")


def translate_run(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments of `tune.run` as today's Ray takes them.

    Args:
        arguments: Of either version. Not changed.

    Raises:
        ConfigError: If one has no counterpart, or both spellings of one are given.
    """
    translated = dict(arguments)
    for name, advice in _REFUSED.items():
        if translated.pop(name, None) is not None:
            raise ConfigError(f"tune.run({name}=…) is not in today's Ray: {advice}")
    for name in _DROPPED:
        if name in translated:
            del translated[name]
            deprecation_warning(f"tune.run({name}=…)")
    _translate_syncing(translated)
    _translate_directory(translated)
    _translate_checkpoints(translated)
    _translate_loggers(translated)
    translated.update(_reserved(translated.pop("resources_per_trial", None)))
    if translated.pop("run_errored_only", False):
        translated["resume"] = "ERRORED_ONLY"
    if isinstance(translated.get("resume"), str):
        first, *rest = translated["resume"].upper().split("+")
        translated["resume"] = "+".join((_RESUMED.get(first, first), *rest))
    if translated.get("restore") is not None:
        translated["restore"] = checkpoint_path(translated["restore"])
    if translated.get("config"):
        translated["config"] = with_specs(translated["config"], arguments)
    return translated


def translate_experiments(experiments: Any) -> Any:
    """Returns the experiments of `run_experiments` with today's keys; an `Experiment` is returned as it is."""
    if isinstance(experiments, (list, tuple)):
        return [translate_experiments(experiment) for experiment in experiments]
    if not isinstance(experiments, Mapping):
        return experiments
    return {name: _translate_experiment(spec) for name, spec in experiments.items()}


@contextlib.contextmanager
def printing(arguments: Mapping[str, Any]) -> Iterator[None]:
    """Lets a `progress_reporter` print, as in Ray 1.x; today's Ray leaves it out unless it is told otherwise."""
    name = "RAY_AIR_NEW_OUTPUT"
    if arguments.get("progress_reporter") is None or name in os.environ:
        yield
        return
    os.environ[name] = "0"
    try:
        yield
    finally:
        del os.environ[name]


def reserving(trainable: Any, arguments: dict[str, Any]) -> Any:
    """Returns a trainable as today's Ray takes it; functions that say what it reserves leave the arguments for it.

    Args:
        trainable: What is to be run.
        arguments: Translated ones of the run or experiment; changed.

    Raises:
        ConfigError: If functions say what a trainable reserves that is itself no function.
    """
    resources = arguments.get("resources_per_trial")
    if isinstance(resources, PerTrial):
        if not is_function(trainable):
            raise ConfigError(
                f"resources_per_trial: got functions, for {trainable!r}, which reserves what its config needs; leave "
                "resources_per_trial out, or give numbers"
            )
        del arguments["resources_per_trial"]
    return as_trainable(trainable, resources)


def checkpoint_path(checkpoint: Any) -> str:
    """Returns the directory of a checkpoint: of itself, a path in it as Ray 1.x had them, or Tune's object."""
    path: str = os.path.abspath(os.path.expanduser(os.fspath(getattr(checkpoint, "path", checkpoint))))
    if os.path.isdir(path):
        return path
    directory, name = os.path.split(path)
    return noted_directory(path) or (directory if name.startswith("checkpoint-") else path)


def loggers_of_experiments(experiments: Any) -> list[Any]:
    """Returns the callbacks for the `loggers` that experiments of Ray 1.x name, each for its own experiment's trials.

    Args:
        experiments: As `run_experiments` takes them.
    """
    if isinstance(experiments, (list, tuple)):
        return [callback for experiment in experiments for callback in loggers_of_experiments(experiment)]
    specs = experiments.items() if isinstance(experiments, Mapping) else ()
    return [
        callback
        for name, spec in specs
        if isinstance(spec, Mapping)
        for callback in logger_callbacks(spec.get("loggers") or (), experiment=name)
    ]


def _translate_experiment(spec: Any) -> Any:
    if not isinstance(spec, Mapping):
        return spec
    translated = translate_run({key: value for key, value in spec.items() if key != "loggers"})
    if "run" in translated:
        translated["run"] = reserving(translated["run"], translated)
    env = translated.pop("env", None)  # RLlib's files have it beside the config
    if env is not None:
        translated["config"] = {**(translated.get("config") or {}), "env": env}
    return translated


def _translate_syncing(arguments: dict[str, Any]) -> None:
    """Drops what a `sync_config` leaves open, such as `{"upload_dir": None}`; refuses what is not there any more."""
    given = arguments.get("sync_config")
    if not isinstance(given, Mapping):
        return
    kept = {name: value for name, value in given.items() if value and name != "sync_on_checkpoint"}
    for name in kept.keys() & _REFUSED.keys():
        raise ConfigError(f"sync_config[{name!r}]: got {kept[name]!r}, not in today's Ray: {_REFUSED[name]}")
    if kept:
        arguments["sync_config"] = kept
    else:
        del arguments["sync_config"]


def _translate_directory(arguments: dict[str, Any]) -> None:
    local_dir = arguments.pop("local_dir", None)
    if local_dir is not None:
        if arguments.get("storage_path") is not None:
            raise ConfigError("tune.run: local_dir is the old name of storage_path; give one of them")
        arguments["storage_path"] = os.path.abspath(os.path.expanduser(os.fspath(local_dir)))


def _reserved(resources: Any) -> dict[str, Any]:
    """Returns the argument that reserves resources; `extra_cpu` and `extra_gpu` are for workers that a trial starts."""
    if resources is None:
        return {}
    if isinstance(resources, Mapping) and any(map(callable, resources.values())):
        return {"resources_per_trial": PerTrial(resources)}
    if not isinstance(resources, Mapping) or not any(name.startswith("extra_") for name in resources):
        return {"resources_per_trial": resources}
    named = {field.name for field in dataclasses.fields(Resources)}
    given = {name: amount for name, amount in resources.items() if name in named}
    custom = {name: amount for name, amount in resources.items() if name not in named}
    if unknown := [name for name in custom if name.startswith("extra_")]:
        wanted = sorted(name for name in named if name.startswith("extra_"))
        raise ConfigError(f"resources_per_trial: got {unknown}, wanted of workers' resources {wanted}")
    given["custom_resources"] = {**(given.get("custom_resources") or {}), **custom}
    return {"resources_per_trial": Resources(**{"cpu": 0, **given})}


class PerTrial:
    """What a trial reserves where functions of its spec say so, `{"extra_cpu": lambda spec: spec.config.num_workers}`.

    Args:
        resources: As `resources_per_trial` of Ray 1.x; some amounts are functions.
    """

    def __init__(self, resources: Mapping[str, Any]) -> None:
        self._resources = resources

    def __call__(self, config: Mapping[str, Any]) -> Any:
        """Returns what the trial of a config reserves."""
        spec = _UnresolvedAccessGuard({"config": config})
        amounts = {key: each(spec) if callable(each) else each for key, each in self._resources.items()}
        made = _reserved(amounts)["resources_per_trial"]
        return made if isinstance(made, ray.tune.PlacementGroupFactory) else resource_dict_to_pg_factory(made)


def _translate_checkpoints(arguments: dict[str, Any]) -> None:
    given = {name: arguments.pop(name) for name in _CHECKPOINTS if name in arguments}
    if not any(given.values()):
        return
    if arguments.get("checkpoint_config") is not None:
        raise ConfigError(f"tune.run: {', '.join(given)} and checkpoint_config say the same; give one of them")
    attribute = given.get("checkpoint_score_attr")
    least = isinstance(attribute, str) and attribute.startswith("min-")
    arguments["checkpoint_config"] = ray.tune.CheckpointConfig(
        checkpoint_frequency=given.get("checkpoint_freq") or 0,
        checkpoint_at_end=bool(given.get("checkpoint_at_end")),
        num_to_keep=given.get("keep_checkpoints_num"),
        checkpoint_score_attribute=attribute[len("min-") :] if attribute is not None and least else attribute,
        checkpoint_score_order="min" if least else "max",
    )


def with_old_checkpoints(spec: dict[str, Any]) -> None:
    """Puts what a program wrote into an experiment's `spec` under old names, such as `checkpoint_freq`, in place."""
    written = {name: spec.pop(name) for name in _CHECKPOINTS if name in spec}
    _translate_checkpoints(written)
    spec.update(written)


def _translate_loggers(arguments: dict[str, Any]) -> None:
    loggers: list[Callable[..., Any]] | None = arguments.pop("loggers", None)
    callbacks = logger_callbacks(loggers or ())
    if callbacks:
        arguments["callbacks"] = [*(arguments.get("callbacks") or ()), *callbacks]
