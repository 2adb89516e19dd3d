"""Loggers of Ray 1.x for services that keep track of experiments: `WandbLogger`, `MLflowLogger`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any, ClassVar

from ray.air.integrations import wandb
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.air.integrations.wandb import WandbLoggerCallback
from ray.tune.logger import LoggerCallback

from rlframe.tune.logger import Logger
from rlframe.utils.errors import ConfigError

# What may be logged to Weights & Biases, whose own classes are there where it is installed: programs that widen
# `_is_allowed_type` by a copy of their own read these.
_OF_WANDB = (getattr(wandb, name, None) for name in ("WBValue", "Image", "Video"))
_VALID_ITERABLE_TYPES = tuple(kind for kind in _OF_WANDB if kind is not None)
_VALID_TYPES = (Number, *_VALID_ITERABLE_TYPES)


class CallbackLogger(Logger):
    """Hands a trial's results to a callback of its own, which is made of a section of the trial's config.

    The section is `config["logger_config"][section]`, or `config[section]`, as in Ray 1.x.

    Attributes:
        section: Name of the section, whose keys are the callback's arguments.
        callback_class: Makes the callback.
    """

    section: ClassVar[str]
    callback_class: ClassVar[type[LoggerCallback]]

    def _init(self) -> None:
        """Makes the callback, and begins the trial.

        Raises:
            ConfigError: If there is no such section, or no trial.
        """
        name = type(self).__name__
        if self.trial is None:
            raise ConfigError(f"{name}: got no trial, wanted one of Tune's; use tune.run(..., loggers=[{name}])")
        self._callback = self.callback_class(**self._settings())
        self._callback.setup()
        self._callback.log_trial_start(self.trial)

    def _settings(self) -> dict[str, Any]:
        given = (self.config.get("logger_config") or {}).get(self.section, self.config.get(self.section))
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"logger_config.{self.section}: got {given!r}, wanted a dict of {self.callback_class.__name__}'s "
                f"arguments, which {type(self).__name__} reads; or give tune.run(callbacks=[...]) that callback"
            )
        return dict(given)

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Hands a result on."""
        self._callback.log_trial_result(result.get("training_iteration", 0), self.trial, dict(result))

    def close(self) -> None:
        """Ends the trial, and waits for what is still being sent."""
        self._callback.log_trial_end(self.trial)
        self._callback.on_experiment_end([self.trial])


class WandbLogger(CallbackLogger):
    """Sends results to Weights & Biases: `config={"logger_config": {"wandb": {"project": ..., "api_key": ...}}}`."""

    section = "wandb"
    callback_class = WandbLoggerCallback


class MLflowLogger(CallbackLogger):
    """Sends results to MLflow: `config={"logger_config": {"mlflow": {"experiment_name": ...}}}`."""

    section = "mlflow"
    callback_class = MLflowLoggerCallback
