"""What `tune.run` returns: today's analysis, with the methods that Ray 1.x had besides."""

from __future__ import annotations

from typing import Any

import ray.tune


class ExperimentAnalysis(ray.tune.ExperimentAnalysis):
    """The results of an experiment."""

    @classmethod
    def of(cls, analysis: Any) -> ExperimentAnalysis:
        """Returns what Ray's `tune.run` returned, with the methods of this class."""
        if isinstance(analysis, ray.tune.ExperimentAnalysis):
            analysis.__class__ = cls
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
