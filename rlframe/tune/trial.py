"""`ray.tune.trial` of Ray 1.x."""

from ray.tune.experiment import Trial

__all__ = ["Trial"]
