"""Action distributions in TensorFlow; the NumPy siblings are in `rlframe.models.distributions`.

Everything works eagerly and inside `tf.function`, with batches of unknown size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from rlframe.models.action_dist import ActionDistribution
from rlframe.models.dist_plan import (
    LOG_CONCENTRATION_MAX,
    LOG_STD_MAX,
    LOG_STD_MIN,
    RAW_MAX,
    SMALL,
    plan_dist,
    space_struct,
)

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _log_prob_of(log_probs: Any, x: Any) -> Any:
    """Returns the entries of `log_probs [B, A]` that the actions `x`, numbers `[B]` (or `[B, 1]`), name. `[B]`."""
    index = tf.reshape(tf.cast(x, tf.int64), tf.shape(log_probs)[:-1])
    return tf.gather(log_probs, index, axis=-1, batch_dims=log_probs.shape.rank - 1)


def _categorical_entropy(log_probs: Any) -> Any:
    # Probability 0 times log-probability −∞ would be no number.
    return -tf.reduce_sum(tf.exp(log_probs) * tf.maximum(log_probs, log_probs.dtype.min), axis=-1)


def _categorical_kl(log_probs: Any, other: Any) -> Any:
    """Returns KL from log-probabilities: infinite only where a choice is impossible, not where it is below floats."""
    p = tf.exp(log_probs)
    zeros = tf.zeros_like(p)
    possible = p > 0.0
    difference = tf.where(possible, log_probs, zeros) - tf.where(possible, other, zeros)
    return tf.reduce_sum(p * difference, axis=-1)


def _log_gamma_draws(concentration: Any) -> Any:
    """Draws log G with G ~ Gamma(concentration); finite where the draw itself is below the smallest float.

    log G(α) = log G(α + 1) + log(U) / α
    """
    boosted = tf.random.gamma([], concentration + 1.0, dtype=concentration.dtype)
    uniform = tf.random.uniform(tf.shape(concentration), dtype=concentration.dtype)
    tiny = np.finfo(concentration.dtype.as_numpy_dtype).tiny
    return tf.math.log(tf.maximum(boosted, tiny)) + tf.math.log(tf.maximum(uniform, tiny)) / concentration


class TFActionDistribution(ActionDistribution):
    """Base of the TensorFlow distributions; one of the user's own may define `_build_sample_op` instead of `sample`.

    Args:
        inputs: Outputs of the model. Float `[B, K]`.
        model: The model that made them; may be None.
    """

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(tf.convert_to_tensor(inputs), model)
        self.last_sample: Any = None

    def _build_sample_op(self) -> Any:
        """Draws one action per row."""
        raise NotImplementedError(f"{type(self).__name__} must define sample(), or _build_sample_op().")

    def _as_inputs(self, x: Any) -> Any:
        """Returns actions in the dtype of the inputs."""
        return tf.cast(x, self.inputs.dtype)

    def sample(self) -> Any:
        """Draws one action per row."""
        self.last_sample = self._build_sample_op()
        return self.last_sample

    def sampled_action_logp(self) -> Any:
        """Returns the log-likelihood of the actions drawn last. Float `[B]`."""
        if self.last_sample is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        return self.logp(self.last_sample)


class Categorical(TFActionDistribution):
    """One choice among A, from logits `[B, A]`.

    Args:
        inputs: Logits. Float `[B, A]`.
        model: The model that made them; may be None.
        temperature: Logits are divided by it; must be positive.
    """

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if temperature <= 0.0:
            raise ValueError(f"Categorical needs temperature > 0; got {temperature}.")
        inputs = tf.convert_to_tensor(inputs)
        super().__init__(inputs if temperature == 1.0 else inputs / temperature, model)
        self.log_probs = tf.nn.log_softmax(self.inputs)

    def _build_sample_op(self) -> Any:
        return tf.squeeze(tf.random.categorical(self.inputs, 1, dtype=tf.int64), axis=1)

    def deterministic_sample(self) -> Any:
        """Returns the most likely actions. Int64 `[B]`."""
        self.last_sample = tf.argmax(self.inputs, axis=1)
        return self.last_sample

    def logp(self, x: Any) -> Any:
        """Returns the log-likelihood of the actions `x`, integer `[B]` (or `[B, 1]`). Float `[B]`."""
        return _log_prob_of(self.log_probs, x)

    def entropy(self) -> Any:
        """Returns the entropy. Float `[B]`."""
        return _categorical_entropy(self.log_probs)

    def kl(self, other: Any) -> Any:
        """Returns KL(self ‖ other). Float `[B]`."""
        return _categorical_kl(self.log_probs, other.log_probs)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of actions."""
        return int(action_space.n)


