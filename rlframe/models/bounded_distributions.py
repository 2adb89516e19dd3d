"""Distributions of bounded actions in NumPy: on intervals, on the simplex, and of actions that are the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.models.dist_plan import (
    LOG_CONCENTRATION_MAX,
    SMALL,
)
from rlframe.models.distributions import Array, Categorical, NumpyDistribution, sum_last
from rlframe.models.special import digamma, gumbel, log_beta, log_gamma, softmax

_LOG_2 = float(np.log(2.0))


class Beta(NumpyDistribution):
    """Independent Beta components on [low, high]; inputs `[B, 2A]` become α, β = 1 + softplus(inputs).

    Args:
        inputs: A numbers for α, then A for β. Float `[B, 2A]`.
        rng: Generator that `sample` draws from.
        low: Lower bound of actions.
        high: Upper bound of actions.

    Source: Chou et al. 2017, "Improving Stochastic Policy Gradients … using the Beta Distribution".
    """

    def __init__(
        self, inputs: Array, rng: np.random.Generator | None = None, *, low: float = 0.0, high: float = 1.0
    ) -> None:
        super().__init__(inputs, rng)
        positive = 1.0 + np.logaddexp(0.0, inputs, dtype=np.float64)
        half = inputs.shape[-1] // 2
        self.alpha, self.beta = positive[..., :half], positive[..., half:]
        self.low, self.high = low, high

    def _out(self, x: Array) -> Array:
        return x.astype(self.inputs.dtype, copy=False)

    def sample(self) -> Array:
        """Draws actions in [low, high]. Float `[B, A]`."""
        unit = self._generator().beta(self.alpha, self.beta)
        self.last_sample = self._out(unit * (self.high - self.low) + self.low)
        sample: Array = self.last_sample
        return sample

    def deterministic_sample(self) -> Array:
        """Returns the means. Float `[B, A]`."""
        unit = self.alpha / (self.alpha + self.beta)
        self.last_sample = self._out(unit * (self.high - self.low) + self.low)
        sample: Array = self.last_sample
        return sample

    def logp(self, x: Array) -> Array:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        width = self.high - self.low
        unit = np.clip((np.asarray(x, np.float64) - self.low) / width, SMALL, 1.0 - SMALL)
        density = (self.alpha - 1.0) * np.log(unit) + (self.beta - 1.0) * np.log1p(-unit)
        return self._out(sum_last(density - log_beta(self.alpha, self.beta) - np.log(width)))

    def entropy(self) -> Array:
        """Returns the differential entropy. Float `[B]`."""
        a, b = self.alpha, self.beta
        unit = log_beta(a, b) - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + (a + b - 2.0) * digamma(a + b)
        return self._out(sum_last(unit + np.log(self.high - self.low)))

    def kl(self, other: Beta) -> Array:
        """Returns the divergence; both must have the same bounds. Float `[B]`."""
        a, b, c, d = self.alpha, self.beta, other.alpha, other.beta
        parts = (a - c) * digamma(a) + (b - d) * digamma(b) + (c + d - a - b) * digamma(a + b)
        return self._out(sum_last(log_beta(c, d) - log_beta(a, b) + parts))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * int(np.prod(action_space.shape, dtype=np.int64))


class Dirichlet(NumpyDistribution):
    """A distribution over the simplex; inputs `[B, A]` are logs of the concentrations (kept above 1e-6)."""

    def __init__(self, inputs: Array, rng: np.random.Generator | None = None) -> None:
        super().__init__(inputs, rng)
        logs = np.minimum(inputs.astype(np.float64, copy=False), LOG_CONCENTRATION_MAX)
        self.concentration = np.maximum(np.exp(logs), SMALL)

    def _out(self, x: Array) -> Array:
        return x.astype(self.inputs.dtype, copy=False)

    def sample(self) -> Array:
        """Draws points of the simplex. Float `[B, A]`, rows sum to 1."""
        # In logarithms, where draws of small concentrations are no zeros: log G(α) = log G(α + 1) + log(U) / α
        rng, tiny = self._generator(), np.finfo(np.float64).tiny
        boosted = np.maximum(rng.standard_gamma(self.concentration + 1.0), tiny)
        uniform = np.maximum(rng.random(self.concentration.shape), tiny)
        logs = np.log(boosted) + np.log(uniform) / self.concentration
        gamma = np.exp(logs - logs.max(axis=-1, keepdims=True))
        self.last_sample = self._out(gamma / gamma.sum(axis=-1, keepdims=True))
        sample: Array = self.last_sample
        return sample

    def deterministic_sample(self) -> Array:
        """Returns the means. Float `[B, A]`, rows sum to 1."""
        self.last_sample = self._out(self.concentration / self.concentration.sum(axis=-1, keepdims=True))
        sample: Array = self.last_sample
        return sample

    def logp(self, x: Array) -> Array:
        """Returns log-densities of `x`, float `[B, A]`, kept off the boundary by 1e-6. Float `[B]`."""
        point = np.maximum(np.asarray(x, np.float64), SMALL)
        point = point / point.sum(axis=-1, keepdims=True)
        return self._out(sum_last((self.concentration - 1.0) * np.log(point)) - self._log_norm())

    def _log_norm(self) -> Array:
        return sum_last(log_gamma(self.concentration)) - log_gamma(sum_last(self.concentration))

    def entropy(self) -> Array:
        """Returns the differential entropy. Float `[B]`."""
        c = self.concentration
        total = sum_last(c)
        parts = (total - c.shape[-1]) * digamma(total) - sum_last((c - 1.0) * digamma(c))
        return self._out(self._log_norm() + parts)

    def kl(self, other: Dirichlet) -> Array:
        """Returns the divergence. Float `[B]`."""
        c, d = self.concentration, other.concentration
        expected_log = digamma(c) - digamma(sum_last(c))[..., None]
        return self._out(other._log_norm() - self._log_norm() + sum_last((c - d) * expected_log))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns one per component."""
        return int(np.prod(action_space.shape, dtype=np.int64))


