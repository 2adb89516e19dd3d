"""RLlib's path to `Random`; it lives in `rlframe.exploration`."""

from rlframe.exploration.random import Random

__all__ = ["Random"]
