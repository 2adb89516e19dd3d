"""RLlib's path to `PerWorkerEpsilonGreedy`; it lives in `rlframe.exploration`."""

from rlframe.exploration.per_worker_epsilon_greedy import PerWorkerEpsilonGreedy

__all__ = ["PerWorkerEpsilonGreedy"]
