"""RLlib's path to `StochasticSampling`; it lives in `rlframe.exploration`."""

from rlframe.exploration.stochastic_sampling import StochasticSampling

__all__ = ["StochasticSampling"]
