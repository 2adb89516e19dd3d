"""Environments that can be set to different tasks, for curricula and meta-learning."""

from __future__ import annotations

from typing import Any

import gymnasium


class TaskSettableEnv(gymnasium.Env[Any, Any]):
    """An environment whose task (any object) can be changed; the change holds from the next reset on."""

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Returns `n_tasks` random tasks."""
        raise NotImplementedError(f"{type(self).__name__} must define sample_tasks().")

    def set_task(self, task: Any) -> None:
        """Sets the task."""
        raise NotImplementedError(f"{type(self).__name__} must define set_task().")

    def get_task(self) -> Any:
        """Returns the current task."""
        raise NotImplementedError(f"{type(self).__name__} must define get_task().")
