"""Methods of trainables as in Ray 0.8 (`_setup`, `_train`, `_save`, `_restore`, `_log_result`, `_stop`) and Ray 1.x.

Up to Ray 1.13 the method that saves returned the path of the file that it had written, and the one that restores was
given that path. Today's Ray knows the directory alone, so the path is noted in it.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from typing import Any

import ray.tune

from rlframe.trainer.checkpoint_paths import NOTE, noted_directory, path_of, read_note
from rlframe.trainer.saving import trial_directory

_PRESENT_NAMES = {
    "_setup": "setup",
    "_train": "step",
    "_save": "save_checkpoint",
    "_restore": "load_checkpoint",
    "_log_result": "log_result",
    "_stop": "cleanup",
}
_COUNTERS = ("_iteration", "_time_total", "_timesteps_total", "_episodes_total", "experiment_id")


class _TunesLogger:
    """What makes a trial's logger in Ray 1.x: Tune writes the results, so that it knows the directory alone."""

    def __init__(self, config: dict[str, Any], logdir: str) -> None:
        self.config = config
        self.logdir = logdir

    def _pass(self, *args: Any) -> None:
        """Writes nothing."""

    on_result = update_config = flush = close = _pass


class _Kept(dict[str, Any]):
    """What a program's own `save_checkpoint` returned, which Ray pickles, with the trainable's counters."""

    counters: dict[str, Any]


def give_present_names(cls: type[Any]) -> None:
    """Gives a class whose methods have their old names the present ones as well, but for those that it has.

    Methods that save and restore under their present names may return and take paths of files, too, and constructors
    have Ray 1.x's arguments.
    """
    if (constructor := _constructor_of_ray1(cls)) is not None:
        cls.__init__ = constructor
    for old, new in _PRESENT_NAMES.items():
        adapted = {"_save": _saving, "_restore": _restoring}.get(old)
        method = cls.__dict__.get(new if new in cls.__dict__ and adapted else old)
        if method is not None and (adapted or new not in cls.__dict__):
            setattr(cls, new, method if adapted is None else adapted(method))
    for name, adapted in (("save_checkpoint", _saving), ("load_checkpoint", _restoring)):
        owner = next(base for base in cls.__mro__ if name in base.__dict__)
        if _is_mixin(owner):
            setattr(cls, name, adapted(owner.__dict__[name]))


def _constructor_of_ray1(cls: type[Any]) -> Any:
    """Returns a class's constructor as Tune calls it, where that is its own; None if it needs nothing.

    Tune hands a trial's storage to the constructor, in Ray 1.x it was a logger's maker. What a program's own does not
    take, or not hand on, waits in the object for the constructor at the bottom.
    """
    owner = next(base for base in cls.__mro__ if "__init__" in base.__dict__)
    construct = owner.__dict__["__init__"]
    parameters = inspect.signature(construct).parameters if inspect.isfunction(construct) else {}
    if not (owner is cls or _is_mixin(owner)) or not parameters or "storage" in parameters:
        return None

    def __init__(self: Any, *args: Any, storage: Any = None, **kwargs: Any) -> None:  # noqa: N807  # is one
        if storage is not None:
            self._storage_of_trial = storage
        of_trial = self.__dict__.get("_storage_of_trial")
        if of_trial and "logger_creator" in parameters and len(args) < list(parameters).index("logger_creator"):
            kwargs.setdefault("logger_creator", functools.partial(_TunesLogger, logdir=trial_directory(of_trial)))
        construct(self, *args, **kwargs)

    functools.update_wrapper(__init__, construct)
    del vars(__init__)["__wrapped__"]  # Ray reads the signature
    return __init__


def _is_mixin(base: type[Any]) -> bool:
    """Returns whether a base of a trainable's class is none itself, so that nobody has seen to its methods."""
    return not issubclass(base, ray.tune.Trainable)


def _saving(save: Any) -> Any:
    """Returns `save_checkpoint` from one that may return the path of what it wrote, or a dict to be kept."""

    @functools.wraps(save)
    def save_checkpoint(self: Any, checkpoint_dir: str) -> Any:
        if self.__dict__.get("_is_saving"):  # called above by a subclass's, which is given what was returned
            return save(self, checkpoint_dir)
        self._is_saving = True
        try:
            kept = save(self, checkpoint_dir)
        finally:
            del self._is_saving
        counters = {name: getattr(self, name) for name in _COUNTERS}
        if isinstance(kept, dict):
            kept = _Kept(kept)
            kept.counters = counters
            return kept
        if os.path.isdir(checkpoint_dir):
            noted = {"file": _within(checkpoint_dir, kept), "counters": counters}
            with open(os.path.join(checkpoint_dir, NOTE), "w", encoding="utf-8") as file:
                json.dump(noted, file, default=float)
        return kept

    return save_checkpoint


def _within(checkpoint_dir: str, path: Any) -> str | None:
    """Returns where a path leads in a checkpoint's directory; None if it leads elsewhere, or is none."""
    if not isinstance(path, (str, os.PathLike)):
        return None
    inside = os.path.relpath(path, checkpoint_dir)
    if inside.split(os.sep)[0] == os.pardir:
        return None
    return "" if inside == os.curdir else inside


def _restoring(restore: Any) -> Any:
    """Returns `load_checkpoint` from one that takes what the method that saves had returned."""

    @functools.wraps(restore)
    def load_checkpoint(self: Any, checkpoint: Any) -> None:
        counters = getattr(checkpoint, "counters", {})
        if isinstance(checkpoint, (str, os.PathLike)):
            directory = noted_directory(os.fspath(checkpoint))
            counters = {} if directory is None else read_note(directory)["counters"]
            if os.path.isdir(checkpoint):
                checkpoint = path_of(os.fspath(checkpoint))
        for name in _COUNTERS:  # today's Ray takes them from its own results, and has none of a path
            setattr(self, name, counters.get(name, getattr(self, name)))
        restore(self, checkpoint)

    return load_checkpoint
