"""RLlib's path to `Exploration`; it lives in `rlframe.exploration`."""

from rlframe.exploration.exploration import Exploration

__all__ = ["Exploration"]
