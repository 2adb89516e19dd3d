"""`ray.tune.stopper`, where programs that import `rlframe.tune.stopper` look for it."""

from ray.tune.stopper import *  # noqa: F403 (its whole surface)
