"""`ray.tune.util`, as `ray.tune.utils` was called until Ray 0.8."""

from rlframe.tune.utils import merge_dicts

__all__ = ["merge_dicts"]
