"""What `tune.run` returns: today's analysis, with the methods that Ray 1.x had besides."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import ray.tune
import ray.tune.experiment
from ray.train._internal.session import _TrainingResult as TrainingResult
from ray.train.constants import CHECKPOINT_DIR_NAME
from ray.tune.trainable.function_trainable import FunctionTrainable

from rlframe.trainer import checkpoint_paths
from rlframe.utils.errors import ConfigError

#: What Tune writes for each trial.
_RESULTS = "result.json"


class Checkpoint(ray.tune.Checkpoint):
    """A checkpoint that is a path as well: `os.path` and `open` take it.

    Args:
        path: The directory.
        filesystem: Where it is, of pyarrow; this machine by default.
        **of_ray1: What Ray 1.x's `Checkpoint(storage, value=..., result=...)` had.

    Raises:
        TypeError: If it is made as Ray 1.x made checkpoints of trials.
    """

    MEMORY, PERSISTENT = "memory", "persistent"

    def __init__(self, path: Any, filesystem: Any = None, **of_ray1: Any) -> None:
        if of_ray1 or path in (self.MEMORY, self.PERSISTENT):
            raise TypeError(
                f"Got Checkpoint({path!r}, ...) with a storage before the path, as Ray 1.x made it for its trials, "
                "wanted the directory alone: Checkpoint(os.path.dirname(trainer.save()))"
            )
        super().__init__(path, filesystem)

    @property
    def storage(self) -> str:
        """Returns where Ray 1.x kept it."""
        return self.PERSISTENT

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def value(self) -> str:
        """Returns its path as Ray 1.x had it: of the file in it that its trainer's `save` returns."""
        return _old_path(self)


