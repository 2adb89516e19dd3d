"""`ray.tune.search`, where programs that import `rlframe.tune.search` look for it."""

from ray.tune.search import *  # noqa: F403 (its whole surface)
