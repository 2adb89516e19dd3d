"""How a policy's outputs become actions while it learns: framework-free, seeded, and part of every checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.exploration.curiosity import Curiosity
    from rlframe.exploration.epsilon_greedy import EpsilonGreedy
    from rlframe.exploration.exploration import Exploration, ExplorationArgs, StochasticSampling
    from rlframe.exploration.gaussian_noise import GaussianNoise
    from rlframe.exploration.make import available_explorations, make_exploration
    from rlframe.exploration.ornstein_uhlenbeck_noise import OrnsteinUhlenbeckNoise
    from rlframe.exploration.parameter_noise import ParameterNoise
    from rlframe.exploration.per_worker import per_worker_constant
    from rlframe.exploration.per_worker_epsilon_greedy import PerWorkerEpsilonGreedy
    from rlframe.exploration.per_worker_gaussian_noise import PerWorkerGaussianNoise
    from rlframe.exploration.per_worker_ornstein_uhlenbeck_noise import PerWorkerOrnsteinUhlenbeckNoise
    from rlframe.exploration.random import Random
    from rlframe.exploration.random_encoder import RE3
    from rlframe.exploration.random_network_distillation import RND
    from rlframe.exploration.soft_q import SoftQ
    from rlframe.exploration.thompson_sampling import ThompsonSampling
    from rlframe.exploration.upper_confidence_bound import UpperConfidenceBound

_NAMES = {
    "Curiosity": "rlframe.exploration.curiosity",
    "EpsilonGreedy": "rlframe.exploration.epsilon_greedy",
    "Exploration": "rlframe.exploration.exploration",
    "ExplorationArgs": "rlframe.exploration.exploration",
    "GaussianNoise": "rlframe.exploration.gaussian_noise",
    "OrnsteinUhlenbeckNoise": "rlframe.exploration.ornstein_uhlenbeck_noise",
    "ParameterNoise": "rlframe.exploration.parameter_noise",
    "PerWorkerEpsilonGreedy": "rlframe.exploration.per_worker_epsilon_greedy",
    "PerWorkerGaussianNoise": "rlframe.exploration.per_worker_gaussian_noise",
    "PerWorkerOrnsteinUhlenbeckNoise": "rlframe.exploration.per_worker_ornstein_uhlenbeck_noise",
    "RE3": "rlframe.exploration.random_encoder",
    "RND": "rlframe.exploration.random_network_distillation",
    "Random": "rlframe.exploration.random",
    "SoftQ": "rlframe.exploration.soft_q",
    "StochasticSampling": "rlframe.exploration.exploration",
    "ThompsonSampling": "rlframe.exploration.thompson_sampling",
    "UpperConfidenceBound": "rlframe.exploration.upper_confidence_bound",
    "available_explorations": "rlframe.exploration.make",
    "make_exploration": "rlframe.exploration.make",
    "per_worker_constant": "rlframe.exploration.per_worker",
}

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
    "ThompsonSampling",
    "UpperConfidenceBound",
    "available_explorations",
    "make_exploration",
    "per_worker_constant",
]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
