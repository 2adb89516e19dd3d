"""Loggers of Tune, those of Ray 1.x among them: `UnifiedLogger`, `NoopLogger`, and `Logger` to derive one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from ray.tune.logger import *  # noqa: F403 (its whole surface)
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
from ray.tune.logger.tensorboardx import VALID_SUMMARY_TYPES

from rlframe.trainer.loggers import RunLogger

__all__ = [
    "DEFAULT_LOGGERS",
    "VALID_SUMMARY_TYPES",
    "CSVLogger",
    "CSVLoggerCallback",
    "JsonLogger",
    "JsonLoggerCallback",
    "LegacyLoggerCallback",
    "Logger",
    "LoggerCallback",
    "NoopLogger",
    "TBXLogger",
    "TBXLoggerCallback",
    "UnifiedLogger",
    "logger_callbacks",
    "pretty_print",  # noqa: F405 (Ray's)
]


class Logger:
    """Base of a logger of one's own, as in Ray 1.x: override `_init`, `on_result`, `flush`, `close`.

    Args:
        config: Config of the trial.
        logdir: Its directory.
        trial: The trial, None outside of Tune.
    """

    def __init__(self, config: Mapping[str, Any], logdir: str, trial: Any = None) -> None:
        self.config = config
        self.logdir = logdir
        self.trial = trial
        self._init()

    def _init(self) -> None:
        """Opens what is needed."""

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Takes a result."""

    def update_config(self, config: Mapping[str, Any]) -> None:
        """Takes a changed config."""
        self.config = config

    def flush(self) -> None:
        """Writes what is waiting."""

    def close(self) -> None:
        """Closes what was opened."""


class NoopLogger(Logger):
    """Writes nothing."""


