"""Epsilon-greedy with a constant epsilon for each worker."""

from __future__ import annotations

from typing import Any

from rlframe.exploration.epsilon_greedy import EpsilonGreedy
from rlframe.exploration.per_worker import per_worker_constant
from rlframe.utils.schedules import ConstantSchedule


class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """Epsilon-greedy whose epsilon is constant and different on each remote worker, and 0 on the local one.

    Without remote workers it is `EpsilonGreedy`.

    Args:
        action_space: The environment's action space.
        epsilon_schedule: Without remote workers: epsilon by env step.
        **options: The other options of `EpsilonGreedy`, and what every `Exploration` is given.

    Source: see `per_worker_constant`.
    """

    def __init__(self, action_space: Any, *, epsilon_schedule: Any = None, **options: Any) -> None:
        epsilon = per_worker_constant(options.get("num_workers", 0), options.get("worker_index", 0))
        schedule = epsilon_schedule if epsilon is None else ConstantSchedule(epsilon)
        super().__init__(action_space, epsilon_schedule=schedule, **options)
