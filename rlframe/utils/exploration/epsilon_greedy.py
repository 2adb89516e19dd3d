"""RLlib's path to `EpsilonGreedy`; it lives in `rlframe.exploration`."""

from rlframe.exploration.epsilon_greedy import EpsilonGreedy

__all__ = ["EpsilonGreedy"]
