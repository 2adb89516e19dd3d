"""Action distributions in PyTorch; the NumPy siblings are in `rlframe.models.distributions`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
import tree
from torch import distributions as td

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

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


def _as_tensor(inputs: Any) -> torch.Tensor:
    return inputs if isinstance(inputs, torch.Tensor) else torch.as_tensor(inputs)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _categorical_kl(mine: Any, theirs: Any) -> torch.Tensor:
    """Returns KL of two categoricals, from log-probabilities: infinite only where a choice is impossible for one.

    Torch's own says infinite also where a probability is below the smallest float, though its logarithm is known.
    """
    p = mine.probs
    possible = p > 0.0
    difference = torch.where(possible, mine.logits, 0.0) - torch.where(possible, theirs.logits, 0.0)
    result: torch.Tensor = (p * difference).sum(dim=-1)
    return result


def _log_gamma_draws(concentration: torch.Tensor) -> torch.Tensor:
    """Draws log G with G ~ Gamma(concentration); finite where the draw itself is below the smallest float.

    log G(α) = log G(α + 1) + log(U) / α
    """
    tiny = torch.finfo(concentration.dtype).tiny
    boosted = torch._standard_gamma(concentration + 1.0).clamp(min=tiny)
    uniform = torch.rand_like(concentration).clamp(min=tiny)
    return boosted.log() + uniform.log() / concentration


class TorchDistributionWrapper(ActionDistribution):
    """Base of the distributions that rest on `torch.distributions`; `self.dist` is that object.

    Args:
        inputs: Outputs of the model. Float `[B, K]`.
        model: The model that made them; may be None.
    """

    dist: Any

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(_as_tensor(inputs), model)
        self.last_sample: Any = None

    def sample(self) -> Any:
        """Draws one action per row."""
        self.last_sample = self.dist.sample()
        return self.last_sample

    def logp(self, actions: Any) -> torch.Tensor:
        """Returns the log-likelihood of the actions `actions`. Float `[B]`."""
        result: torch.Tensor = self.dist.log_prob(_as_tensor(actions))
        return result

    def entropy(self) -> torch.Tensor:
        """Returns the entropy. Float `[B]`."""
        result: torch.Tensor = self.dist.entropy()
        return result

    def kl(self, other: Any) -> torch.Tensor:
        """Returns KL(self ‖ other). Float `[B]`."""
        return td.kl_divergence(self.dist, other.dist)

    def sampled_action_logp(self) -> torch.Tensor:
        """Returns the log-likelihood of the actions drawn last. Float `[B]`."""
        if self.last_sample is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        return self.logp(self.last_sample)


class TorchCategorical(TorchDistributionWrapper):
    """One choice among A, from logits `[B, A]`.

    Args:
        inputs: Logits. Float `[B, A]`.
        model: The model that made them; may be None.
        temperature: Logits are divided by it; must be positive.
    """

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if temperature <= 0.0:
            raise ValueError(f"TorchCategorical needs temperature > 0; got {temperature}.")
        inputs = _as_tensor(inputs)
        super().__init__(inputs if temperature == 1.0 else inputs / temperature, model)
        self.dist = td.Categorical(logits=self.inputs, validate_args=False)

    def logp(self, x: Any) -> torch.Tensor:
        """Returns the log-likelihood of the actions `x`, integer `[B]` (or `[B, 1]`). Float `[B]`."""
        return super().logp(_as_tensor(x).reshape(self.inputs.shape[:-1]))

    def kl(self, other: Any) -> torch.Tensor:
        """Returns KL(self ‖ other). Float `[B]`."""
        return _categorical_kl(self.dist, other.dist)

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the most likely actions. Int64 `[B]`."""
        self.last_sample = self.inputs.argmax(dim=1)
        result: torch.Tensor = self.last_sample
        return result

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of actions."""
        return int(action_space.n)


class TorchMultiCategorical(TorchDistributionWrapper):
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
        # Torch lacks most unsigned types; int64 serves them all.
        self._dtype = torch.int32 if dtype is not None and np.dtype(dtype) == np.int32 else torch.int64
        parts = torch.split(self.inputs, list(self.input_lens), dim=1)
        self.cats: list[Any] = [td.Categorical(logits=part, validate_args=False) for part in parts]

    def _stack(self, components: list[torch.Tensor]) -> torch.Tensor:
        stacked = torch.stack(components, dim=1).reshape(-1, *self._shape)
        self.last_sample = stacked.to(self._dtype)
        result: torch.Tensor = self.last_sample
        return result

    def sample(self) -> torch.Tensor:
        """Draws actions, integer `[B, *shape]`, each component counted from 0."""
        return self._stack([cat.sample() for cat in self.cats])

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the most likely action of every component, integer `[B, *shape]`."""
        return self._stack([cat.logits.argmax(dim=1) for cat in self.cats])

    def logp(self, actions: Any) -> torch.Tensor:
        """Returns the summed log-likelihood of the components of `actions`, integer `[B, *shape]`. Float `[B]`."""
        index = _as_tensor(actions).reshape(self.inputs.shape[0], len(self.cats))
        return torch.stack([cat.log_prob(index[:, i]) for i, cat in enumerate(self.cats)], dim=1).sum(dim=1)

    def multi_entropy(self) -> torch.Tensor:
        """Returns the entropy of every component. Float `[B, components]`."""
        return torch.stack([cat.entropy() for cat in self.cats], dim=1)

    def entropy(self) -> torch.Tensor:
        """Returns the summed entropy. Float `[B]`."""
        return self.multi_entropy().sum(dim=1)

    def multi_kl(self, other: Any) -> torch.Tensor:
        """Returns the divergence of every component. Float `[B, components]`."""
        pairs = zip(self.cats, other.cats, strict=True)
        return torch.stack([_categorical_kl(mine, theirs) for mine, theirs in pairs], dim=1)

    def kl(self, other: Any) -> torch.Tensor:
        """Returns the summed divergence. Float `[B]`."""
        return self.multi_kl(other).sum(dim=1)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of logits."""
        return plan_dist(action_space).dim


class TorchDiagGaussian(TorchDistributionWrapper):
    """Independent normal components, unbounded; inputs `[B, 2A]` are A means, then A log standard deviations."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs, model)
        self.mean, self.log_std = self.inputs.chunk(2, dim=1)
        self.dist = td.Normal(self.mean, self.log_std.exp(), validate_args=False)

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the means. Float `[B, A]`."""
        self.last_sample = self.dist.mean
        result: torch.Tensor = self.last_sample
        return result

    def logp(self, actions: Any) -> torch.Tensor:
        """Returns log-densities of `actions`, float `[B, A]`. Float `[B]`."""
        # Torch's own squares deviations before it divides, which no deviation below 1e-19 or above 1e19 survives.
        z = (_as_tensor(actions) - self.mean) / self.dist.stddev
        result: torch.Tensor = (-0.5 * z.square() - self.log_std - _HALF_LOG_TAU).sum(dim=-1)
        return result

    def entropy(self) -> torch.Tensor:
        """Returns the summed differential entropy. Float `[B]`."""
        result: torch.Tensor = (self.log_std + (0.5 + _HALF_LOG_TAU)).sum(dim=-1)
        return result

    def kl(self, other: Any) -> torch.Tensor:
        """Returns the summed divergence. Float `[B]`."""
        log_ratio = self.log_std - other.log_std
        distance = ((self.mean - other.mean) / other.dist.stddev).square()
        result: torch.Tensor = (0.5 * ((2.0 * log_ratio).exp() + distance - 1.0) - log_ratio).sum(dim=-1)
        return result

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * _size(action_space.shape)


class TorchSquashedGaussian(TorchDistributionWrapper):
    """A normal variable through tanh onto [low, high]; inputs `[B, 2A]` as for the Gaussian, log σ limited to [−20, 2].

    Args:
        inputs: Means and log standard deviations before squashing. Float `[B, 2A]`.
        model: The model that made them; may be None.
        low: Lower bound of actions.
        high: Upper bound of actions.
    """

    def __init__(self, inputs: Any, model: Any = None, low: float = -1.0, high: float = 1.0) -> None:
        if not low < high:
            raise ValueError(f"TorchSquashedGaussian needs low < high; got low={low}, high={high}.")
        super().__init__(inputs, model)
        mean, log_std = self.inputs.chunk(2, dim=-1)
        self.dist = td.Normal(mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp(), validate_args=False)
        self.low, self.high = low, high
        self._last_raw: torch.Tensor | None = None

    def _squash(self, raw: torch.Tensor) -> torch.Tensor:
        # Limited, so that the log-density told now is also the one told later of the stored action.
        self._last_raw = raw = raw.clamp(-RAW_MAX, RAW_MAX)
        self.last_sample = (raw.tanh() + 1.0) * (0.5 * (self.high - self.low)) + self.low
        result: torch.Tensor = self.last_sample
        return result

    def sample(self) -> torch.Tensor:
        """Draws actions in [low, high] through which gradients flow. Float `[B, A]`."""
        return self._squash(self.dist.rsample())

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the squashed means. Float `[B, A]`."""
        return self._squash(self.dist.mean)

    def sample_logp(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws actions `[B, A]` and returns them with their log-densities `[B]`."""
        return self.sample(), self.sampled_action_logp()

    def sampled_action_logp(self) -> torch.Tensor:
        """Returns the log-density of the actions drawn last, without the rounding of tanh and back. Float `[B]`."""
        if self._last_raw is None:
            raise ValueError("sampled_action_logp() speaks of the last sample: call sample() first.")
        return self._raw_logp(self._last_raw)

    def logp(self, x: Any) -> torch.Tensor:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        unit = (_as_tensor(x) - self.low) / (self.high - self.low) * 2.0 - 1.0
        return self._raw_logp(torch.atanh(unit.clamp(-1.0 + SMALL, 1.0 - SMALL)))

    def _raw_logp(self, raw: torch.Tensor) -> torch.Tensor:
        # log(1 − tanh² z) = 2 (log 2 − z − softplus(−2z)) has no cancellation at large |z|.
        slope = 2.0 * (math.log(2.0) - raw - F.softplus(-2.0 * raw)) + math.log(0.5 * (self.high - self.low))
        result: torch.Tensor = (self.dist.log_prob(raw) - slope).sum(dim=-1)
        return result

    def entropy(self) -> torch.Tensor:
        """Raises: the entropy has no closed form."""
        raise ValueError("The entropy of TorchSquashedGaussian has no closed form; estimate it by -logp of samples.")

    def kl(self, other: Any) -> torch.Tensor:  # noqa: ARG002 - the interface's signature
        """Raises: the divergence has no closed form here."""
        raise ValueError("TorchSquashedGaussian has no kl(); estimate it by the logp of samples under both.")

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * _size(action_space.shape)


class TorchBeta(TorchDistributionWrapper):
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
        alpha, beta = (1.0 + F.softplus(self.inputs)).chunk(2, dim=-1)
        self.dist = td.Beta(alpha, beta, validate_args=False)
        self.low, self.high = low, high

    def _scale(self, unit: torch.Tensor) -> torch.Tensor:
        self.last_sample = unit * (self.high - self.low) + self.low
        result: torch.Tensor = self.last_sample
        return result

    def sample(self) -> torch.Tensor:
        """Draws actions in [low, high]. Float `[B, A]`."""
        return self._scale(self.dist.sample())

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the means. Float `[B, A]`."""
        return self._scale(self.dist.mean)

    def logp(self, x: Any) -> torch.Tensor:
        """Returns log-densities of `x`, float `[B, A]` in [low, high]. Float `[B]`."""
        unit = ((_as_tensor(x) - self.low) / (self.high - self.low)).clamp(SMALL, 1.0 - SMALL)
        return (super().logp(unit) - math.log(self.high - self.low)).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Returns the summed differential entropy. Float `[B]`."""
        return (super().entropy() + math.log(self.high - self.low)).sum(dim=-1)

    def kl(self, other: Any) -> torch.Tensor:
        """Returns the summed divergence; both must have the same bounds. Float `[B]`."""
        return super().kl(other).sum(dim=-1)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns two per action dimension."""
        return 2 * _size(action_space.shape)


class TorchDirichlet(TorchDistributionWrapper):
    """A distribution over the simplex; inputs `[B, A]` are logs of the concentrations (kept above 1e-6)."""

    def __init__(self, inputs: Any, model: Any = None) -> None:
        super().__init__(inputs, model)
        self.dist = td.Dirichlet(
            self.inputs.clamp(max=LOG_CONCENTRATION_MAX).exp().clamp(min=SMALL), validate_args=False
        )

    def sample(self) -> torch.Tensor:
        """Draws points of the simplex. Float `[B, A]`, rows sum to 1."""
        with torch.no_grad():
            self.last_sample = _log_gamma_draws(self.dist.concentration).softmax(dim=-1)
        result: torch.Tensor = self.last_sample
        return result

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the means. Float `[B, A]`, rows sum to 1."""
        self.last_sample = self.dist.mean
        result: torch.Tensor = self.last_sample
        return result

    def logp(self, x: Any) -> torch.Tensor:
        """Returns log-densities of `x`, float `[B, A]`, kept off the boundary by 1e-6. Float `[B]`."""
        point = _as_tensor(x).clamp(min=SMALL)
        return super().logp(point / point.sum(dim=-1, keepdim=True))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns one per component."""
        return _size(action_space.shape)


class TorchDeterministic(TorchDistributionWrapper):
    """Actions are the inputs themselves; for algorithms that add their own noise."""

    def sample(self) -> torch.Tensor:
        """Returns the inputs. Float `[B, A]`."""
        self.last_sample = self.inputs
        result: torch.Tensor = self.inputs
        return result

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the inputs. Float `[B, A]`."""
        return self.sample()

    def logp(self, x: Any) -> torch.Tensor:  # noqa: ARG002 - the interface's signature
        """Returns zeros. Float `[B]`."""
        return torch.zeros_like(self.inputs[:, 0])

    def entropy(self) -> torch.Tensor:
        """Returns zeros. Float `[B]`."""
        return torch.zeros_like(self.inputs[:, 0])

    def kl(self, other: Any) -> torch.Tensor:
        """Raises: points have no divergence."""
        raise NotImplementedError("TorchDeterministic has no kl(): its distributions are points.")

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns one per action dimension."""
        return _size(action_space.shape)


class TorchTanh(TorchDeterministic):
    """The hyperbolic tangent of the inputs `[B, A]`: actions in [-1, 1], to which an exploration adds noise.

    Args:
        inputs: Outputs of the model. Float `[B, A]`.
        model: The model that made them; may be None.
        shape: Shape of one action, of A numbers.
    """

    def __init__(self, inputs: Any, model: Any = None, *, shape: tuple[int, ...]) -> None:
        super().__init__(inputs, model)
        self.shape = shape

    def sample(self) -> torch.Tensor:
        """Returns the actions. Float `[B, *shape]`."""
        actions: torch.Tensor = torch.tanh(self.inputs).reshape(-1, *self.shape)
        self.last_sample = actions
        return actions


class TorchRelaxedOneHot(TorchCategorical):
    """A choice among A as a point on the simplex; see `rlframe.models.distributions.RelaxedOneHot`."""

    def sample(self) -> torch.Tensor:
        """Draws points, with gradients. Float `[B, A]`."""
        gumbel = -torch.log(torch.empty_like(self.inputs).exponential_())
        drawn = torch.softmax(self.inputs + gumbel, dim=-1)
        self.last_sample = drawn
        return drawn

    def deterministic_sample(self) -> torch.Tensor:
        """Returns the points without noise. Float `[B, A]`."""
        points = torch.softmax(self.inputs, dim=-1)
        self.last_sample = points
        return points

    def logp(self, x: Any) -> torch.Tensor:
        """Returns log-likelihoods of the choices that `x` stands for: points `[B, A]`, or numbers `[B]`."""
        given = _as_tensor(x)
        return super().logp(given.argmax(-1) if given.is_floating_point() else given)


class TorchMultiActionDistribution(TorchDistributionWrapper):
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
            raise ValueError("TorchMultiActionDistribution needs action_space=, or structure= and leaf_shapes=.")
        self.action_space_struct = structure if action_space is None else space_struct(action_space)
        self._structure, self._leaf_shapes = structure, leaf_shapes
        parts = torch.split(self.inputs, [int(length) for length in input_lens], dim=1)
        children = tree.flatten(child_distributions)
        self.flat_child_distributions = [child(part, model) for child, part in zip(children, parts, strict=True)]

    def _nest(self, leaves: list[Any]) -> Any:
        self.last_sample = tree.unflatten_as(self._structure, leaves)
        return self.last_sample

    def sample(self) -> Any:
        """Draws a nested action: the action space's structure with `[B, ...]` leaves."""
        return self._nest([child.sample() for child in self.flat_child_distributions])

    def deterministic_sample(self) -> Any:
        """Returns the most likely nested action: the action space's structure with `[B, ...]` leaves."""
        return self._nest([child.deterministic_sample() for child in self.flat_child_distributions])

    def sampled_action_logp(self) -> torch.Tensor:
        """Returns the summed log-likelihood of the leaves drawn last. Float `[B]`."""
        return torch.stack([child.sampled_action_logp() for child in self.flat_child_distributions]).sum(dim=0)

    def logp(self, x: Any) -> torch.Tensor:
        """Returns summed log-likelihoods of nested actions, or of actions concatenated to `[B, ΣA_i]`. Float `[B]`."""
        leaves = self._split(_as_tensor(x)) if isinstance(x, torch.Tensor | np.ndarray) else tree.flatten(x)
        pairs = zip(self.flat_child_distributions, leaves, strict=True)
        return torch.stack([child.logp(leaf) for child, leaf in pairs]).sum(dim=0)

    def _split(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.split(x, [_size(shape) for shape in self._leaf_shapes], dim=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, self._leaf_shapes, strict=True)]

    def entropy(self) -> torch.Tensor:
        """Returns the summed entropy of the leaves. Float `[B]`."""
        return torch.stack([child.entropy() for child in self.flat_child_distributions]).sum(dim=0)

    def kl(self, other: Any) -> torch.Tensor:
        """Returns the summed divergence of the leaves. Float `[B]`."""
        pairs = zip(self.flat_child_distributions, other.flat_child_distributions, strict=True)
        return torch.stack([mine.kl(theirs) for mine, theirs in pairs]).sum(dim=0)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the summed width of the leaves' inputs."""
        return plan_dist(action_space).dim


#: Kinds of `rlframe.models.dist_plan` in PyTorch.
TORCH_DISTRIBUTIONS: dict[str, Any] = {
    "categorical": TorchCategorical,
    "multi_categorical": TorchMultiCategorical,
    "diag_gaussian": TorchDiagGaussian,
    "squashed_gaussian": TorchSquashedGaussian,
    "beta": TorchBeta,
    "dirichlet": TorchDirichlet,
    "deterministic": TorchDeterministic,
    "tanh": TorchTanh,
    "relaxed_one_hot": TorchRelaxedOneHot,
    "multi_action": TorchMultiActionDistribution,
}