class Deterministic(NumpyDistribution):
    """Actions are the inputs themselves; for algorithms that add their own noise."""

    def sample(self) -> Array:
        """Returns the inputs. Float `[B, A]`."""
        inputs: Array = self.inputs
        self.last_sample = inputs
        return inputs

    def deterministic_sample(self) -> Array:
        """Returns the inputs. Float `[B, A]`."""
        return self.sample()

    def logp(self, x: Array) -> Array:  # noqa: ARG002 - the interface's signature
        """Returns zeros. Float `[B]`."""
        return np.zeros(len(self.inputs), self.inputs.dtype)

    def entropy(self) -> Array:
        """Returns zeros. Float `[B]`."""
        return np.zeros(len(self.inputs), self.inputs.dtype)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns one per action dimension."""
        return int(np.prod(action_space.shape, dtype=np.int64))


class RelaxedOneHot(Categorical):
    """A choice among A as a point on the simplex, from logits `[B, A]`, at temperature 1.

        y = softmax(logits + G), G standard Gumbel

    The largest component of y is a draw from the categorical distribution of the logits; y itself has gradients.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2.
    """

    def sample(self) -> Array:
        """Draws points. Float `[B, A]`."""
        drawn: Array = softmax(self.inputs + gumbel(self._generator(), self.inputs.shape))
        self.last_sample = drawn
        return drawn

    def deterministic_sample(self) -> Array:
        """Returns the points without noise, whose largest component is the likeliest choice. Float `[B, A]`."""
        points: Array = softmax(self.inputs)
        self.last_sample = points
        return points

    def logp(self, x: Array) -> Array:
        """Returns log-likelihoods of the choices that `x` stands for: points `[B, A]`, or numbers `[B]`."""
        given = np.asarray(x)
        return super().logp(given.argmax(-1) if given.dtype.kind == "f" else given)


class Tanh(Deterministic):
    """The hyperbolic tangent of the inputs `[B, A]`: actions in [-1, 1], to which an exploration adds noise.

    Args:
        inputs: Outputs of the model. Float `[B, A]`.
        rng: Not used: nothing is drawn.
        shape: Shape of one action, of A numbers.
    """

    def __init__(self, inputs: Array, rng: np.random.Generator | None = None, *, shape: tuple[int, ...]) -> None:
        super().__init__(inputs, rng)
        self.shape = shape

    def sample(self) -> Array:
        """Returns the actions. Float `[B, *shape]`."""
        actions: Array = np.tanh(self.inputs).reshape(len(self.inputs), *self.shape)
        self.last_sample = actions
        return actions
