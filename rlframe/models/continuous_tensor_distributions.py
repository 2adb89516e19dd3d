"""Distributions of numbers, for both frameworks: normal ones, on intervals, on the simplex, and points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlframe.models.dist_plan import (
    LOG_CONCENTRATION_MAX,
    LOG_DENSITY_MAX,
    LOG_STD_MAX,
    LOG_STD_MIN,
    RAW_MAX,
    SMALL,
)
from rlframe.models.tensor_distributions import Categorical, TensorDistribution, size_of, sum_last
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


def _halves(x: Tensor) -> list[Tensor]:
    half = int(x.shape[-1]) // 2
    return ops.split(x, [half, half])


class _OnABox(TensorDistribution):
    """Two numbers for each number of an action."""

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns two per action dimension."""
        del model_config
        return 2 * size_of(action_space.shape)


class _Normal(_OnABox):
    """Independent normal components: their means, standard deviations, and the logarithms of these. Float `[B, A]`."""

    mean: Tensor
    std: Tensor
    log_std: Tensor

    def _normal_draw(self) -> Tensor:
        return self.mean + self.std * self._normal_like(self.mean)

    def _normal_logp(self, x: Tensor) -> Tensor:
        # Deviations are divided before they are squared, which none below 1e-19 or above 1e19 would survive.
        return -0.5 * ops.square((x - self.mean) / self.std) - self.log_std - _HALF_LOG_TAU


class DiagGaussian(_Normal):
    """Independent normal components, unbounded; inputs `[B, 2A]` are A means, then A log standard deviations."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs, model)
        self.mean, self.log_std = _halves(self.inputs)
        self.std = ops.exp(self.log_std)

    def _draw(self) -> Tensor:
        return self._normal_draw()

    def _mode(self) -> Tensor:
        return self.mean

    def logp(self, x: Any) -> Tensor:
        """Returns log-densities of `x`, float `[B, A]`. Float `[B]`."""
        return sum_last(self._normal_logp(self._as_inputs(x)))

    def entropy(self) -> Tensor:
        """Returns the summed differential entropy. Float `[B]`."""
        return sum_last(self.log_std + (0.5 + _HALF_LOG_TAU))

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence. Float `[B]`."""
        log_ratio = self.log_std - other.log_std
        distance = ops.square((self.mean - other.mean) / other.std)
        return sum_last(0.5 * (ops.exp(2.0 * log_ratio) + distance - 1.0) - log_ratio)


class SquashedGaussian(_Normal):
    """A normal variable through tanh onto [low, high]; inputs `[B, 2A]` as for the Gaussian, log σ limited to [−20, 2].

    Args:
        inputs: Means and log standard deviations before squashing. Float `[B, 2A]`.
        model: The model that made them; may be None.
        low: Lower bound of actions.
        high: Upper bound of actions.
    """

    def __init__(self, inputs: Any, model: Any = None, low: float = -1.0, high: float = 1.0) -> None:
        if not low < high:
            raise ValueError(f"{type(self).__name__} needs low < high; got low={low}, high={high}.")
        super().__init__(inputs, model)
        self.mean, log_std = _halves(self.inputs)
        self.log_std = ops.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)
        self.std = ops.exp(self.log_std)
        self.low, self.high = low, high
        self._last_raw: Any = None

    def _squash(self, raw: Tensor) -> Tensor:
        # Limited, so that the log-density told now is also the one told later of the stored action.
        self._last_raw = raw = ops.clip(raw, -RAW_MAX, RAW_MAX)
        return (ops.tanh(raw) + 1.0) * (0.5 * (self.high - self.low)) + self.low

    def _draw(self) -> Tensor:
        return self._squash(self._normal_draw())  # gradients flow through it

    def _mode(self) -> Tensor:
        return self._squash(self.mean)

    def sample_logp(self) -> tuple[Tensor, Tensor]:
        """Draws actions `[B, A]` and returns them with their log-densities `[B]`."""
        return self.sample(), self.sampled_action_logp()

    def sampled_action_logp(self) -> Tensor:
        """Returns the log-density of the actions drawn last, without the rounding of tanh and back. Float `[B]`."""
        if self._last_raw is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        return self._raw_logp(self._last_raw)

    def logp(self, x: Any) -> Tensor:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        unit = (self._as_inputs(x) - self.low) / (self.high - self.low) * 2.0 - 1.0
        return self._raw_logp(ops.atanh(ops.clip(unit, -1.0 + SMALL, 1.0 - SMALL)))

    def _raw_logp(self, raw: Tensor) -> Tensor:
        # log(1 − tanh² z) = 2 (log 2 − z − softplus(−2z)) has no cancellation at large |z|.
        slope = 2.0 * (math.log(2.0) - raw - ops.softplus(-2.0 * raw)) + math.log(0.5 * (self.high - self.low))
        normal = ops.clip(self._normal_logp(raw), -LOG_DENSITY_MAX, LOG_DENSITY_MAX)
        return sum_last(normal - slope)

    def entropy(self) -> Tensor:
        """Raises: the entropy has no closed form."""
        raise ValueError(f"The entropy of {type(self).__name__} has no closed form; estimate it by -logp of samples.")

    def kl(self, other: Any) -> Tensor:
        """Raises: the divergence has no closed form here."""
        del other
        raise ValueError(f"{type(self).__name__} has no kl(); estimate it by the logp of samples under both.")


