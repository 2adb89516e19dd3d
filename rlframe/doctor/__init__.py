"""What most likely keeps an environment or a run from learning: findings in that order, with the key to change."""

from rlframe.doctor.environment import examine_env
from rlframe.doctor.finding import Finding
from rlframe.doctor.policies import examine_trainer
from rlframe.doctor.run import examine_results, examine_run

__all__ = ["Finding", "examine_env", "examine_results", "examine_run", "examine_trainer"]
