"""RLlib's path to `ParameterNoise`; it lives in `rlframe.exploration`."""

from rlframe.exploration.parameter_noise import ParameterNoise

__all__ = ["ParameterNoise"]
