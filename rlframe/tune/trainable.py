"""`tune.Trainable`, whose methods may have the names of Ray 0.8: `_setup`, `_train`, `_save`, `_restore`, `_stop`."""

from __future__ import annotations

from typing import Any

import ray.tune

_OLD_NAMES = {
    "_setup": "setup",
    "_train": "step",
    "_save": "save_checkpoint",
    "_restore": "load_checkpoint",
    "_log_result": "log_result",
    "_stop": "cleanup",
}


class Trainable(ray.tune.Trainable):
    """Base of trainables of one's own; `ray.tune.Trainable`, and subclasses may use the method names of Ray 0.8."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Gives methods that have their old names the present ones as well."""
        super().__init_subclass__(**kwargs)
        for old, new in _OLD_NAMES.items():
            if old in cls.__dict__ and new not in cls.__dict__:
                setattr(cls, new, _saving(cls.__dict__[old]) if old == "_save" else cls.__dict__[old])


def _saving(save: Any) -> Any:
    """Returns `save_checkpoint` from `_save`, which returned the path of what it had written, or a dict to be kept."""

    def save_checkpoint(self: Any, checkpoint_dir: str) -> dict[str, Any] | None:
        kept = save(self, checkpoint_dir)
        return kept if isinstance(kept, dict) else None

    return save_checkpoint