class MultiCategorical(TFActionDistribution):
    """Several independent choices; logits of all lie side by side in `[B, ΣA_i]`.

    Args:
        inputs: Logits. Float `[B, ΣA_i]`.
        model: The model that made them; may be None.
        input_lens: Number of choices A_i of each component.
        action_space: Gives the shape and dtype of actions, where `shape` and `dtype` are not given.
        shape: Shape of one action; None is `[len(input_lens)]`.
        dtype: Integer NumPy dtype of actions; None is int64.
    """

    def __init__(
        self,
        inputs: Any,
        model: Any = None,
        input_lens: Sequence[int] = (),
        action_space: Any = None,
        *,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(inputs, model)
        self.input_lens = tuple(int(length) for length in input_lens)
        if sum(self.input_lens) != self.inputs.shape[1]:
            raise ValueError(f"input_lens {self.input_lens} do not add up to the {self.inputs.shape[1]} inputs.")
        if action_space is not None and shape is None:
            shape, dtype = tuple(action_space.shape), action_space.dtype
        self._shape = (len(self.input_lens),) if shape is None else tuple(shape)
        self._dtype = tf.int32 if dtype is not None and np.dtype(dtype) == np.int32 else tf.int64
        parts = tf.split(self.inputs, list(self.input_lens), axis=1)
        self.cats = [Categorical(part, model) for part in parts]

    def _stack(self, components: list[Any]) -> Any:
        return tf.cast(tf.reshape(tf.stack(components, axis=1), [-1, *self._shape]), self._dtype)

    def _build_sample_op(self) -> Any:
        return self._stack([cat.sample() for cat in self.cats])

    def deterministic_sample(self) -> Any:
        """Returns the most likely action of every component, integer `[B, *shape]`."""
        self.last_sample = self._stack([cat.deterministic_sample() for cat in self.cats])
        return self.last_sample

    def logp(self, actions: Any) -> Any:
        """Returns the summed log-likelihood of the components of `actions`, integer `[B, *shape]`. Float `[B]`."""
        index = tf.reshape(tf.cast(actions, tf.int64), [tf.shape(self.inputs)[0], len(self.cats)])
        return tf.add_n([cat.logp(index[:, i]) for i, cat in enumerate(self.cats)])

    def multi_entropy(self) -> Any:
        """Returns the entropy of every component. Float `[B, components]`."""
        return tf.stack([cat.entropy() for cat in self.cats], axis=1)

    def entropy(self) -> Any:
        """Returns the summed entropy. Float `[B]`."""
        return tf.reduce_sum(self.multi_entropy(), axis=1)

    def multi_kl(self, other: Any) -> Any:
        """Returns the divergence of every component. Float `[B, components]`."""
        pairs = zip(self.cats, other.cats, strict=True)
        return tf.stack([mine.kl(theirs) for mine, theirs in pairs], axis=1)

    def kl(self, other: Any) -> Any:
        """Returns the summed divergence. Float `[B]`."""
        return tf.reduce_sum(self.multi_kl(other), axis=1)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of logits."""
        return plan_dist(action_space).dim


class _Normal:
    """Independent normal components that the two Gaussians rest on."""

    def __init__(self, mean: Any, log_std: Any) -> None:
        self.mean, self.log_std, self.std = mean, log_std, tf.exp(log_std)

    def sample(self) -> Any:
        return self.mean + self.std * tf.random.normal(tf.shape(self.mean), dtype=self.mean.dtype)

    def logp(self, x: Any) -> Any:
        return -0.5 * tf.square((x - self.mean) / self.std) - self.log_std - _HALF_LOG_2PI


class DiagGaussian(TFActionDistribution):
    """Independent normal components, unbounded; inputs `[B, 2A]` are A means, then A log standard deviations."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs, model)
        self.mean, self.log_std = tf.split(self.inputs, 2, axis=1)
        self._normal = _Normal(self.mean, self.log_std)
        self.std = self._normal.std

    def _build_sample_op(self) -> Any:
        return self._normal.sample()

    def deterministic_sample(self) -> Any:
        """Returns the means. Float `[B, A]`."""
        self.last_sample = self.mean
        return self.last_sample

    def logp(self, x: Any) -> Any:
        """Returns log-densities of `x`, float `[B, A]`. Float `[B]`."""
        return tf.reduce_sum(self._normal.logp(self._as_inputs(x)), axis=-1)

    def entropy(self) -> Any:
        """Returns the summed differential entropy. Float `[B]`."""
        return tf.reduce_sum(self.log_std + (_HALF_LOG_2PI + 0.5), axis=-1)

    def kl(self, other: Any) -> Any:
        """Returns the summed divergence. Float `[B]`."""
        log_ratio = self.log_std - other.log_std
        distance = tf.square((self.mean - other.mean) / other.std)
        return tf.reduce_sum(0.5 * (tf.exp(2.0 * log_ratio) + distance - 1.0) - log_ratio, axis=-1)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * _size(action_space.shape)


class SquashedGaussian(TFActionDistribution):
    """A normal variable through tanh onto [low, high]; inputs `[B, 2A]` as for the Gaussian, log σ limited to [−20, 2].

    Args:
        inputs: Means and log standard deviations before squashing. Float `[B, 2A]`.
        model: The model that made them; may be None.
        low: Lower bound of actions.
        high: Upper bound of actions.
    """

    def __init__(self, inputs: Any, model: Any = None, low: float = -1.0, high: float = 1.0) -> None:
        if not low < high:
            raise ValueError(f"SquashedGaussian needs low < high; got low={low}, high={high}.")
        super().__init__(inputs, model)
        mean, log_std = tf.split(self.inputs, 2, axis=-1)
        self._normal = _Normal(mean, tf.clip_by_value(log_std, LOG_STD_MIN, LOG_STD_MAX))
        self.low, self.high = low, high
        self._last_raw: Any = None

    def _squash(self, raw: Any) -> Any:
        # Limited, so that the log-density told now is also the one told later of the stored action.
        self._last_raw = raw = tf.clip_by_value(raw, -RAW_MAX, RAW_MAX)
        return (tf.tanh(raw) + 1.0) * (0.5 * (self.high - self.low)) + self.low

    def _build_sample_op(self) -> Any:
        # Gradients flow through it.
        return self._squash(self._normal.sample())

    def deterministic_sample(self) -> Any:
        """Returns the squashed means. Float `[B, A]`."""
        self.last_sample = self._squash(self._normal.mean)
        return self.last_sample

    def sample_logp(self) -> tuple[Any, Any]:
        """Draws actions `[B, A]` and returns them with their log-densities `[B]`."""
        return self.sample(), self.sampled_action_logp()

    def sampled_action_logp(self) -> Any:
        """Returns the log-density of the actions drawn last, without the rounding of tanh and back. Float `[B]`."""
        if self._last_raw is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        return self._raw_logp(self._last_raw)

    def logp(self, x: Any) -> Any:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        unit = (self._as_inputs(x) - self.low) / (self.high - self.low) * 2.0 - 1.0
        return self._raw_logp(tf.atanh(tf.clip_by_value(unit, -1.0 + SMALL, 1.0 - SMALL)))

    def _raw_logp(self, raw: Any) -> Any:
        # log(1 − tanh² z) = 2 (log 2 − z − softplus(−2z)) has no cancellation at large |z|.
        slope = 2.0 * (math.log(2.0) - raw - tf.nn.softplus(-2.0 * raw)) + math.log(0.5 * (self.high - self.low))
        return tf.reduce_sum(self._normal.logp(raw) - slope, axis=-1)

    def entropy(self) -> Any:
        """Raises: the entropy has no closed form."""
        raise ValueError("The entropy of SquashedGaussian has no closed form; estimate it by -logp of samples.")

    def kl(self, other: Any) -> Any:  # noqa: ARG002 - the interface's signature
        """Raises: the divergence has no closed form here."""
        raise ValueError("SquashedGaussian has no kl(); estimate it by the logp of samples under both.")

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * _size(action_space.shape)


class Beta(TFActionDistribution):
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
        self.alpha, self.beta = tf.split(1.0 + tf.nn.softplus(self.inputs), 2, axis=-1)
        self.low, self.high = low, high

    def _log_beta(self) -> Any:
        """Returns log B(α, β). Float `[B, A]`."""
        return tf.math.lgamma(self.alpha) + tf.math.lgamma(self.beta) - tf.math.lgamma(self.alpha + self.beta)

    def _scale(self, unit: Any) -> Any:
        return unit * (self.high - self.low) + self.low

    def _build_sample_op(self) -> Any:
        logit = _log_gamma_draws(self.alpha) - _log_gamma_draws(self.beta)
        return tf.stop_gradient(self._scale(tf.sigmoid(logit)))

    def deterministic_sample(self) -> Any:
        """Returns the means. Float `[B, A]`."""
        self.last_sample = self._scale(self.alpha / (self.alpha + self.beta))
        return self.last_sample

    def logp(self, x: Any) -> Any:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        width = self.high - self.low
        unit = tf.clip_by_value((self._as_inputs(x) - self.low) / width, SMALL, 1.0 - SMALL)
        powers = (self.alpha - 1.0) * tf.math.log(unit) + (self.beta - 1.0) * tf.math.log1p(-unit)
        return tf.reduce_sum(powers - self._log_beta() - math.log(width), axis=-1)

    def entropy(self) -> Any:
        """Returns the summed differential entropy. Float `[B]`."""
        a, b, total = self.alpha, self.beta, self.alpha + self.beta
        expected = (a - 1.0) * tf.math.digamma(a) + (b - 1.0) * tf.math.digamma(b)
        unit = self._log_beta() - expected + (total - 2.0) * tf.math.digamma(total)
        return tf.reduce_sum(unit + math.log(self.high - self.low), axis=-1)

    def kl(self, other: Any) -> Any:
        """Returns the summed divergence; both must have the same bounds. Float `[B]`."""
        a, b, c, d = self.alpha, self.beta, other.alpha, other.beta
        expected = (a - c) * tf.math.digamma(a) + (b - d) * tf.math.digamma(b)
        expected += (c + d - a - b) * tf.math.digamma(a + b)
        return tf.reduce_sum(other._log_beta() - self._log_beta() + expected, axis=-1)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * _size(action_space.shape)


class Dirichlet(TFActionDistribution):
    """A distribution over the simplex; inputs `[B, A]` are logs of the concentrations (kept above 1e-6)."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs, model)
        self.concentration = tf.maximum(tf.exp(tf.minimum(self.inputs, LOG_CONCENTRATION_MAX)), SMALL)
        self._total = tf.reduce_sum(self.concentration, axis=-1)

    def _log_normalizer(self) -> Any:
        """Returns log Γ(Σα) − Σ log Γ(α). Float `[B]`."""
        return tf.math.lgamma(self._total) - tf.reduce_sum(tf.math.lgamma(self.concentration), axis=-1)

    def _build_sample_op(self) -> Any:
        return tf.stop_gradient(tf.nn.softmax(_log_gamma_draws(self.concentration)))

    def deterministic_sample(self) -> Any:
        """Returns the means. Float `[B, A]`, rows sum to 1."""
        self.last_sample = self.concentration / self._total[:, tf.newaxis]
        return self.last_sample

    def logp(self, x: Any) -> Any:
        """Returns log-densities of `x`, float `[B, A]`, kept off the boundary by 1e-6. Float `[B]`."""
        point = tf.maximum(self._as_inputs(x), SMALL)
        point /= tf.reduce_sum(point, axis=-1, keepdims=True)
        return tf.reduce_sum((self.concentration - 1.0) * tf.math.log(point), axis=-1) + self._log_normalizer()

    def entropy(self) -> Any:
        """Returns the differential entropy. Float `[B]`."""
        components = (self.concentration - 1.0) * tf.math.digamma(self.concentration)
        parts = (self._total - self.inputs.shape[-1]) * tf.math.digamma(self._total)
        return parts - tf.reduce_sum(components, axis=-1) - self._log_normalizer()

    def kl(self, other: Any) -> Any:
        """Returns KL(self ‖ other). Float `[B]`."""
        expected_log = tf.math.digamma(self.concentration) - tf.math.digamma(self._total)[:, tf.newaxis]
        expected = tf.reduce_sum((self.concentration - other.concentration) * expected_log, axis=-1)
        return self._log_normalizer() - other._log_normalizer() + expected

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns one per component."""
        return _size(action_space.shape)


class Deterministic(TFActionDistribution):
    """Actions are the inputs themselves; for algorithms that add their own noise."""

    def _build_sample_op(self) -> Any:
        return self.inputs

    def deterministic_sample(self) -> Any:
        """Returns the inputs. Float `[B, A]`."""
        return self.sample()

    def logp(self, x: Any) -> Any:  # noqa: ARG002 - the interface's signature
        """Returns zeros. Float `[B]`."""
        return tf.zeros_like(self.inputs[:, 0])

    def entropy(self) -> Any:
        """Returns zeros. Float `[B]`."""
        return tf.zeros_like(self.inputs[:, 0])

    def kl(self, other: Any) -> Any:
        """Raises: points have no divergence."""
        raise NotImplementedError("Deterministic has no kl(): its distributions are points.")

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns one per action dimension."""
        return _size(action_space.shape)


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

    def _build_sample_op(self) -> Any:
        return tf.reshape(tf.tanh(self.inputs), [-1, *self.shape])


class RelaxedOneHot(Categorical):
    """A choice among A as a point on the simplex; see `rlframe.models.distributions.RelaxedOneHot`."""

    def _build_sample_op(self) -> Any:
        tiny = self.inputs.dtype.as_numpy_dtype(1e-20)  # uniform numbers may be 0, which has no logarithm
        uniform = tf.random.uniform(tf.shape(self.inputs), minval=tiny, dtype=self.inputs.dtype)
        return tf.nn.softmax(self.inputs - tf.math.log(-tf.math.log(uniform)))

    def deterministic_sample(self) -> Any:
        """Returns the points without noise. Float `[B, A]`."""
        self.last_sample = tf.nn.softmax(self.inputs)
        return self.last_sample

    def logp(self, x: Any) -> Any:
        """Returns log-likelihoods of the choices that `x` stands for: points `[B, A]`, or numbers `[B]`."""
        given = tf.convert_to_tensor(x)
        return super().logp(tf.argmax(given, axis=-1) if given.dtype.is_floating else given)


class MultiActionDistribution(TFActionDistribution):
    """Independent distributions for the leaves of a Dict or Tuple action space.

    Args:
        inputs: Outputs of the model for all leaves side by side. Float `[B, ΣK_i]`.
        model: The model that made them; may be None.
        child_distributions: One distribution class (or partial) per leaf, in the order of `tree.flatten`.
        input_lens: Width K_i of each leaf's inputs.
        action_space: The Dict or Tuple space; or give `structure` and `leaf_shapes`.
        structure: Any nested dict or tuple with the action space's structure.
        leaf_shapes: Shape of one action of every leaf, to cut apart actions that come concatenated.
    """

    #: The catalogue binds subclasses that programs register to the distributions of the action space's leaves.
    takes_children = True

    def __init__(  # noqa: PLR0913 - the first five are the signature users' programs call
        self,
        inputs: Any,
        model: Any = None,
        *,
        child_distributions: Any,
        input_lens: Sequence[int],
        action_space: Any = None,
        structure: Any = None,
        leaf_shapes: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(inputs, model)
        if action_space is not None:
            plan = plan_dist(action_space)
            structure, leaf_shapes = plan.options["structure"], plan.options["leaf_shapes"]
        if structure is None or leaf_shapes is None:
            raise ValueError("MultiActionDistribution needs action_space=, or structure= and leaf_shapes=.")
        self.action_space_struct = structure if action_space is None else space_struct(action_space)
        self._structure, self._leaf_shapes = structure, leaf_shapes
        parts = tf.split(self.inputs, [int(length) for length in input_lens], axis=1)
        children = tree.flatten(child_distributions)
        self.flat_child_distributions = [child(part, model) for child, part in zip(children, parts, strict=True)]

    def _nest(self, leaves: list[Any]) -> Any:
        return tree.unflatten_as(self._structure, leaves)

    def _build_sample_op(self) -> Any:
        return self._nest([child.sample() for child in self.flat_child_distributions])

    def deterministic_sample(self) -> Any:
        """Returns the most likely nested action: the action space's structure with `[B, ...]` leaves."""
        self.last_sample = self._nest([child.deterministic_sample() for child in self.flat_child_distributions])
        return self.last_sample

    def sampled_action_logp(self) -> Any:
        """Returns the summed log-likelihood of the leaves drawn last. Float `[B]`."""
        return tf.add_n([child.sampled_action_logp() for child in self.flat_child_distributions])

    def logp(self, x: Any) -> Any:
        """Returns summed log-likelihoods of nested actions, or of actions concatenated to `[B, ΣA_i]`. Float `[B]`."""
        leaves = self._split(x) if isinstance(x, tf.Tensor | np.ndarray) else tree.flatten(x)
        pairs = zip(self.flat_child_distributions, leaves, strict=True)
        return tf.add_n([child.logp(leaf) for child, leaf in pairs])

    def _split(self, x: Any) -> list[Any]:
        parts = tf.split(x, [_size(shape) for shape in self._leaf_shapes], axis=1)
        return [tf.reshape(part, [-1, *shape]) for part, shape in zip(parts, self._leaf_shapes, strict=True)]

    def entropy(self) -> Any:
        """Returns the summed entropy of the leaves. Float `[B]`."""
        return tf.add_n([child.entropy() for child in self.flat_child_distributions])

    def kl(self, other: Any) -> Any:
        """Returns the summed divergence of the leaves. Float `[B]`."""
        pairs = zip(self.flat_child_distributions, other.flat_child_distributions, strict=True)
        return tf.add_n([mine.kl(theirs) for mine, theirs in pairs])

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the summed width of the leaves' inputs."""
        return plan_dist(action_space).dim


#: Kinds of `rlframe.models.dist_plan` in TensorFlow.
TF_DISTRIBUTIONS: dict[str, Any] = {
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
