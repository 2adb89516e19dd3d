"""`tune.Trainable`, whose methods may have the names of Ray 0.8: `_setup`, `_train`, `_save`, `_restore`, `_stop`."""

from __future__ import annotations

from typing import Any

import ray.tune

from rlframe.trainer.old_names import give_present_names


class Trainable(ray.tune.Trainable):
    """Base of trainables of one's own; `ray.tune.Trainable`, and subclasses may use the method names of Ray 0.8."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Gives methods that have their old names the present ones as well."""
        super().__init_subclass__(**kwargs)
        give_present_names(cls)
