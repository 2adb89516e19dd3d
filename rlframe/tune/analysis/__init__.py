"""`tune.Analysis` of Ray 1.x: the results below a folder, of Tune's trials and of run directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.trainer.checkpoint_paths import path_of
from rlframe.tune.results import ExperimentAnalysis
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import read_json

if TYPE_CHECKING:
    import pandas

__all__ = ["Analysis", "ExperimentAnalysis"]

_RESULTS, _CONFIG, _ITERATION = "progress.csv", "params.json", "training_iteration"


class Analysis:
    """What was written below a folder, one `progress.csv` and `params.json` for each trial or run.

    Args:
        experiment_dir: The folder; trials are found at any depth.
        default_metric: Column that is compared where a method is given none.
        default_mode: "max" or "min", the same.

    Raises:
        ConfigError: If there are no results below the folder, or the mode is another.
    """

    def __init__(
        self,
        experiment_dir: str | os.PathLike[str],
        default_metric: str | None = None,
        default_mode: str | None = None,
    ) -> None:
        self._root = Path(experiment_dir).expanduser().absolute()
        self.default_metric, self.default_mode = default_metric, _checked_mode(default_mode)
        self.trial_dataframes: dict[str, pandas.DataFrame] = {}
        self.fetch_trial_dataframes()

    def fetch_trial_dataframes(self) -> dict[str, pandas.DataFrame]:
        """Reads the results again, and returns them: a row for each iteration, by the directory of the trial."""
        import pandas

        files = [path for path in sorted(self._root.rglob(_RESULTS)) if path.stat().st_size]
        if not files:
            raise ConfigError(
                f"Analysis({str(self._root)!r}): wanted a folder with a {_RESULTS} in it or below, as tune.run and "
                "rlframe train write them; there is none"
            )
        self.trial_dataframes = {str(path.parent): pandas.read_csv(path) for path in files}
        return self.trial_dataframes

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Returns the trials' configs by directory, as far as they were written.

        Args:
            prefix: Whether keys begin with "config/", as the columns of `dataframe` do.
        """
        configs = {}
        for directory in self.trial_dataframes:
            path = Path(directory, _CONFIG)
            if path.is_file():
                config = read_json(path)
                configs[directory] = {f"config/{key}": value for key, value in config.items()} if prefix else config
        return configs

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """Returns a row for each trial, with its config and its `logdir`.

        Args:
            metric: Column that says which of a trial's rows is taken.
            mode: "max" or "min" of it; None takes the last row.
        """
        import pandas

        if mode is not None and metric is None:
            raise ConfigError(f"Analysis.dataframe(mode={mode!r}): wanted a metric as well")
        configs = self.get_all_configs(prefix=True)
        return pandas.DataFrame(
            [
                {**self._row(directory, metric, _checked_mode(mode)), **configs.get(directory, {}), "logdir": directory}
                for directory in self._with(metric)
            ]
        )

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None) -> str:
        """Returns the directory of the trial whose best row is the best.

        Args:
            metric: Column that is compared; None takes `default_metric`.
            mode: "max" or "min"; None takes `default_mode`.

        Raises:
            ConfigError: If nobody says metric or mode, or no trial has the metric.
        """
        metric, mode = self._asked(metric, mode)
        best = {directory: self._row(directory, metric, mode)[metric] for directory in self._with(metric)}
        return (max if mode == "max" else min)(best, key=lambda directory: best[directory])

    def get_best_config(self, metric: str | None = None, mode: str | None = None) -> dict[str, Any] | None:
        """Returns the config of the trial that `get_best_logdir` finds; None if it was not written."""
        return self.get_all_configs().get(self.get_best_logdir(metric, mode))

    def get_trial_checkpoints_paths(self, trial: Any, metric: str | None = None) -> list[tuple[str, Any]]:
        """Returns path and metric of each checkpoint of a trial, by iteration; the path is of the file `checkpoint-N`.

        Args:
            trial: Its directory, or a trial with a `logdir`.
            metric: Column of the checkpoint's iteration; None takes `default_metric`, else the iteration.
        """
        directory = self._directory(trial)
        metric = metric or self.default_metric or _ITERATION
        values = self.trial_dataframes[directory].set_index(_ITERATION, drop=False)[metric]
        places = [path for path in sorted(Path(directory).rglob("checkpoint_*")) if _is_checkpoint(path, directory)]
        found = {_iteration_of(place): path_of(str(place)) for place in places}
        return [(found[iteration], values[iteration]) for iteration in sorted(found) if iteration in values]

    def get_best_checkpoint(self, trial: Any, metric: str | None = None, mode: str | None = None) -> str | None:
        """Returns the path of a trial's best checkpoint; None if it has none.

        Args:
            trial: Its directory, or a trial with a `logdir`.
            metric: Column that is compared; None takes `default_metric`, else the iteration.
            mode: "max" or "min"; None takes `default_mode`.
        """
        metric, mode = self._asked(metric or self.default_metric or _ITERATION, mode)
        checkpoints = self.get_trial_checkpoints_paths(trial, metric)
        return (max if mode == "max" else min)(checkpoints, key=lambda pair: pair[1], default=(None, None))[0]

    def get_last_checkpoint(self, trial: Any = None, metric: str | None = None, mode: str | None = None) -> str | None:
        """Returns the path of a trial's newest checkpoint; None if it has none.

        Args:
            trial: Its directory, or a trial with a `logdir`; None takes the best by `metric` and `mode`.
            metric: Column that trials are compared by.
            mode: "max" or "min".
        """
        chosen = self.get_best_logdir(metric, mode) if trial is None else trial
        return self.get_best_checkpoint(chosen, _ITERATION, "max")

    def _directory(self, trial: Any) -> str:
        directory = str(Path(getattr(trial, "logdir", trial)).expanduser().absolute())
        if directory not in self.trial_dataframes:
            raise ConfigError(f"trial={directory!r}: no results there; wanted one of {sorted(self.trial_dataframes)}")
        return directory

    def _asked(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        metric, mode = metric or self.default_metric, _checked_mode(mode or self.default_mode)
        if metric is None or mode is None:
            raise ConfigError(f"got metric={metric!r}, mode={mode!r}; wanted both, here or as defaults of Analysis()")
        return metric, mode

    def _row(self, directory: str, metric: str | None, mode: str | None) -> dict[str, Any]:
        rows = self.trial_dataframes[directory]
        index = -1
        if mode is not None:
            index = rows[metric].argmax() if mode == "max" else rows[metric].argmin()
        row: dict[str, Any] = rows.iloc[index].to_dict()
        return row

    def _with(self, metric: str | None) -> list[str]:
        """Returns the directories of the trials that have a metric."""
        tables = self.trial_dataframes
        found = [
            name for name, rows in tables.items() if metric is None or (metric in rows and rows[metric].notna().any())
        ]
        if not found:
            columns = sorted({column for rows in tables.values() for column in rows})
            raise ConfigError(f"metric={metric!r}: no trial has it; they have {', '.join(columns)}")
        return found


def _checked_mode(mode: str | None) -> str | None:
    if mode not in (None, "max", "min"):
        raise ConfigError(f"mode={mode!r}: wanted 'max', 'min' or None")
    return mode


def _is_checkpoint(path: Path, trial: str) -> bool:
    """Returns whether this is a checkpoint of a trial; directories within a checkpoint are a program's own."""
    within = any(parent.name.startswith("checkpoint_") for parent in path.relative_to(trial).parents)
    numbered = path.name.removeprefix("checkpoint_").isdecimal()
    return path.is_dir() and not within and (numbered or (path / "state.json").is_file())


def _iteration_of(checkpoint: Path) -> int:
    """Returns the training iteration of a checkpoint; of one that is none of this package's, the number of its name."""
    state = checkpoint / "state.json"
    meta = read_json(state).get("meta", {}) if state.is_file() else {}
    return int(meta.get("iteration", checkpoint.name.rpartition("_")[2]))