class Beta(_OnABox):
    """Independent Beta components on [low, high]; inputs `[B, 2A]` become α, β = 1 + softplus(inputs).

    Args:
        inputs: A numbers for α, then A for β. Float `[B, 2A]`.
        model: The model that made them; may be None.
        low: Lower bound of actions.
        high: Upper bound of actions.

    Source: Chou et al. 2017, "Improving Stochastic Policy Gradients … using the Beta Distribution".
    """

    def __init__(self, inputs: Any, model: Any = None, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(inputs, model)
        self.alpha, self.beta = _halves(1.0 + ops.softplus(self.inputs))
        self.low, self.high = low, high

    def _log_beta(self) -> Tensor:
        """Returns log B(α, β). Float `[B, A]`."""
        return ops.lgamma(self.alpha) + ops.lgamma(self.beta) - ops.lgamma(self.alpha + self.beta)

    def _scale(self, unit: Tensor) -> Tensor:
        return unit * (self.high - self.low) + self.low

    def _draw(self) -> Tensor:
        logit = self._log_gamma_draws(self.alpha) - self._log_gamma_draws(self.beta)
        return ops.stop_gradient(self._scale(1.0 / (1.0 + ops.exp(-logit))))

    def _mode(self) -> Tensor:
        return self._scale(self.alpha / (self.alpha + self.beta))

    def logp(self, x: Any) -> Tensor:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        width = self.high - self.low
        unit = ops.clip((self._as_inputs(x) - self.low) / width, SMALL, 1.0 - SMALL)
        powers = (self.alpha - 1.0) * ops.log(unit) + (self.beta - 1.0) * ops.log(1.0 - unit)
        return sum_last(powers - self._log_beta() - math.log(width))

    def entropy(self) -> Tensor:
        """Returns the summed differential entropy. Float `[B]`."""
        a, b, total = self.alpha, self.beta, self.alpha + self.beta
        expected = (a - 1.0) * ops.digamma(a) + (b - 1.0) * ops.digamma(b)
        unit = self._log_beta() - expected + (total - 2.0) * ops.digamma(total)
        return sum_last(unit + math.log(self.high - self.low))

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence; both must have the same bounds. Float `[B]`."""
        a, b, c, d = self.alpha, self.beta, other.alpha, other.beta
        expected = (a - c) * ops.digamma(a) + (b - d) * ops.digamma(b) + (c + d - a - b) * ops.digamma(a + b)
        return sum_last(other._log_beta() - self._log_beta() + expected)


class Dirichlet(TensorDistribution):
    """A distribution over the simplex; inputs `[B, A]` are logs of the concentrations (kept above 1e-6)."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs, model)
        self.concentration = ops.maximum(ops.exp(ops.minimum(self.inputs, LOG_CONCENTRATION_MAX)), SMALL)

    @property
    def _whole(self) -> Tensor:
        """The sum of the concentrations. Float `[B]`."""
        return sum_last(self.concentration)

    def _log_normalizer(self) -> Tensor:
        """Returns log Γ(Σα) − Σ log Γ(α). Float `[B]`."""
        return ops.lgamma(self._whole) - sum_last(ops.lgamma(self.concentration))

    def _draw(self) -> Tensor:
        return ops.stop_gradient(ops.softmax(self._log_gamma_draws(self.concentration)))

    def _mode(self) -> Tensor:
        return self.concentration / self._whole[:, None]

    def logp(self, x: Any) -> Tensor:
        """Returns log-densities of `x`, float `[B, A]`, kept off the boundary by 1e-6. Float `[B]`."""
        point = ops.maximum(self._as_inputs(x), SMALL)
        point = point / sum_last(point)[:, None]
        return sum_last((self.concentration - 1.0) * ops.log(point)) + self._log_normalizer()

    def entropy(self) -> Tensor:
        """Returns the differential entropy. Float `[B]`."""
        components = (self.concentration - 1.0) * ops.digamma(self.concentration)
        parts = (self._whole - float(self.inputs.shape[-1])) * ops.digamma(self._whole)
        return parts - sum_last(components) - self._log_normalizer()

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self ‖ other). Float `[B]`."""
        expected_log = ops.digamma(self.concentration) - ops.digamma(self._whole)[:, None]
        expected = sum_last((self.concentration - other.concentration) * expected_log)
        return self._log_normalizer() - other._log_normalizer() + expected

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns one per component."""
        del model_config
        return size_of(action_space.shape)