class CheckpointPath(str):
    """The path of a checkpoint, a text as in Ray 1.x; what today's `Checkpoint` has, it has besides.

    It is the path that the trainer's `save` returns, `checkpoint_000010/checkpoint-10`; where there is no such file,
    the directory with a slash behind it. `path`, as today, is the directory.

    Args:
        checkpoint: A checkpoint on this machine.
        path: Its path; None finds it.
    """

    checkpoint: ray.tune.Checkpoint

    def __new__(cls, checkpoint: ray.tune.Checkpoint, path: str | None = None) -> CheckpointPath:
        """Returns the path of a checkpoint."""
        made = super().__new__(cls, _old_path(checkpoint) if path is None else path)
        made.checkpoint = checkpoint
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return CheckpointPath, (self.checkpoint, str(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "checkpoint":
            raise AttributeError(name)
        return getattr(self.checkpoint, name)

    @property
    def value(self) -> str:
        """Returns the path, as a plain text."""
        return str(self)


def _old_path(checkpoint: ray.tune.Checkpoint) -> str:
    path = str(checkpoint.path)
    return checkpoint_paths.path_of(path) if _is_local(checkpoint) and os.path.isdir(path) else path


def _is_local(checkpoint: Any) -> bool:
    filesystem: Any = getattr(checkpoint, "filesystem", None)
    return filesystem is not None and filesystem.type_name == "local"


def with_path(checkpoint: Any) -> Any:
    """Returns Ray's checkpoint as one that is a path as well; None stays None."""
    if type(checkpoint) is ray.tune.Checkpoint:
        checkpoint.__class__ = Checkpoint
    return checkpoint


def path_of(checkpoint: Any) -> Any:
    """Returns the path of Ray's checkpoint where it is on this machine, else as `with_path`; None stays None."""
    return CheckpointPath(checkpoint) if _is_local(checkpoint) else with_path(checkpoint)


class Trial(ray.tune.experiment.Trial):
    """A trial with the names that Ray 1.x had for its parts."""

    @property
    def checkpoint(self) -> Any:
        """Returns the newest checkpoint, or None; its `value` is its path in Ray 1.x."""
        return with_path(super().checkpoint)

    @property
    def logdir(self) -> str:
        """Returns the directory of the trial: what it writes goes there while it runs, and is kept there."""
        path, running = str(self.path), str(self.local_path)
        return path if os.path.exists(os.path.join(path, _RESULTS)) or not os.path.exists(running) else running

    def init_logdir(self) -> None:
        """Makes the directory of the trial, as callbacks that log ask for."""
        self.init_local_path()  # type: ignore[no-untyped-call]  # Ray's has no annotations


def with_logdir(trials: list[Any]) -> list[Any]:
    """Returns Ray's trials, with the names of Ray 1.x."""
    for trial in trials:
        if type(trial) is ray.tune.experiment.Trial:
            trial.__class__ = Trial
    return trials


class NamesOfRay1(ray.tune.Callback):
    """Lets other callbacks see trials with the names and the checkpoints of Ray 1.x; stands before them."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Sees to a trial."""
        del iteration, trials, info
        with_logdir([trial])

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        """Sees to a checkpoint."""
        del iteration, trials, trial, info
        with_path(checkpoint)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Keeps a trial's results, and the checkpoint that its function has written after the last report."""
        del iteration, info
        _keep_results(trials, [trial])
        if issubclass(trial.get_trainable_cls(), FunctionTrainable):
            self._take_last_checkpoint(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Keeps a trial's results."""
        del iteration, info
        _keep_results(trials, [trial])

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Keeps all results."""
        del info
        _keep_results(trials, trials)

    def _take_last_checkpoint(self, trial: Any) -> None:
        storage = copy.copy(trial.storage)
        storage.current_checkpoint_index += 1
        path, filesystem = storage.checkpoint_fs_path, storage.storage_filesystem
        if filesystem.get_file_info(path).type.name == "Directory":
            metrics = {**trial.last_result, CHECKPOINT_DIR_NAME: storage.checkpoint_dir_name}
            trial.on_checkpoint(TrainingResult(ray.tune.Checkpoint(path, filesystem), metrics))


def _keep_results(trials: list[Any], kept: list[Any]) -> None:
    """Copies what the driver wrote of trials to where their experiments are kept; Ray does so for the first one alone.

    Args:
        trials: All trials; the experiment of the first is Ray's.
        kept: Those of which it is copied.
    """
    of_ray = trials[0].storage.experiment_fs_path if trials else None
    storages = {each.storage.experiment_fs_path: each.storage for each in kept}
    for place, storage in storages.items():
        if place != of_ray:
            storage.syncer.wait()  # for a copy that is under way
            storage.syncer.sync_up(storage.experiment_driver_staging_path, place)
            storage.syncer.wait()


class _ByDirectory(dict[str, Any]):
    """What there is of each trial, by the trial's directory; looked up, also by its id, as in today's Tune."""

    def __init__(self, trials: list[Any], by_id: dict[str, Any]) -> None:
        super().__init__({str(trial.path): by_id[trial.trial_id] for trial in trials if trial.trial_id in by_id})
        self._by_id = by_id

    def __missing__(self, trial_id: str) -> Any:
        return self._by_id[trial_id]

    def __contains__(self, directory_or_id: object) -> bool:
        return super().__contains__(directory_or_id) or directory_or_id in self._by_id

    def get(self, directory_or_id: str, default: Any = None) -> Any:
        """Returns what there is of a trial, and `default` where there is no such trial."""
        return super().get(directory_or_id, self._by_id.get(directory_or_id, default))


class ExperimentAnalysis(ray.tune.ExperimentAnalysis):
    """The results of an experiment, of a folder that `tune.run` has written as well.

    Args:
        experiment_checkpoint_path: The experiment's folder, or its `experiment_state-*.json`.
        trials: The trials; None reads them from there.
        default_metric: What is compared where a method is given none.
        default_mode: "max" or "min", the same.
        **kwargs: Further ones of today's Ray.
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        trials: list[Any] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        path = os.path.abspath(os.path.expanduser(os.fspath(experiment_checkpoint_path)))
        super().__init__(path, trials=trials, default_metric=default_metric, default_mode=default_mode, **kwargs)
        with_logdir(self.trials)

    @classmethod
    def of(cls, analysis: Any) -> ExperimentAnalysis:
        """Returns what Ray's `tune.run` returned, with the methods of this class."""
        if isinstance(analysis, ray.tune.ExperimentAnalysis):
            analysis.__class__ = cls
            with_logdir(analysis.trials)
        made: ExperimentAnalysis = analysis
        return made

    def _delimiter(self) -> str:
        """Returns what stands between the keys of nested results in data frames' columns, as in Ray 1.x."""
        return os.environ.get("TUNE_RESULT_DELIM", ".")

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        """The results of each trial as a data frame, by the trial's directory, as in Ray 1.x, or its id."""
        return _ByDirectory(self.trials, self._trial_dataframes)

    def fetch_trial_dataframes(self) -> dict[str, Any]:
        """Reads the results again, and returns `trial_dataframes`."""
        self._trial_dataframes = self._fetch_trial_dataframes()
        return self.trial_dataframes

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Returns the trials' configs by directory or id.

        Args:
            prefix: Whether keys are flat and begin with "config/".
        """
        return _ByDirectory(self.trials, super().get_all_configs(prefix))

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """Returns a row for each trial: a result, the config, flat, and each nested part of it, as in Ray 1.x.

        Args:
            metric: By what the result is chosen; None takes the last one.
            mode: "max" or "min" of the metric.
        """
        frame = super().dataframe(metric, mode)
        every = self.get_all_configs()
        configs = [every.get(directory, {}) for directory in frame.get("logdir", ())]
        nested = {key for config in configs for key, value in config.items() if isinstance(value, dict)}
        parts = {f"config/{key}": [config.get(key) for config in configs] for key in sorted(nested)}
        return frame.assign(**{name: part for name, part in parts.items() if name not in frame})

    def stats(self) -> dict[str, float]:
        """Returns when the experiment began (`start_time`) and when its newest result came (`timestamp`), s since 1970.

        A time is missing where no trial has begun, or none has a result.
        """
        starts: list[Any] = [trial.run_metadata.start_time for trial in self.trials if trial.run_metadata.start_time]
        results = [(trial.last_result or {}).get("timestamp") for trial in self.trials]
        ends: list[float] = [time for time in results if time is not None]
        begin = {"start_time": float(min(starts))} if starts else {}
        # Tune notes results in whole seconds, so one of the first second seems to be before the start.
        return {**begin, "timestamp": max(*ends, *begin.values(), 0.0)} if ends else begin

    @property
    def best_checkpoint(self) -> Any:
        """Returns the best checkpoint of the best trial, by the metric and mode of the experiment."""
        return path_of(super().best_checkpoint)

    def get_best_checkpoint(self, trial: Any, metric: str | None = None, mode: str | None = None) -> Any:
        """Returns the best checkpoint of a trial, a path as well; None if it has none.

        Args:
            trial: One of `trials`, or its directory.
            metric: What is compared; None takes the experiment's.
            mode: "max" or "min"; None takes the experiment's.
        """
        return path_of(super().get_best_checkpoint(self._trial(trial), metric, mode))

    def get_last_checkpoint(self, trial: Any = None, metric: str = "training_iteration", mode: str = "max") -> Any:
        """Returns the newest checkpoint of a trial, or of the best one, a path as well.

        Args:
            trial: One of `trials`, or its directory; None takes the best by `metric` and `mode`.
            metric: What trials are compared by.
            mode: "max" or "min".
        """
        return path_of(super().get_last_checkpoint(self._trial(trial), metric, mode))

    @property
    def best_logdir(self) -> str:
        """Returns the directory of the best trial, by the metric and mode of the experiment."""
        return str(self.best_trial.path)

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        """Returns the directory of the best trial.

        Args:
            metric: What is compared; None takes the experiment's.
            mode: "max" or "min"; None takes the experiment's.
            scope: "last", "all", "avg": which of a trial's results count.
        """
        trial = self.get_best_trial(metric, mode, scope)
        return None if trial is None else str(trial.path)

    def get_trial_checkpoints_paths(self, trial: Any, metric: str | None = None) -> list[tuple[Any, Any]]:
        """Returns path and metric of each checkpoint of a trial that is kept.

        Args:
            trial: One of `trials`, or its directory.
            metric: Name of the metric, with slashes where it is nested; None takes the experiment's, or the iteration.
        """
        found = self._get_trial_checkpoints_with_metric(trial, metric)
        return [(path_of(checkpoint), value) for checkpoint, value in found]

    def _get_trial_checkpoints_with_metric(self, trial: Any, metric: str | None = None) -> list[tuple[Any, Any]]:
        """What Ray's methods that compare checkpoints ask; trials may also be given by their directories."""
        found: list[tuple[Any, Any]] = super()._get_trial_checkpoints_with_metric(self._trial(trial), metric)
        return found

    def _trial(self, trial: Any) -> Any:
        """Returns a trial for itself, or for its directory."""
        if not isinstance(trial, (str, os.PathLike)):
            return trial
        wanted = os.path.realpath(os.path.expanduser(trial))
        places = {os.path.realpath(str(place)): each for each in self.trials for place in (each.path, each.logdir)}
        if wanted not in places:
            raise ConfigError(f"trial={os.fspath(trial)!r}: no trial was there; wanted one of {sorted(places)}")
        return places[wanted]

    def runner_data(self) -> dict[str, Any]:
        """Returns what Tune noted of the run as a whole: when it began (`_start_time`), and its number of steps."""
        with open(self._experiment_json_fs_path, encoding="utf-8") as file:
            data: dict[str, Any] = json.load(file)["runner_data"]
        return data

    def set_filetype(self, file_type: str | None = None) -> bool:
        """Reads the results again; returns True.

        Args:
            file_type: "json", "csv" or None: accepted as in Ray 1.x, both files have the same rows.

        Raises:
            ValueError: If it is another.
        """
        if file_type not in ("json", "csv", None):
            raise ValueError(f"set_filetype: got {file_type!r}; wanted 'json', 'csv' or None.")
        self.fetch_trial_dataframes()
        return True
