"""RLlib's path to `SoftQ`; it lives in `rlframe.exploration`."""

from rlframe.exploration.soft_q import SoftQ

__all__ = ["SoftQ"]
