"""Names and collection of what learning reports."""

from rlframe.utils.metrics.learner_info import LEARNER_INFO, LEARNER_STATS_KEY, LearnerInfoBuilder

__all__ = ["LEARNER_INFO", "LEARNER_STATS_KEY", "LearnerInfoBuilder"]
