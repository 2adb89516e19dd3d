"""What `tune.run` returns: today's analysis, with the methods that Ray 1.x had besides."""

from __future__ import annotations

import os
from typing import Any

import ray.tune
import ray.tune.experiment

#: What Tune writes for each trial.
_RESULTS = "result.json"


class Trial(ray.tune.experiment.Trial):
    """A trial with the names that Ray 1.x had for its parts."""

    @property
    def logdir(self) -> str:
        """Returns the directory of the trial: what it writes goes there while it runs, and is kept there."""
        path, running = str(self.path), str(self.local_path)
        return path if os.path.exists(os.path.join(path, _RESULTS)) or not os.path.exists(running) else running


def with_logdir(trials: list[Any]) -> list[Any]:
    """Returns Ray's trials, with the names of Ray 1.x."""
    for trial in trials:
        if type(trial) is ray.tune.experiment.Trial:
            trial.__class__ = Trial
    return trials


class NamesOfRay1(ray.tune.Callback):
    """Lets other callbacks see trials with the names of Ray 1.x; stands before them."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Sees to a trial."""
        del iteration, trials, info
        with_logdir([trial])


class ExperimentAnalysis(ray.tune.ExperimentAnalysis):
    """The results of an experiment."""

    @classmethod
    def of(cls, analysis: Any) -> ExperimentAnalysis:
        """Returns what Ray's `tune.run` returned, with the methods of this class."""
        if isinstance(analysis, ray.tune.ExperimentAnalysis):
            analysis.__class__ = cls
            with_logdir(analysis.trials)
        made: ExperimentAnalysis = analysis
        return made

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

    def get_trial_checkpoints_paths(self, trial: Any, metric: str = "training_iteration") -> list[tuple[str, Any]]:
        """Returns path and metric of each checkpoint of a trial that is kept.

        Args:
            trial: One of `trials`.
            metric: Name of the metric.
        """
        kept = trial.run_metadata.checkpoint_manager.best_checkpoint_results
        return [(result.checkpoint.path, result.metrics.get(metric)) for result in kept]
