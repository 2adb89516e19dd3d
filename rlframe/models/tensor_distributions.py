"""Action distributions of native tensors, said once for PyTorch and TensorFlow; those that act are in `distributions`.

What a framework adds is how numbers are drawn and the names of its classes: `torch.torch_action_dist` and
`tf.tf_action_dist`. Everything works eagerly, with batches of unknown size, and while a graph is traced.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tree

from rlframe.models.action_dist import ActionDistribution
from rlframe.models.dist_plan import (
    LOG_CONCENTRATION_MAX,
    LOG_DENSITY_MAX,
    LOG_STD_MAX,
    LOG_STD_MIN,
    RAW_MAX,
    SMALL,
    plan_dist,
    space_struct,
)
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
_LOWEST, _TINY = float(np.finfo(np.float32).min), float(np.finfo(np.float32).tiny)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _halves(x: Tensor) -> list[Tensor]:
    half = int(x.shape[-1]) // 2
    return ops.split(x, [half, half])


def _sum_last(x: Tensor) -> Tensor:
    return ops.sum(x, -1)


#: What a list of rows of actions consists of, unlike one of tensors by component.
_IN_NUMPY = (np.ndarray, np.generic, int, list, tuple)


def _columns(rows: Sequence[Tensor]) -> Tensor:
    """Returns tensors `[B]` beside each other, `[B, N]`."""
    return ops.concat([each[:, None] for each in rows], 1)


def _total(terms: Sequence[Tensor]) -> Tensor:
    total: Tensor = functools.reduce(operator.add, terms)
    return total


class TensorDistribution(ActionDistribution):
    """What the distributions of both frameworks share; `_draw` says what `sample` gives.

    Args:
        inputs: Outputs of the model. Float `[B, K]`.
        model: The model that made them; may be None.
    """

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(self._as_tensor(inputs), model)
        self.last_sample: Any = None

    # --- what a framework gives -----------------------------------------------------------------------------------

    @staticmethod
    def _as_tensor(values: Any) -> Tensor:
        """Returns an array, or a tensor, as a tensor."""
        raise NotImplementedError

    @staticmethod
    def _as_floats(values: Any) -> Tensor:
        """Returns an array, or a tensor, as a tensor of floats."""
        raise NotImplementedError

    @staticmethod
    def _normal_like(x: Tensor) -> Tensor:
        """Draws standard normal numbers in the shape and dtype of `x`."""
        raise NotImplementedError

    @staticmethod
    def _uniform_like(x: Tensor) -> Tensor:
        """Draws numbers in [0, 1) in the shape and dtype of `x`."""
        raise NotImplementedError

    @staticmethod
    def _gamma(concentration: Tensor) -> Tensor:
        """Draws G ~ Gamma(concentration)."""
        raise NotImplementedError

    @staticmethod
    def _choices(log_probs: Tensor) -> Tensor:
        """Draws one of A choices per row of `log_probs [B, A]`. Int64 `[B]`."""
        raise NotImplementedError

    # --- what all have --------------------------------------------------------------------------------------------

    def _as_inputs(self, x: Any) -> Tensor:
        """Returns actions in the dtype of the inputs."""
        return ops.cast_like(self._as_tensor(x), self.inputs)

    def _draw(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define sample().")

    def sample(self) -> Any:
        """Draws one action per row."""
        self.last_sample = self._draw()
        return self.last_sample

    def _mode(self) -> Any:
        return super().deterministic_sample()  # which says that it is missing

    def deterministic_sample(self) -> Any:
        """Returns the most likely (or the mean) action of every row."""
        self.last_sample = self._mode()
        return self.last_sample

    def sampled_action_logp(self) -> Tensor:
        """Returns the log-likelihood of the actions drawn last. Float `[B]`."""
        if self.last_sample is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        return self.logp(self.last_sample)

    def _log_gamma_draws(self, concentration: Tensor) -> Tensor:
        """Draws log G with G ~ Gamma(concentration); finite where the draw itself is below the smallest float.

        log G(α) = log G(α + 1) + log(U) / α
        """
        boosted = ops.maximum(self._gamma(concentration + 1.0), _TINY)
        return ops.log(boosted) + ops.log(ops.maximum(self._uniform_like(concentration), _TINY)) / concentration


class Categorical(TensorDistribution):
    """One choice among A, from logits `[B, A]`.

    Args:
        inputs: Logits. Float `[B, A]`; integers are taken as floats.
        model: The model that made them; may be None.
        temperature: Logits are divided by it; must be positive.
    """

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if temperature <= 0.0:
            raise ValueError(f"{type(self).__name__} needs temperature > 0; got {temperature}.")
        inputs = self._as_floats(inputs)
        super().__init__(inputs if temperature == 1.0 else inputs / temperature, model)
        self.log_probs = ops.log_softmax(self.inputs)

    def _draw(self) -> Tensor:
        return self._choices(self.log_probs)

    def _mode(self) -> Tensor:
        return ops.argmax(self.inputs, axis=1)

    def logp(self, x: Any) -> Tensor:
        """Returns the log-likelihood of the actions `x`, integer `[B]` (or `[B, 1]`). Float `[B]`."""
        index = ops.reshape(ops.to_int(self._as_tensor(x)), (-1, *self.log_probs.shape[1:-1]))
        return ops.batched_index(self.log_probs, index)

    def entropy(self) -> Tensor:
        """Returns the entropy. Float `[B]`."""
        # Probability 0 times log-probability −∞ would be no number.
        return -_sum_last(ops.exp(self.log_probs) * ops.maximum(self.log_probs, _LOWEST))

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self ‖ other), infinite only where a choice is impossible, not where it is below floats. `[B]`."""
        p = ops.exp(self.log_probs)
        possible = p > 0.0
        return _sum_last(p * (ops.where(possible, self.log_probs, 0.0) - ops.where(possible, other.log_probs, 0.0)))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns the number of actions."""
        del model_config
        return int(action_space.n)


class MultiCategorical(TensorDistribution):
    """Several independent choices; logits of all lie side by side in `[B, ΣA_i]`.

    Args:
        inputs: Logits. Float `[B, ΣA_i]`.
        model: The model that made them; may be None.
        input_lens: Number of choices A_i of each component; left out only where a derived class sets `cats` itself.
        action_space: Gives the shape and dtype of actions, where `shape` and `dtype` are not given.
        shape: Shape of one action; None is `[len(input_lens)]`.
        dtype: Integer NumPy dtype of actions; None is int64.
    """

    #: The framework's class of one choice.
    component: Any

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
        self._components: list[Any] = []
        if not self.input_lens and type(self).__init__ is not type(self).known_constructor:
            return  # a program's own constructor, which sets `cats` behind this one
        if sum(self.input_lens) != self.inputs.shape[1]:
            raise ValueError(f"input_lens {self.input_lens} do not add up to the {self.inputs.shape[1]} inputs.")
        if action_space is not None and shape is None:
            shape, dtype = tuple(action_space.shape), action_space.dtype
        self._shape = (len(self.input_lens),) if shape is None else tuple(shape)
        # PyTorch lacks most unsigned types; int64 serves them all.
        self._bits = 32 if dtype is not None and np.dtype(dtype) == np.int32 else 64
        self._components = [self.component(part, model) for part in ops.split(self.inputs, self.input_lens)]

    def _stack(self, components: list[Tensor]) -> Tensor:
        return ops.to_int(ops.reshape(_columns(components), (-1, *self._shape)), self._bits)

    def _draw(self) -> Tensor:
        return self._stack([each.sample() for each in self._components])

    def _mode(self) -> Tensor:
        return self._stack([each.deterministic_sample() for each in self._components])

    def logp(self, actions: Any) -> Tensor:
        """Returns the summed log-likelihood of the components of `actions`, integer `[B, *shape]`. Float `[B]`.

        A list of tensors `[B]` has one for each component, and so have the rows of an array `[components, B]`.
        """
        by_part = (len(self._components), self.inputs.shape[0])
        if isinstance(actions, np.ndarray) and actions.shape == by_part != by_part[::-1]:
            actions = actions.T
        if isinstance(actions, (list, tuple)) and not any(isinstance(each, _IN_NUMPY) for each in actions):
            actions = _columns(actions)
        index = ops.reshape(ops.to_int(self._as_tensor(actions)), (-1, len(self._components)))
        return _total([each.logp(index[:, i]) for i, each in enumerate(self._components)])

    def multi_entropy(self) -> Tensor:
        """Returns the entropy of every component. Float `[B, components]`."""
        return _columns([each.entropy() for each in self._components])

    def entropy(self) -> Tensor:
        """Returns the summed entropy. Float `[B]`."""
        return _sum_last(self.multi_entropy())

    def multi_kl(self, other: Any) -> Tensor:
        """Returns the divergence of every component. Float `[B, components]`."""
        pairs = zip(self._components, other._components, strict=True)
        return _columns([mine.kl(theirs) for mine, theirs in pairs])

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence. Float `[B]`."""
        return _sum_last(self.multi_kl(other))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns the number of logits."""
        del model_config
        return plan_dist(action_space).dim

    known_constructor = __init__


class _OnABox(TensorDistribution):
    """Two numbers for each number of an action."""

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns two per action dimension."""
        del model_config
        return 2 * _size(action_space.shape)


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
        return _sum_last(self._normal_logp(self._as_inputs(x)))

    def entropy(self) -> Tensor:
        """Returns the summed differential entropy. Float `[B]`."""
        return _sum_last(self.log_std + (0.5 + _HALF_LOG_TAU))

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence. Float `[B]`."""
        log_ratio = self.log_std - other.log_std
        distance = ops.square((self.mean - other.mean) / other.std)
        return _sum_last(0.5 * (ops.exp(2.0 * log_ratio) + distance - 1.0) - log_ratio)


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
        return _sum_last(normal - slope)

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
        return _sum_last(powers - self._log_beta() - math.log(width))

    def entropy(self) -> Tensor:
        """Returns the summed differential entropy. Float `[B]`."""
        a, b, total = self.alpha, self.beta, self.alpha + self.beta
        expected = (a - 1.0) * ops.digamma(a) + (b - 1.0) * ops.digamma(b)
        unit = self._log_beta() - expected + (total - 2.0) * ops.digamma(total)
        return _sum_last(unit + math.log(self.high - self.low))

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence; both must have the same bounds. Float `[B]`."""
        a, b, c, d = self.alpha, self.beta, other.alpha, other.beta
        expected = (a - c) * ops.digamma(a) + (b - d) * ops.digamma(b) + (c + d - a - b) * ops.digamma(a + b)
        return _sum_last(other._log_beta() - self._log_beta() + expected)


