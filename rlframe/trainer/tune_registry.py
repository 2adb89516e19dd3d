"""Algorithms by name: in Ray Tune's registry of trainables, and for checkpoints, which have the name alone.

What stands above has the classes, and connects what finds them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from rlframe.utils.errors import ConfigError

_find: Callable[[str], Any] | None = None


class TrainableName:
    """Stands in Tune's registry for an algorithm: unpickling it imports the trainer class.

    Args:
        name: The algorithm's name.
        get_class: `fn(name)` that returns the class; a function of a module.
    """

    def __init__(self, name: str, get_class: Callable[[str], Any]) -> None:
        self.name = name
        self._get_class = get_class

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """Pickles as the look-up of the class."""
        return self._get_class, (self.name,)


def register(names: Iterable[str], get_class: Callable[[str], Any], again: Callable[[], None]) -> None:
    """Makes `tune.run("DQN")` find this package's algorithms, and no other library's.

    A name under which the program itself registered something is left alone.

    Args:
        names: Of the algorithms.
        get_class: `fn(name)` that returns a trainer class, or raises with a sentence.
        again: Called after each `ray.init()`, which forgets names.
    """
    from ray.tune import registry

    from rlframe.evaluation import shared_names

    shared_names.connect()
    if _in_worker_process():
        return  # workers look names up where the driver put them
    known: Any = registry._global_registry
    for name in sorted(names):
        if not known.contains(registry.TRAINABLE_CLASS, name) or _is_of_rllib(registry, name):
            known.register(registry.TRAINABLE_CLASS, name, TrainableName(name, get_class))
    shared_names.publish_all()
    _call_after_each_init(again)


def _is_of_rllib(registry: Any, name: str) -> bool:
    if "ray.rllib" not in sys.modules:  # else Ray may have put its own there, asked for a name after ray.shutdown()
        return False
    try:
        cls = registry._global_registry.get(registry.TRAINABLE_CLASS, name)
    except ConfigError:  # ours, of an algorithm that is not built
        return False
    return str(getattr(cls, "__module__", "")).startswith("ray.rllib.")


def _in_worker_process() -> bool:
    import ray

    return bool(ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


def _call_after_each_init(function: Callable[[], None]) -> None:
    from ray._private import worker

    hooks = getattr(worker, "_post_init_hooks", None)  # private to Ray: without it, only a second init needs care
    if hooks is not None and function not in hooks:
        hooks.append(function)


def connect(find: Callable[[str], Any]) -> None:
    """Takes what finds built-in algorithms.

    Args:
        find: `fn(name)` that returns a trainer class, None for a name that is no built-in algorithm's.
    """
    global _find
    _find = find


def find_trainer_class(name: str) -> Any:
    """Returns the trainer class of a built-in algorithm, None if there is none of this name."""
    return None if _find is None else _find(name)


__all__ = ["TrainableName", "connect", "find_trainer_class", "register"]
