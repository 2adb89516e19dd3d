"""`tune.Trainable` as in Ray 1.x, whose methods may have the names of Ray 0.8: `_setup`, `_train`, `_save`, `_stop`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

from rlframe.trainer import checkpoint_paths
from rlframe.trainer.old_names import give_present_names
from rlframe.trainer.saving import TrainableOfRay1


class Trainable(TrainableOfRay1):
    """Base of trainables of one's own: `ray.tune.Trainable`, whose checkpoints have paths, as in Ray 1.x.

    Subclasses may use the method names of Ray 0.8.

    Args:
        config: Of the trial.
        logger_creator: `fn(config) -> logger` with `on_result(result)` and `logdir`; outside of Tune it is used.
        remote_checkpoint_dir: Accepted for old programs; Tune's storage decides today.
        sync_function_tpl: Accepted for old programs; Tune's storage decides today.
        storage: Given by Tune; today's constructor has it second, and a second argument that is no function is it.
    """

    _result_logger: Any = None

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        logger_creator: Callable[[dict[str, Any]], Any] | None = None,
        remote_checkpoint_dir: str | None = None,
        sync_function_tpl: Any = None,
        storage: Any = None,
    ) -> None:
        del remote_checkpoint_dir, sync_function_tpl
        if logger_creator is not None and not callable(logger_creator):
            logger_creator, storage = None, logger_creator
        self._logger_creator = logger_creator
        super().__init__(config, storage)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Gives methods that have their old names the present ones as well."""
        super().__init_subclass__(**kwargs)
        give_present_names(cls)

    def save(self, checkpoint_dir: str | None = None) -> Any:
        """Writes a checkpoint and returns its path, as in Ray 1.x; under Tune, which calls this, what Tune's own does.

        The path is what `save_checkpoint` returned, below `<checkpoint_dir>/checkpoint_<iteration>`; where it returned
        none in there, it is that directory with a slash behind it.

        Args:
            checkpoint_dir: Parent directory; None takes `logdir`.
        """
        if self._storage:
            checkpoint_paths.number_by_iteration(self._storage, self.iteration)
            return super().save(checkpoint_dir)
        directory = checkpoint_paths.directory_for(checkpoint_dir or self.logdir, self.iteration)
        super().save(directory)
        return checkpoint_paths.path_of(directory)

    def log_result(self, result: dict[str, Any]) -> None:
        """Hands a result to the logger that `logger_creator` made; Tune logs itself."""
        if self._result_logger is not None:
            self._result_logger.on_result(result)

    def stop(self) -> None:
        """Ends it; a logger that `logger_creator` made is flushed and closed behind that."""
        cast("Any", super()).stop()  # Ray has no types here
        logger, self._result_logger = self._result_logger, None
        for name in ("flush", "close"):
            getattr(logger, name, _nothing)()

    def _setup_logdir(self) -> None:
        if self._storage or self._logger_creator is None:
            super()._setup_logdir()
            return
        self._result_logger = self._logger_creator(self.config)
        self._logdir = self._result_logger.logdir

    def restore(self, checkpoint_path: Any) -> None:
        """Goes on from a checkpoint: the path that `save` returned, the checkpoint's directory, or Tune's object."""
        if isinstance(checkpoint_path, (str, os.PathLike)):
            path = os.fspath(checkpoint_path)
            checkpoint_path = checkpoint_paths.noted_directory(path) or path
        super().restore(checkpoint_path)


def _nothing() -> None:
    """What a logger without `flush` or `close` does."""
