"""What a policy is worth, by experience alone: estimators with intervals, and when the data cannot say."""

from rlframe.offline.evaluation.logged_episodes import LoggedEpisodes, read_episodes
from rlframe.offline.evaluation.off_policy import ESTIMATORS, OffPolicyReport, OffPolicySettings, evaluate_off_policy
from rlframe.offline.evaluation.target_policy import TargetPolicy

__all__ = [
    "ESTIMATORS",
    "LoggedEpisodes",
    "OffPolicyReport",
    "OffPolicySettings",
    "TargetPolicy",
    "evaluate_off_policy",
    "read_episodes",
]