class Deterministic(TensorDistribution):
    """Actions are the inputs themselves; for algorithms that add their own noise."""

    def _draw(self) -> Tensor:
        return self.inputs

    def deterministic_sample(self) -> Tensor:
        """Returns what `sample` does."""
        return self.sample()

    def logp(self, x: Any) -> Tensor:
        """Returns zeros. Float `[B]`."""
        del x
        return ops.zeros_like(self.inputs[:, 0])

    def entropy(self) -> Tensor:
        """Returns zeros. Float `[B]`."""
        return ops.zeros_like(self.inputs[:, 0])

    def kl(self, other: Any) -> Tensor:
        """Raises: points have no divergence."""
        del other
        raise NotImplementedError(f"{type(self).__name__} has no kl(): its distributions are points.")

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns one per action dimension."""
        del model_config
        return size_of(action_space.shape)


class Tanh(Deterministic):
    """The hyperbolic tangent of the inputs `[B, A]`: actions in [-1, 1], to which an exploration adds noise.

    Args:
        inputs: Outputs of the model. Float `[B, A]`.
        model: The model that made them; may be None.
        shape: Shape of one action, of A numbers.
    """

    def __init__(self, inputs: Any, model: Any = None, *, shape: tuple[int, ...]) -> None:
        super().__init__(inputs, model)
        self.shape = shape

    def _draw(self) -> Tensor:
        return ops.reshape(ops.tanh(self.inputs), (-1, *self.shape))


class RelaxedOneHot(Categorical):
    """A choice among A as a point on the simplex; see `rlframe.models.bounded_distributions.RelaxedOneHot`."""

    def _draw(self) -> Tensor:
        uniform = ops.maximum(self._uniform_like(self.inputs), 1e-20)  # 0 has no logarithm
        return ops.softmax(self.inputs - ops.log(-ops.log(uniform)))  # gradients flow through it

    def _mode(self) -> Tensor:
        return ops.softmax(self.inputs)

    def logp(self, x: Any) -> Tensor:
        """Returns log-likelihoods of the choices that `x` stands for: points `[B, A]`, or numbers `[B]`."""
        given = self._as_tensor(x)
        points = len(given.shape) == len(self.inputs.shape) and given.shape[-1] == self.inputs.shape[-1]
        return super().logp(ops.argmax(given, axis=-1) if points else given)
