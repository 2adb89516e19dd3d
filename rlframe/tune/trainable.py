"""`tune.Trainable` as in Ray 1.x, whose methods may have the names of Ray 0.8: `_setup`, `_train`, `_save`, `_stop`."""

from __future__ import annotations

import os
from typing import Any, cast

import ray.tune

from rlframe.trainer import checkpointing
from rlframe.trainer.old_names import give_present_names


class Trainable(ray.tune.Trainable):
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
            checkpointing.number_by_iteration(self._storage, self.iteration)
            return super().save(checkpoint_dir)
        directory = os.path.join(checkpoint_dir or self.logdir, f"checkpoint_{self.iteration:06d}")
        super().save(directory)
        return checkpointing.path_of(directory)

    def restore(self, checkpoint_path: Any) -> None:
        """Goes on from a checkpoint: the path that `save` returned, the checkpoint's directory, or Tune's object."""
        if isinstance(checkpoint_path, (str, os.PathLike)):
            path = os.fspath(checkpoint_path)
            checkpoint_path = checkpointing.noted_directory(path) or path
        super().restore(checkpoint_path)

    def _report_class_trainable_checkpoint(self, checkpoint_dir: str, checkpoint_dict_or_path: Any) -> Any:
        """Tells Tune of a checkpoint; what `save_checkpoint` returned may be the path of a file, which Tune refuses."""
        kept = checkpoint_dict_or_path if isinstance(checkpoint_dict_or_path, dict) else None
        return cast(Any, super())._report_class_trainable_checkpoint(checkpoint_dir, kept)
