"""`tune.Experiment` with the arguments of Ray 1.x."""

from __future__ import annotations

from typing import Any

import ray.tune

from rlframe.agents.registry import register_trainables
from rlframe.tune.translate import reserving, translate_run, with_old_checkpoints


class Experiment(ray.tune.Experiment):
    """Ray's, which also takes `local_dir`, `checkpoint_freq` and the like.

    Args:
        name: Its name.
        run: Name of an algorithm, a trainer class or a function.
        **kwargs: Arguments of either version, see `rlframe.tune.translate`.
    """

    def __init__(self, name: str, run: Any, **kwargs: Any) -> None:
        register_trainables()  # once more: ray.shutdown() forgets them, and Ray would import algorithms of its own
        arguments = translate_run(kwargs)
        super().__init__(name, reserving(run, arguments), **arguments)


def with_present_keys(given: Any) -> Any:
    """Returns experiments with what a program of Ray 1.x wrote into their `spec` in today's words."""
    if isinstance(given, (list, tuple)):
        return [with_present_keys(experiment) for experiment in given]
    if isinstance(given, ray.tune.Experiment):
        with_old_checkpoints(given.spec)
    return given
