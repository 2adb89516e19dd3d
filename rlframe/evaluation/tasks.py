"""The tasks of a worker's environments, as `env_task_fn` or MAML has set them: a part of what checkpoints hold."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from rlframe.evaluation.episode_state import is_state

_LOGGER = logging.getLogger("rlframe")


def tasks_of(worker: Any) -> list[Any] | None:
    """Returns the task of each environment; None where nothing of the config sets them, or they are no state.

    Numbers, text, arrays, lists and dicts of them, and tuples of all these are state.
    """
    config = worker.policy_config
    if not worker.slots or (config.env_task_fn is None and not config.get("use_meta_env")):
        return None
    tasks: list[Any] = [task for task in worker.foreach_env(_task_of) if task is not None]
    for task in tasks:
        if not _is_state(task):
            _LOGGER.warning(
                "environments have tasks such as %r, which no checkpoint can hold: behind a restore environments have "
                "their first task until an iteration ends",
                task,
            )
            return None
    return tasks


def same_task(one: Any, other: Any) -> bool:
    """Returns whether two tasks are the same, arrays and their like by their numbers."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def _task_of(env: Any) -> Any:
    env = with_tasks(env)
    return env.get_task() if hasattr(env, "get_task") else None


def _is_state(task: Any) -> bool:
    return all(map(_is_state, task)) if type(task) is tuple else is_state("", task)


def set_tasks(worker: Any, tasks: list[Any] | None) -> None:
    """Gives environments the tasks that they had; as many as there are of both."""
    for env, task in zip(worker.async_env.envs if tasks else (), tasks or (), strict=False):
        with_tasks(env).set_task(task)


def with_tasks(env: Any) -> Any:
    """Returns the outermost of an environment's layers that can be set to a task, or else the environment."""
    layer = env
    while not callable(getattr(layer, "set_task", None)) and hasattr(layer, "env"):
        layer = layer.env
    return layer if hasattr(layer, "set_task") else env
