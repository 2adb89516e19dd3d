"""`ray.tune.trial` of Ray 1.x."""

from ray.tune.experiment import Trial
from ray.tune.experiment.trial import ExportFormat

__all__ = ["ExportFormat", "Trial"]
