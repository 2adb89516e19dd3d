"""`ray.tune.tune`, where programs that import `rlframe.tune.tune` look for what runs trials."""

from rlframe.tune import run, run_experiments

__all__ = ["run", "run_experiments"]
