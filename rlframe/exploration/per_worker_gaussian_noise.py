"""Gaussian noise with a constant scale for each worker."""

from __future__ import annotations

from typing import Any

from rlframe.exploration.gaussian_noise import GaussianNoise
from rlframe.exploration.per_worker import per_worker_constant
from rlframe.utils.schedules import ConstantSchedule


class PerWorkerGaussianNoise(GaussianNoise):
    """Gaussian noise whose scale is constant and different on each remote worker, and 0 on the local one.

    Without remote workers it is `GaussianNoise`.

    Args:
        action_space: The environment's action space, a Box of floats.
        scale_schedule: Without remote workers: scale by env step.
        **options: The other options of `GaussianNoise`, and what every `Exploration` is given.

    Source: see `per_worker_constant`.
    """

    def __init__(self, action_space: Any, *, scale_schedule: Any = None, **options: Any) -> None:
        scale = per_worker_constant(options.get("num_workers", 0), options.get("worker_index", 0))
        schedule = scale_schedule if scale is None else ConstantSchedule(scale)
        super().__init__(action_space, scale_schedule=schedule, **options)
