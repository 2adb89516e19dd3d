"""The distribution of unbounded actions in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.models.distributions import Array, NumpyDistribution, sum_last

HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))


class DiagGaussian(NumpyDistribution):
    """Independent normal components, unbounded; inputs `[B, 2A]` are A means, then A log standard deviations."""

    def __init__(self, inputs: Array, rng: np.random.Generator | None = None) -> None:
        super().__init__(inputs, rng)
        half = inputs.shape[-1] // 2
        self.mean = inputs[..., :half]
        self.log_std = inputs[..., half:]
        self.std = np.exp(self.log_std)

    def sample(self) -> Array:
        """Draws actions in the dtype of the inputs. Float `[B, A]`."""
        noise = self._generator().standard_normal(self.mean.shape).astype(self.inputs.dtype, copy=False)
        drawn: Array = self.mean + self.std * noise
        self.last_sample = drawn
        return drawn

    def deterministic_sample(self) -> Array:
        """Returns the means. Float `[B, A]`."""
        mean: Array = self.mean
        self.last_sample = mean
        return mean

    def logp(self, x: Array) -> Array:
        """Returns log-densities of `x`, float `[B, A]`. Float `[B]`."""
        standard = (np.asarray(x) - self.mean) / self.std
        density: Array = sum_last(-0.5 * np.square(standard) - self.log_std) - HALF_LOG_2PI * self.mean.shape[-1]
        return density

    def entropy(self) -> Array:
        """Returns Σ log σ + A/2 · log 2πe. Float `[B]`."""
        entropy: Array = sum_last(self.log_std) + (HALF_LOG_2PI + 0.5) * self.mean.shape[-1]
        return entropy

    def kl(self, other: DiagGaussian) -> Array:
        """Returns Σ log(σ'/σ) + (σ² + (μ − μ')²) / 2σ'² − 1/2. Float `[B]`."""
        log_ratio = self.log_std - other.log_std
        distance = np.square((self.mean - other.mean) / other.std)
        return sum_last(0.5 * (np.exp(2.0 * log_ratio) + distance - 1.0) - log_ratio)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * int(np.prod(action_space.shape, dtype=np.int64))