class Dirichlet(TensorDistribution):
    """A distribution over the simplex; inputs `[B, A]` are logs of the concentrations (kept above 1e-6)."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs, model)
        self.concentration = ops.maximum(ops.exp(ops.minimum(self.inputs, LOG_CONCENTRATION_MAX)), SMALL)

    @property
    def _whole(self) -> Tensor:
        """The sum of the concentrations. Float `[B]`."""
        return _sum_last(self.concentration)

    def _log_normalizer(self) -> Tensor:
        """Returns log Γ(Σα) − Σ log Γ(α). Float `[B]`."""
        return ops.lgamma(self._whole) - _sum_last(ops.lgamma(self.concentration))

    def _draw(self) -> Tensor:
        return ops.stop_gradient(ops.softmax(self._log_gamma_draws(self.concentration)))

    def _mode(self) -> Tensor:
        return self.concentration / self._whole[:, None]

    def logp(self, x: Any) -> Tensor:
        """Returns log-densities of `x`, float `[B, A]`, kept off the boundary by 1e-6. Float `[B]`."""
        point = ops.maximum(self._as_inputs(x), SMALL)
        point = point / _sum_last(point)[:, None]
        return _sum_last((self.concentration - 1.0) * ops.log(point)) + self._log_normalizer()

    def entropy(self) -> Tensor:
        """Returns the differential entropy. Float `[B]`."""
        components = (self.concentration - 1.0) * ops.digamma(self.concentration)
        parts = (self._whole - float(self.inputs.shape[-1])) * ops.digamma(self._whole)
        return parts - _sum_last(components) - self._log_normalizer()

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self ‖ other). Float `[B]`."""
        expected_log = ops.digamma(self.concentration) - ops.digamma(self._whole)[:, None]
        expected = _sum_last((self.concentration - other.concentration) * expected_log)
        return self._log_normalizer() - other._log_normalizer() + expected

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns one per component."""
        del model_config
        return _size(action_space.shape)


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


class MultiActionDistribution(TensorDistribution):
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
            raise ValueError(f"{type(self).__name__} needs action_space=, or structure= and leaf_shapes=.")
        self.action_space_struct = structure if action_space is None else space_struct(action_space)
        self._structure, self._leaf_shapes = structure, leaf_shapes
        parts = ops.split(self.inputs, [int(length) for length in input_lens])
        children = tree.flatten(child_distributions)
        self.flat_child_distributions = [child(part, model) for child, part in zip(children, parts, strict=True)]

    def _draw(self) -> Any:
        return tree.unflatten_as(self._structure, [child.sample() for child in self.flat_child_distributions])

    def _mode(self) -> Any:
        modes = [child.deterministic_sample() for child in self.flat_child_distributions]
        return tree.unflatten_as(self._structure, modes)

    def sampled_action_logp(self) -> Tensor:
        """Returns the summed log-likelihood of the leaves drawn last. Float `[B]`."""
        return _total([child.sampled_action_logp() for child in self.flat_child_distributions])

    def logp(self, x: Any) -> Tensor:
        """Returns summed log-likelihoods of nested actions, or of actions concatenated to `[B, ΣA_i]`. Float `[B]`."""
        leaves = tree.flatten(x) if isinstance(x, (Mapping, tuple, list)) else self._split(self._as_tensor(x))
        pairs = zip(self.flat_child_distributions, leaves, strict=True)
        return _total([child.logp(leaf) for child, leaf in pairs])

    def _split(self, x: Tensor) -> list[Tensor]:
        parts = ops.split(x, [_size(shape) for shape in self._leaf_shapes])
        return [ops.reshape(part, (-1, *shape)) for part, shape in zip(parts, self._leaf_shapes, strict=True)]

    def entropy(self) -> Tensor:
        """Returns the summed entropy of the leaves. Float `[B]`."""
        return _total([child.entropy() for child in self.flat_child_distributions])

    def kl(self, other: Any) -> Tensor:
        """Returns the summed divergence of the leaves. Float `[B]`."""
        pairs = zip(self.flat_child_distributions, other.flat_child_distributions, strict=True)
        return _total([mine.kl(theirs) for mine, theirs in pairs])

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns the summed width of the leaves' inputs."""
        del model_config
        return plan_dist(action_space).dim
