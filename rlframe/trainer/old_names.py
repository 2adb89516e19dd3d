"""Methods of trainables by their names in Ray 0.8: `_setup`, `_train`, `_save`, `_restore`, `_log_result`, `_stop`."""

from __future__ import annotations

import os
from typing import Any

_PRESENT_NAMES = {
    "_setup": "setup",
    "_train": "step",
    "_save": "save_checkpoint",
    "_restore": "load_checkpoint",
    "_log_result": "log_result",
    "_stop": "cleanup",
}
#: Beside a checkpoint: the file in it whose path `_save` returned, which `_restore` is given.
_WRITTEN = "written_by_save.txt"


def give_present_names(cls: type[Any]) -> None:
    """Gives a class whose methods have their old names the present ones as well, but for those that it has."""
    for old, new in _PRESENT_NAMES.items():
        method = cls.__dict__.get(old)
        if method is not None and new not in cls.__dict__:
            adapted = {"_save": _saving, "_restore": _restoring}.get(old)
            setattr(cls, new, method if adapted is None else adapted(method))


def _saving(save: Any) -> Any:
    """Returns `save_checkpoint` from `_save`, which returned the path of what it had written, or a dict to be kept."""

    def save_checkpoint(self: Any, checkpoint_dir: str) -> dict[str, Any] | None:
        kept = save(self, checkpoint_dir)
        if isinstance(kept, str) and os.path.dirname(os.path.abspath(kept)) == os.path.abspath(checkpoint_dir):
            with open(os.path.join(checkpoint_dir, _WRITTEN), "w", encoding="utf-8") as file:
                file.write(os.path.basename(kept))
        return kept if isinstance(kept, dict) else None

    return save_checkpoint


def _restoring(restore: Any) -> Any:
    """Returns `load_checkpoint` from `_restore`, which took what `_save` had returned."""

    def load_checkpoint(self: Any, checkpoint: Any) -> None:
        note = None if isinstance(checkpoint, dict) else os.path.join(checkpoint, _WRITTEN)
        if note is not None and os.path.isfile(note):
            with open(note, encoding="utf-8") as file:
                checkpoint = os.path.join(checkpoint, os.path.basename(file.read()))
        restore(self, checkpoint)

    return load_checkpoint
