"""RLlib's path to the explorations; they live in `rlframe.exploration`."""

from rlframe.exploration import (
    EpsilonGreedy,
    Exploration,
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    ParameterNoise,
    PerWorkerEpsilonGreedy,
    PerWorkerGaussianNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
    Random,
    SoftQ,
    StochasticSampling,
)

__all__ = [
    "EpsilonGreedy",
    "Exploration",
    "GaussianNoise",
    "OrnsteinUhlenbeckNoise",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "PerWorkerOrnsteinUhlenbeckNoise",
    "Random",
    "SoftQ",
    "StochasticSampling",
]
