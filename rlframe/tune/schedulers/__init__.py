"""`ray.tune.schedulers`, where programs that import `rlframe.tune.schedulers` look for it."""

from typing import Any

from ray.tune import schedulers as rays
from ray.tune.schedulers import *  # noqa: F403 (its whole surface)

from rlframe.tune.schedulers.pbt import PopulationBasedTraining as PopulationBasedTraining


def create_scheduler(scheduler: str, **kwargs: Any) -> Any:
    """Returns the scheduler of a name, such as "asynchyperband" or "pbt"; see Ray's `create_scheduler`."""
    if scheduler == "pbt":
        return PopulationBasedTraining(**kwargs)
    return rays.create_scheduler(scheduler, **kwargs)
