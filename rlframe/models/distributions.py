"""Action distributions in NumPy: what acts without a framework, and what the framework siblings are tested against.

Inputs may be float32 or float64; densities come back in the dtype of the inputs. Every distribution is made anew for
each forward pass, so construction does as little as possible and everything else is computed when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tree
from numpy.typing import NDArray

from rlframe.models.action_dist import ActionDistribution
from rlframe.models.dist_plan import (
    LOG_CONCENTRATION_MAX,
    LOG_STD_MAX,
    LOG_STD_MIN,
    RAW_MAX,
    SMALL,
    DistPlan,
    plan_dist,
)
from rlframe.models.special import digamma, log_beta, log_gamma

Array: TypeAlias = NDArray[Any]
NumpyDistClass: TypeAlias = "type[NumpyDistribution] | Callable[..., NumpyDistribution]"


def log_softmax(logits: Array) -> Array:
    """Returns log-probabilities along the last axis; finite for logits as low as the smallest float."""
    # The ufuncs' own reduce: the methods of arrays cost 2 µs more per call, as much as the work on a small batch.
    shifted: Array = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    shifted -= np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True))
    return shifted


def softmax(logits: Array) -> Array:
    """Returns points on the simplex, along the last axis; finite for all finite logits."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    points: Array = weights / weights.sum(axis=-1, keepdims=True)
    return points


def gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns standard Gumbel noise, float32: −log E, E standard exponential."""
    return -np.log(rng.standard_exponential(shape)).astype(np.float32)


def _sum_last(x: Array) -> Array:
    total: Array = np.add.reduce(x, axis=-1)
    return total


def _categorical_entropy(logp: Array) -> Array:
    # A masked action has probability exactly 0 and a huge negative log: 0 · log 0 is 0.
    p = np.exp(logp)
    return -_sum_last(p * np.where(p > 0.0, logp, 0.0))


def _categorical_kl(logp: Array, other_logp: Array) -> Array:
    p = np.exp(logp)
    return _sum_last(p * (np.where(p > 0.0, logp, 0.0) - np.where(p > 0.0, other_logp, 0.0)))


class NumpyDistribution(ActionDistribution):
    """Base of the NumPy distributions.

    Args:
        inputs: Outputs of the model. Float `[B, K]`.
        rng: Generator that `sample` draws from; may be None where nothing is sampled.
    """

    def __init__(self, inputs: Array, rng: np.random.Generator | None = None) -> None:
        self.inputs = inputs
        self.rng = rng
        self.model = None
        self.last_sample: Any = None

    def _generator(self) -> np.random.Generator:
        if self.rng is None:
            raise ValueError(f"{type(self).__name__} was made without a generator, so it cannot sample; pass rng=.")
        return self.rng

    def sampled_action_logp(self) -> Array:
        """Returns the log-likelihood of the actions drawn last. Float `[B]`."""
        if self.last_sample is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        result: Array = self.logp(self.last_sample)
        return result


class Categorical(NumpyDistribution):
    """One choice among A, from logits `[B, A]`; the log-likelihoods are taken once and kept."""

    _logp_all: Array | None = None

    @property
    def log_probs(self) -> Array:
        """Log-probability of every action. Float `[B, A]`."""
        if self._logp_all is None:
            self._logp_all = log_softmax(self.inputs)
        return self._logp_all

    def sample(self) -> Array:
        """Draws actions, int64 `[B]`, by the Gumbel trick: argmax(logits − log E), E standard exponential."""
        noise = self._generator().standard_exponential(self.inputs.shape)
        np.log(noise, noise)
        np.subtract(self.inputs, noise, noise)
        self.last_sample = noise.argmax(-1)
        sample: Array = self.last_sample
        return sample

    def deterministic_sample(self) -> Array:
        """Returns the most likely actions, int64 `[B]`; the first one among equals."""
        self.last_sample = self.inputs.argmax(-1)
        sample: Array = self.last_sample
        return sample

    def logp(self, x: Array) -> Array:
        """Returns log-likelihoods of the actions `x`, integer `[B]` (or `[B, 1]`). Float `[B]`."""
        log_probs = self.log_probs
        index = np.asarray(x).reshape(-1).astype(np.intp, copy=False)
        result: Array = log_probs[np.arange(len(log_probs)), index]
        return result

    def entropy(self) -> Array:
        """Returns −Σ p log p. Float `[B]`."""
        return _categorical_entropy(self.log_probs)

    def kl(self, other: Categorical) -> Array:
        """Returns Σ p (log p − log q). Float `[B]`."""
        return _categorical_kl(self.log_probs, other.log_probs)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of actions."""
        return int(action_space.n)


