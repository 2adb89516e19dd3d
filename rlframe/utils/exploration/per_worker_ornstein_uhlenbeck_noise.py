"""RLlib's path to `PerWorkerOrnsteinUhlenbeckNoise`; it lives in `rlframe.exploration`."""

from rlframe.exploration.per_worker_ornstein_uhlenbeck_noise import PerWorkerOrnsteinUhlenbeckNoise

__all__ = ["PerWorkerOrnsteinUhlenbeckNoise"]
