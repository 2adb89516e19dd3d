"""`ray.tune.schedulers`, where programs that import `rlframe.tune.schedulers` look for it."""

from ray.tune.schedulers import *  # noqa: F403 (its whole surface)
from ray.tune.schedulers import create_scheduler as create_scheduler  # not in `__all__`