class MultiCategorical(NumpyDistribution):
    """Several independent choices; logits of all lie side by side in `[B, ΣA_i]`.

    Args:
        inputs: Logits. Float `[B, ΣA_i]`.
        rng: Generator that `sample` draws from.
        input_lens: Number of choices A_i of each component.
        shape: Shape of one action; None is `[len(input_lens)]`.
        dtype: Integer dtype of actions.
    """

    def __init__(
        self,
        inputs: Array,
        rng: np.random.Generator | None = None,
        *,
        input_lens: Sequence[int],
        shape: tuple[int, ...] | None = None,
        dtype: Any = np.int64,
    ) -> None:
        super().__init__(inputs, rng)
        self.input_lens = tuple(int(length) for length in input_lens)
        self._shape = (len(self.input_lens),) if shape is None else tuple(shape)
        self._dtype = dtype
        self._log_probs: list[Array] | None = None

    def _parts(self, array: Array) -> list[Array]:
        parts, start = [], 0
        for length in self.input_lens:
            parts.append(array[:, start : start + length])
            start += length
        return parts

    @property
    def log_probs(self) -> list[Array]:
        """Log-probabilities of every component's choices. Float `[B, A_i]` each."""
        if self._log_probs is None:
            self._log_probs = [log_softmax(part) for part in self._parts(self.inputs)]
        return self._log_probs

    def _pick(self, scores: Array) -> Array:
        chosen = np.stack([part.argmax(-1) for part in self._parts(scores)], axis=1)
        self.last_sample = chosen.reshape(len(chosen), *self._shape).astype(self._dtype, copy=False)
        sample: Array = self.last_sample
        return sample

    def sample(self) -> Array:
        """Draws actions, integer `[B, *shape]`, each component counted from 0."""
        noise = self._generator().standard_exponential(self.inputs.shape)
        np.log(noise, noise)
        return self._pick(np.subtract(self.inputs, noise, noise))

    def deterministic_sample(self) -> Array:
        """Returns the most likely action of every component, integer `[B, *shape]`."""
        return self._pick(self.inputs)

    def logp(self, x: Array) -> Array:
        """Returns the summed log-likelihood of the components of `x`, integer `[B, *shape]`. Float `[B]`."""
        index = np.asarray(x).reshape(len(self.inputs), len(self.input_lens)).astype(np.int64, copy=False)
        rows = np.arange(len(index))
        result: Array = np.sum([part[rows, index[:, i]] for i, part in enumerate(self.log_probs)], axis=0)
        return result

    def multi_entropy(self) -> Array:
        """Returns the entropy of every component. Float `[B, components]`."""
        return np.stack([_categorical_entropy(part) for part in self.log_probs], axis=1)

    def entropy(self) -> Array:
        """Returns the summed entropy. Float `[B]`."""
        return _sum_last(self.multi_entropy())

    def multi_kl(self, other: MultiCategorical) -> Array:
        """Returns the divergence of every component. Float `[B, components]`."""
        pairs = zip(self.log_probs, other.log_probs, strict=True)
        return np.stack([_categorical_kl(mine, theirs) for mine, theirs in pairs], axis=1)

    def kl(self, other: MultiCategorical) -> Array:
        """Returns the summed divergence. Float `[B]`."""
        return _sum_last(self.multi_kl(other))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of logits."""
        return plan_dist(action_space).dim


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
        density: Array = _sum_last(-0.5 * np.square(standard) - self.log_std) - _HALF_LOG_2PI * self.mean.shape[-1]
        return density

    def entropy(self) -> Array:
        """Returns Σ log σ + A/2 · log 2πe. Float `[B]`."""
        entropy: Array = _sum_last(self.log_std) + (_HALF_LOG_2PI + 0.5) * self.mean.shape[-1]
        return entropy

    def kl(self, other: DiagGaussian) -> Array:
        """Returns Σ log(σ'/σ) + (σ² + (μ − μ')²) / 2σ'² − 1/2. Float `[B]`."""
        log_ratio = self.log_std - other.log_std
        distance = np.square((self.mean - other.mean) / other.std)
        return _sum_last(0.5 * (np.exp(2.0 * log_ratio) + distance - 1.0) - log_ratio)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * int(np.prod(action_space.shape, dtype=np.int64))


_HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))


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
        normal = -0.5 * np.square(standard) - self.log_std - _HALF_LOG_2PI
        # log(1 − tanh² z) = 2 (log 2 − z − softplus(−2z)) has no cancellation at large |z|.
        slope = 2.0 * (_LOG_2 - raw - np.logaddexp(0.0, -2.0 * raw)) + np.log(0.5 * (self.high - self.low))
        return _sum_last(normal - slope).astype(self.inputs.dtype, copy=False)

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
        return self._out(_sum_last(density - log_beta(self.alpha, self.beta) - np.log(width)))

    def entropy(self) -> Array:
        """Returns the differential entropy. Float `[B]`."""
        a, b = self.alpha, self.beta
        unit = log_beta(a, b) - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + (a + b - 2.0) * digamma(a + b)
        return self._out(_sum_last(unit + np.log(self.high - self.low)))

    def kl(self, other: Beta) -> Array:
        """Returns the divergence; both must have the same bounds. Float `[B]`."""
        a, b, c, d = self.alpha, self.beta, other.alpha, other.beta
        parts = (a - c) * digamma(a) + (b - d) * digamma(b) + (c + d - a - b) * digamma(a + b)
        return self._out(_sum_last(log_beta(c, d) - log_beta(a, b) + parts))

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
        return self._out(_sum_last((self.concentration - 1.0) * np.log(point)) - self._log_norm())

    def _log_norm(self) -> Array:
        return _sum_last(log_gamma(self.concentration)) - log_gamma(_sum_last(self.concentration))

    def entropy(self) -> Array:
        """Returns the differential entropy. Float `[B]`."""
        c = self.concentration
        total = _sum_last(c)
        parts = (total - c.shape[-1]) * digamma(total) - _sum_last((c - 1.0) * digamma(c))
        return self._out(self._log_norm() + parts)

    def kl(self, other: Dirichlet) -> Array:
        """Returns the divergence. Float `[B]`."""
        c, d = self.concentration, other.concentration
        expected_log = digamma(c) - digamma(_sum_last(c))[..., None]
        return self._out(other._log_norm() - self._log_norm() + _sum_last((c - d) * expected_log))

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


