"""The tasks of a worker's environments, as `env_task_fn` has set them: a part of what checkpoints hold."""

from __future__ import annotations

import logging
from typing import Any

from rlframe.evaluation.episode_state import is_state

_LOGGER = logging.getLogger("rlframe")


def tasks_of(worker: Any) -> list[Any] | None:
    """Returns the task of each environment; None where no function of the config sets them, or they are no state.

    Numbers, text, arrays, lists and dicts of them, and tuples of all these are state.
    """
    if worker.policy_config.env_task_fn is None or not worker.slots:
        return None
    tasks: list[Any] = worker.foreach_env(lambda env: env.get_task())
    for task in tasks:
        if not _is_state(task):
            _LOGGER.warning(
                "env_task_fn sets tasks such as %r, which no checkpoint can hold: behind a restore environments have "
                "their first task until an iteration ends",
                task,
            )
            return None
    return tasks


def _is_state(task: Any) -> bool:
    return all(map(_is_state, task)) if type(task) is tuple else is_state("", task)


def set_tasks(worker: Any, tasks: list[Any] | None) -> None:
    """Gives environments the tasks that they had; as many as there are of both."""
    for env, task in zip(worker.async_env.envs if tasks else (), tasks or (), strict=False):
        env.set_task(task)
