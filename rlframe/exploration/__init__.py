"""How a policy's outputs become actions while it learns: framework-free, seeded, and part of every checkpoint."""

from rlframe.exploration.curiosity import Curiosity
from rlframe.exploration.epsilon_greedy import EpsilonGreedy
from rlframe.exploration.exploration import Exploration, ExplorationArgs, per_worker_constant
from rlframe.exploration.gaussian_noise import GaussianNoise
from rlframe.exploration.make import available_explorations, make_exploration
from rlframe.exploration.ornstein_uhlenbeck_noise import OrnsteinUhlenbeckNoise
from rlframe.exploration.parameter_noise import ParameterNoise
from rlframe.exploration.per_worker_epsilon_greedy import PerWorkerEpsilonGreedy
from rlframe.exploration.per_worker_gaussian_noise import PerWorkerGaussianNoise
from rlframe.exploration.per_worker_ornstein_uhlenbeck_noise import PerWorkerOrnsteinUhlenbeckNoise
from rlframe.exploration.random import Random
from rlframe.exploration.random_encoder import RE3
from rlframe.exploration.random_network_distillation import RND
from rlframe.exploration.soft_q import SoftQ
from rlframe.exploration.stochastic_sampling import StochasticSampling

__all__ = [
    "RE3",
    "RND",
    "Curiosity",
    "EpsilonGreedy",
    "Exploration",
    "ExplorationArgs",
    "GaussianNoise",
    "OrnsteinUhlenbeckNoise",
    "ParameterNoise",
    "PerWorkerEpsilonGreedy",
    "PerWorkerGaussianNoise",
    "PerWorkerOrnsteinUhlenbeckNoise",
    "Random",
    "SoftQ",
    "StochasticSampling",
    "available_explorations",
    "make_exploration",
    "per_worker_constant",
]
