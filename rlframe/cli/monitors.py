"""Where else results go while a run trains: Weights & Biases, MLflow, TensorBoard."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe.config.faults import shorten
from rlframe.trainer.loggers import flatten, to_jsonable
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.files import read_json

#: Where a run directory keeps what the monitors call the run.
RUNS_FILE = "monitors.json"
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
#: Names that `--monitor` takes, and what each has to have installed.
MONITORS = {"wandb": "wandb", "mlflow": "mlflow", "tensorboard": "tensorboardX"}


def make_monitors(names: Sequence[str], directory: Path, config: Mapping[str, Any]) -> list[Any]:
    """Returns the monitors of a run; TensorBoard has none of its own, since a run directory has its events anyway.

    What the services call the run is kept in the directory: a run that is resumed goes on as the same one there.

    Args:
        names: From `MONITORS`.
        directory: The run directory, whose name the run gets.
        config: The whole config of the trainer.

    Raises:
        ConfigError: If a name is unknown, what it needs is not installed, or a run to go on with is not there.
        CheckpointError: If what the directory keeps is damaged.
    """
    check_monitors(names)
    known = _read_runs(directory / RUNS_FILE)
    monitors = {
        name: _MAKERS[name](directory, to_jsonable(config), known.get(name))
        for name in dict.fromkeys(names)
        if name in _MAKERS
    }
    if monitors:
        _write_runs(directory / RUNS_FILE, {**known, **{name: made.run_id for name, made in monitors.items()}})
    return list(monitors.values())


def _read_runs(path: Path) -> dict[str, str]:
    """Returns the ids of a run in the services that it reports to, by monitor."""
    if not os.path.lexists(path):
        return {}
    try:
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError(f"got a JSON {type(content).__name__}, wanted an object")
        for name, run_id in content.items():
            if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
                raise ValueError(f"{name} is {shorten(run_id)}, wanted the id of a run")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"{str(path)!r} is damaged ({said}): remove it to begin new runs in the monitors"
        ) from error
    return content


def _write_runs(path: Path, runs: Mapping[str, str]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(runs, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def check_monitors(names: Sequence[str]) -> None:
    """Raises where a monitor is unknown or not installed.

    Raises:
        ConfigError: With the command that installs it.
    """
    for name in names:
        if name not in MONITORS:
            raise ConfigError(f"--monitor: got {name!r}, wanted one of {', '.join(MONITORS)}")
        try:
            importlib.import_module(MONITORS[name])
        except ImportError as error:
            raise ConfigError(f"--monitor {name}: not installed; `pip install {MONITORS[name]}`") from error


class _Wandb:
    """A run of Weights & Biases. Steps that it has already, of a run that goes on from a checkpoint, it keeps."""

    def __init__(self, directory: Path, config: dict[str, Any], run_id: str | None) -> None:
        wandb: Any = importlib.import_module("wandb")
        try:
            self._run = wandb.init(
                project="rlframe", name=directory.name, config=config, id=run_id or uuid.uuid4().hex, resume="allow"
            )
        except wandb.errors.Error as error:
            raise ConfigError(
                f"--monitor wandb: {error}. `wandb login` says who you are; WANDB_MODE=offline keeps the run here"
            ) from error
        self.run_id = str(self._run.id)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    """A run of MLflow, whose parameters are written when it begins."""

    def __init__(self, directory: Path, config: dict[str, Any], run_id: str | None) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        try:
            run = self._mlflow.start_run(run_id=run_id, run_name=None if run_id else directory.name)
        except self._mlflow.exceptions.MlflowException as error:
            begins = f"run {run_id} cannot go on" if run_id else "no run can begin"
            raise ConfigError(
                f"--monitor mlflow: {begins} at {self._mlflow.get_tracking_uri()}: {error.message} "
                f"MLFLOW_TRACKING_URI says where; without {directory / RUNS_FILE} a new run begins"
            ) from error
        self.run_id = str(run.info.run_id)
        if run_id is None:
            for name, value in flatten(config):
                self._mlflow.log_param(name, str(value)[:500])  # MLflow's limit

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


_MAKERS: dict[str, Any] = {"wandb": _Wandb, "mlflow": _MLflow}


def numbers_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Returns the finite numbers of a result by their names, nested ones as "info/learner/..."."""
    leaves = flatten({key: value for key, value in result.items() if key != "config"})
    plain = ((name, to_jsonable(value)) for name, value in leaves if getattr(value, "shape", ()) == ())
    return {
        name: float(value)
        for name, value in plain
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }
