"""Normal actions in NumPy: unbounded ones, and those that tanh keeps within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.models.dist_plan import LOG_DENSITY_MAX, LOG_STD_MAX, LOG_STD_MIN, RAW_MAX, SMALL
from rlframe.models.distributions import Array, NumpyDistribution, sum_last

HALF_LOG_2PI, _LOG_2 = 0.5 * float(np.log(2.0 * np.pi)), float(np.log(2.0))


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


class SquashedGaussian(NumpyDistribution):
    """A normal variable through tanh onto [low, high]; inputs `[B, 2A]` as `DiagGaussian`, log σ limited to [−20, 2].

    Args:
        inputs: Means and log standard deviations before squashing. Float `[B, 2A]`.
        rng: Generator that `sample` draws from.
        low: Lower bound of actions.
        high: Upper bound of actions.
    """

    def __init__(
        self, inputs: Array, rng: np.random.Generator | None = None, *, low: float = -1.0, high: float = 1.0
    ) -> None:
        if not np.all(np.less(low, high)):
            raise ValueError(f"SquashedGaussian needs low < high; got low={low}, high={high}.")
        super().__init__(inputs, rng)
        half = inputs.shape[-1] // 2
        self.mean = inputs[..., :half]
        self.log_std = np.clip(inputs[..., half:], LOG_STD_MIN, LOG_STD_MAX)
        self.std = np.exp(self.log_std)
        self.low, self.high = low, high
        self._last_raw: Array | None = None

    def _squash(self, raw: Array) -> Array:
        # Limited, so that the log-density told now is also the one told later of the stored action.
        self._last_raw = raw = np.clip(raw, -RAW_MAX, RAW_MAX)
        self.last_sample = (np.tanh(raw) + 1.0) * (0.5 * (self.high - self.low)) + self.low
        sample: Array = self.last_sample
        return sample

    def sample(self) -> Array:
        """Draws actions in [low, high]. Float `[B, A]`."""
        noise = self._generator().standard_normal(self.mean.shape).astype(self.inputs.dtype, copy=False)
        return self._squash(self.mean + self.std * noise)

    def deterministic_sample(self) -> Array:
        """Returns the squashed means. Float `[B, A]`."""
        return self._squash(self.mean)

    def sampled_action_logp(self) -> Array:
        """Returns the log-density of the actions drawn last, without the rounding of tanh and back. Float `[B]`."""
        if self._last_raw is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        return self._raw_logp(self._last_raw)

    def logp(self, x: Array) -> Array:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        unit = (np.asarray(x) - self.low) / (self.high - self.low) * 2.0 - 1.0
        return self._raw_logp(np.arctanh(np.clip(unit, -1.0 + SMALL, 1.0 - SMALL)))

    def _raw_logp(self, raw: Array) -> Array:
        standard = (raw - self.mean) / self.std
        normal = np.clip(-0.5 * np.square(standard) - self.log_std - HALF_LOG_2PI, -LOG_DENSITY_MAX, LOG_DENSITY_MAX)
        # log(1 − tanh² z) = 2 (log 2 − z − softplus(−2z)) has no cancellation at large |z|.
        slope = 2.0 * (_LOG_2 - raw - np.logaddexp(0.0, -2.0 * raw)) + np.log(0.5 * (self.high - self.low))
        return sum_last(normal - slope).astype(self.inputs.dtype, copy=False)

    def entropy(self) -> Array:
        """Raises: the entropy has no closed form."""
        raise ValueError("The entropy of SquashedGaussian has no closed form; estimate it by -logp of samples.")

    def kl(self, other: Any) -> Array:  # noqa: ARG002 - the interface's signature
        """Raises: the divergence has no closed form here."""
        raise ValueError("SquashedGaussian has no kl(); estimate it by the logp of samples under both.")

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * int(np.prod(action_space.shape, dtype=np.int64))