class MultiActionDistribution(NumpyDistribution):
    """Independent distributions for the leaves of a Dict or Tuple action space.

    Args:
        inputs: Outputs of the model for all leaves side by side. Float `[B, ΣK_i]`.
        rng: Generator that `sample` draws from.
        child_distributions: One distribution class (or partial) per leaf, in the order of `tree.flatten`.
        input_lens: Width K_i of each leaf's inputs.
        structure: Any nested dict or tuple with the action space's structure.
        leaf_shapes: Shape of one action of every leaf, to cut apart actions that come concatenated.
    """

    def __init__(
        self,
        inputs: Array,
        rng: np.random.Generator | None = None,
        *,
        child_distributions: Sequence[NumpyDistClass],
        input_lens: Sequence[int],
        structure: Any,
        leaf_shapes: Sequence[tuple[int, ...]],
    ) -> None:
        super().__init__(inputs, rng)
        self._structure = structure
        self._leaf_shapes = list(leaf_shapes)
        self.flat_child_distributions: list[Any] = []
        start = 0
        for child, length in zip(child_distributions, input_lens, strict=True):
            self.flat_child_distributions.append(child(inputs[:, start : start + length], rng))
            start += length

    def sample(self) -> Any:
        """Draws a nested action: the action space's structure with `[B, ...]` leaves."""
        return self._nest([child.sample() for child in self.flat_child_distributions])

    def deterministic_sample(self) -> Any:
        """Returns the most likely nested action: the action space's structure with `[B, ...]` leaves."""
        return self._nest([child.deterministic_sample() for child in self.flat_child_distributions])

    def _nest(self, leaves: list[Array]) -> Any:
        self.last_sample = tree.unflatten_as(self._structure, leaves)
        return self.last_sample

    def sampled_action_logp(self) -> Array:
        """Returns the summed log-likelihood of the leaves drawn last. Float `[B]`."""
        result: Array = np.sum([child.sampled_action_logp() for child in self.flat_child_distributions], axis=0)
        return result

    def logp(self, x: Any) -> Array:
        """Returns summed log-likelihoods of nested actions, or of actions concatenated to `[B, ΣA_i]`. Float `[B]`."""
        leaves = self._split(x) if isinstance(x, np.ndarray) else tree.flatten(x)
        pairs = zip(self.flat_child_distributions, leaves, strict=True)
        result: Array = np.sum([child.logp(leaf) for child, leaf in pairs], axis=0)
        return result

    def _split(self, x: Array) -> list[Array]:
        leaves, start = [], 0
        for shape in self._leaf_shapes:
            size = int(np.prod(shape, dtype=np.int64))
            leaves.append(x[:, start : start + size].reshape(len(x), *shape))
            start += size
        return leaves

    def entropy(self) -> Array:
        """Returns the summed entropy of the leaves. Float `[B]`."""
        result: Array = np.sum([child.entropy() for child in self.flat_child_distributions], axis=0)
        return result

    def kl(self, other: MultiActionDistribution) -> Array:
        """Returns the summed divergence of the leaves. Float `[B]`."""
        pairs = zip(self.flat_child_distributions, other.flat_child_distributions, strict=True)
        result: Array = np.sum([mine.kl(theirs) for mine, theirs in pairs], axis=0)
        return result


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


_CLASSES: dict[str, Any] = {
    "categorical": Categorical,
    "multi_categorical": MultiCategorical,
    "diag_gaussian": DiagGaussian,
    "squashed_gaussian": SquashedGaussian,
    "beta": Beta,
    "dirichlet": Dirichlet,
    "deterministic": Deterministic,
    "tanh": Tanh,
    "relaxed_one_hot": RelaxedOneHot,
    "multi_action": MultiActionDistribution,
}


def dist_from_plan(plan: DistPlan, classes: Mapping[str, Any]) -> Any:
    """Returns the class that `plan` names in `classes`, with its keyword arguments bound where it has any."""
    options = dict(plan.options)
    if plan.children:
        options["child_distributions"] = [dist_from_plan(child, classes) for child in plan.children]
        options["input_lens"] = [child.dim for child in plan.children]
    return partial(classes[plan.kind], **options) if options else classes[plan.kind]


def numpy_dist_for(space: Any, dist_type: str | None = None) -> tuple[NumpyDistClass, int]:
    """Returns the NumPy distribution for an action space, and how many model outputs it takes.

    Args:
        space: Action space.
        dist_type: None for the space's default, or "deterministic", "squashed_gaussian", "beta", "dirichlet", ….

    Returns:
        A class or partial called as `dist(inputs[B, K], rng)`, and K.

    Raises:
        UnsupportedSpaceException: If there is no distribution for the space.
        ValueError: If `dist_type` is unknown.
    """
    plan = plan_dist(space, dist_type)
    return dist_from_plan(plan, _CLASSES), plan.dim
