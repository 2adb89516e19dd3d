"""Where else results go while a run trains: Weights & Biases, MLflow, TensorBoard."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlframe.trainer.loggers import flatten, to_jsonable
from rlframe.utils.errors import ConfigError

#: Names that `--monitor` takes, and what each has to have installed.
MONITORS = {"wandb": "wandb", "mlflow": "mlflow", "tensorboard": "tensorboardX"}


def make_monitors(names: Sequence[str], title: str, config: Mapping[str, Any]) -> list[Any]:
    """Returns the monitors of a run; TensorBoard has none of its own, since a run directory has its events anyway.

    Args:
        names: From `MONITORS`.
        title: Name of the run.
        config: The whole config of the trainer.

    Raises:
        ConfigError: If a name is unknown, or what it needs is not installed.
    """
    check_monitors(names)
    return [_MAKERS[name](title, to_jsonable(config)) for name in dict.fromkeys(names) if name in _MAKERS]


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
    def __init__(self, title: str, config: dict[str, Any]) -> None:
        wandb: Any = importlib.import_module("wandb")
        self._run = wandb.init(project="rlframe", name=title, config=config)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    def __init__(self, title: str, config: dict[str, Any]) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        self._mlflow.start_run(run_name=title)
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
