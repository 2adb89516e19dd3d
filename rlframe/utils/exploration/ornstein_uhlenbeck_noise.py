"""RLlib's path to `OrnsteinUhlenbeckNoise`; it lives in `rlframe.exploration`."""

from rlframe.exploration.ornstein_uhlenbeck_noise import OrnsteinUhlenbeckNoise

__all__ = ["OrnsteinUhlenbeckNoise"]
