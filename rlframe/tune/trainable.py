"""`tune.Trainable` as in Ray 1.x, whose methods may have the names of Ray 0.8: `_setup`, `_train`, `_save`, `_stop`."""

from __future__ import annotations

import os
from typing import Any

from rlframe.trainer import checkpoint_paths
from rlframe.trainer.old_names import give_present_names
from rlframe.trainer.saving import TrainableOfRay1


class Trainable(TrainableOfRay1):
    """Base of trainables of one's own: `ray.tune.Trainable`, whose checkpoints have paths, as in Ray 1.x.

    Subclasses may use the method names of Ray 0.8.
    """

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

    def restore(self, checkpoint_path: Any) -> None:
        """Goes on from a checkpoint: the path that `save` returned, the checkpoint's directory, or Tune's object."""
        if isinstance(checkpoint_path, (str, os.PathLike)):
            path = os.fspath(checkpoint_path)
            checkpoint_path = checkpoint_paths.noted_directory(path) or path
        super().restore(checkpoint_path)