class _RunFiles(Logger):
    """Writes a run directory (`params.json`, `result.jsonl`, `progress.csv`, TensorBoard events); Tune writes its own.

    Attributes:
        writer: What writes the files, None in a trial of Tune, and where a program's own `_init` opens others.
    """

    writer: RunLogger | None = None

    def _init(self) -> None:
        """Opens the files."""
        self.writer = RunLogger(self.logdir, self.config, old_name=True) if self.trial is None else None

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Writes a result."""
        if self.writer is not None:
            self.writer.on_result(result)

    def update_config(self, config: Mapping[str, Any]) -> None:
        """Writes a changed config."""
        super().update_config(config)
        if self.writer is not None:
            self.writer.update_config(config)

    def flush(self) -> None:
        """Hands what was written to the operating system."""
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        """Closes the files."""
        if self.writer is not None:
            self.writer.close()


class JsonLogger(_RunFiles):
    """Stands for the JSON that Tune writes for each trial; elsewhere it writes all forms of a run directory."""


class CSVLogger(_RunFiles):
    """Stands for the CSV file that Tune writes for each trial; elsewhere it writes all forms of a run directory."""


class TBXLogger(_RunFiles):
    """Stands for the TensorBoard events that Tune writes; elsewhere it writes all forms of a run directory.

    Classes of a program's own that derive from it write what they are given to events of their own, beside Tune's.
    """

    last_result: Any = None  # programs keep here what their own `on_result` wrote

    @cached_property
    def _file_writer(self) -> Any:
        """What writes events, by Ray's name; the file is opened with the first."""
        from tensorboardX import SummaryWriter

        return SummaryWriter(self.logdir, flush_secs=30)

    @cached_property
    def _of_trial(self) -> TBXLoggerCallback:
        made = TBXLoggerCallback()
        made._trial_writer[self.trial], made._trial_result[self.trial] = self._file_writer, {}
        return made

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Writes a result."""
        if self.trial is None or type(self) is TBXLogger:
            super().on_result(result)
        else:
            self._of_trial.log_trial_result(0, self.trial, dict(result))

    def flush(self) -> None:
        """Hands what was written to the operating system."""
        super().flush()
        if "_file_writer" in vars(self):
            self._file_writer.flush()

    def close(self) -> None:
        """Closes the files, after Tune's table of a trial's settings and last results."""
        super().close()
        if "_of_trial" in vars(self):
            self._of_trial.log_trial_end(self.trial)
        elif "_file_writer" in vars(self):
            self._file_writer.close()


DEFAULT_LOGGERS = (JsonLogger, CSVLogger, TBXLogger)


class UnifiedLogger(Logger):
    """Hands results to several loggers, by default those that write a run directory.

    For `Trainer(logger_creator=lambda config: UnifiedLogger(config, directory, loggers=None))`, and to derive from.

    Args:
        config: Whole config of the trainer.
        logdir: Directory of the run.
        trial: The trial, None outside of Tune.
        loggers: Logger classes or functions `(config, logdir, trial)`; None for the default ones.
        sync_function: Accepted for old programs.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        logdir: str,
        trial: Any = None,
        loggers: Iterable[Callable[..., Any]] | None = None,
        sync_function: Any = None,
    ) -> None:
        del sync_function
        self._makers = DEFAULT_LOGGERS if loggers is None else tuple(loggers)
        super().__init__(config, logdir, trial)

    def _init(self) -> None:
        """Makes the loggers; the default ones, which write the same files, once."""
        defaults = [make for make in self._makers if make in DEFAULT_LOGGERS]
        makers = [*defaults[:1], *(make for make in self._makers if make not in DEFAULT_LOGGERS)]
        self._loggers = [make(self.config, self.logdir, self.trial) for make in makers]

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Hands a result on."""
        for logger in self._loggers:
            logger.on_result(result)

    def update_config(self, config: Mapping[str, Any]) -> None:
        """Hands a changed config on."""
        super().update_config(config)
        for logger in self._loggers:
            logger.update_config(config)

    def flush(self, sync_down: bool = True) -> None:
        """Flushes the loggers; `sync_down` is accepted for old programs."""
        del sync_down
        for logger in self._loggers:
            logger.flush()

    def close(self) -> None:
        """Closes the loggers."""
        for logger in self._loggers:
            logger.close()


_MADE_ANYWAY = (*DEFAULT_LOGGERS, NoopLogger, UnifiedLogger)


def logger_callbacks(loggers: Iterable[Callable[..., Any]], experiment: str | None = None) -> list[Any]:
    """Returns the callbacks that do what loggers of Ray 1.x did.

    Args:
        loggers: Logger classes or functions `(config, logdir, trial)`; those that Tune makes anyway are left out.
        experiment: Name of the experiment whose trials get loggers; None for all trials.
    """
    own = [logger for logger in loggers if logger not in _MADE_ANYWAY]
    made: list[Any] = [logger for logger in own if isinstance(logger, LoggerCallback)]
    classes = [logger for logger in own if not isinstance(logger, LoggerCallback)]
    return [*made, *([OldLoggers(classes, experiment)] if classes else [])]


class OldLoggers(LoggerCallback):
    """Gives each trial loggers of its own, in the driver.

    Args:
        classes: Called with `(config, logdir, trial)` for each trial.
        experiment: Name of the experiment whose trials get loggers; None for all trials.
    """

    def __init__(self, classes: Iterable[Callable[..., Any]], experiment: str | None = None) -> None:
        self._classes = tuple(classes)
        self._experiment = experiment
        self._loggers: dict[str, list[Any]] = {}

    def log_trial_start(self, trial: Any) -> None:
        """Makes the loggers of a trial."""
        if self._experiment not in (None, trial.storage.experiment_dir_name):
            return
        self._loggers[trial.trial_id] = [make(trial.config, trial.local_path, trial) for make in self._classes]

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        """Hands a result on."""
        del iteration
        for logger in self._loggers.get(trial.trial_id, ()):
            logger.on_result(result)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        """Closes the loggers of a trial."""
        del failed
        for logger in self._loggers.pop(trial.trial_id, ()):
            logger.flush()
            logger.close()


#: Ray 1.x's name.
LegacyLoggerCallback = OldLoggers
