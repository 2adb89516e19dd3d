"""RLlib's path to `GaussianNoise`; it lives in `rlframe.exploration`."""

from rlframe.exploration.gaussian_noise import GaussianNoise

__all__ = ["GaussianNoise"]
