"""RLlib's path to `PerWorkerGaussianNoise`; it lives in `rlframe.exploration`."""

from rlframe.exploration.per_worker_gaussian_noise import PerWorkerGaussianNoise

__all__ = ["PerWorkerGaussianNoise"]
