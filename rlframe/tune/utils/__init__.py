"""`ray.tune.utils`, where programs that import `rlframe.tune.utils` look for it."""

from ray.tune.utils import *  # noqa: F403 (its whole surface)
from ray.tune.utils import merge_dicts

__all__ = ["merge_dicts"]
