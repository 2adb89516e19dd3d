"""Action distributions in PyTorch; what they compute is said in `rlframe.models.tensor_distributions`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import distributions as td

from rlframe.models import compound_tensor_distributions as compound
from rlframe.models import continuous_tensor_distributions as continuous
from rlframe.models import tensor_distributions as once
from rlframe.tensor import ops


class TorchDistributionWrapper(once.TensorDistribution):
    """Base of the distributions in PyTorch.

    One of the user's own may set `self.dist` to an object of `torch.distributions` in its constructor, and define
    `deterministic_sample` and what else that object does not say. Where it sets that of a class below, the parameters
    of the new object take the place of its own.

    Args:
        inputs: Outputs of the model. Float `[B, K]`.
        model: The model that made them; may be None.
    """

    dist: Any

    @staticmethod
    def _as_tensor(values: Any) -> Tensor:
        return values if isinstance(values, Tensor) else torch.as_tensor(values)

    @staticmethod
    def _as_floats(values: Any) -> Tensor:
        tensor = torch.as_tensor(values)
        return tensor if tensor.is_floating_point() else tensor.float()

    def _as_inputs(self, x: Any) -> Tensor:
        return self._as_tensor(x)  # arithmetic takes the wider dtype by itself

    @staticmethod
    def _normal_like(x: Tensor) -> Tensor:
        return torch.randn_like(x)

    @staticmethod
    def _uniform_like(x: Tensor) -> Tensor:
        return torch.rand_like(x)

    @staticmethod
    def _gamma(concentration: Tensor) -> Tensor:
        return torch._standard_gamma(concentration)

    @staticmethod
    def _choices(log_probs: Tensor) -> Tensor:
        return torch.multinomial(log_probs.exp(), 1, replacement=True).squeeze(1)

    def _draw(self) -> Any:
        return self.dist.sample()

    def logp(self, actions: Any) -> Tensor:
        """Returns the log-likelihood of the actions `actions`. Float `[B]`."""
        result: Tensor = self.dist.log_prob(self._as_tensor(actions))
        return result

    def entropy(self) -> Tensor:
        """Returns the entropy. Float `[B]`."""
        result: Tensor = self.dist.entropy()
        return result

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self ‖ other). Float `[B]`."""
        return td.kl_divergence(self.dist, other.dist)


class TorchCategorical(once.Categorical, TorchDistributionWrapper):
    """`tensor_distributions.Categorical` in PyTorch."""

    @property
    def dist(self) -> Any:
        """The same as a `torch.distributions.Categorical`."""
        return td.Categorical(logits=self.log_probs, validate_args=False)

    @dist.setter
    def dist(self, dist: Any) -> None:
        self.inputs = self.log_probs = dist.logits


class TorchMultiCategorical(compound.MultiCategorical, TorchDistributionWrapper):
    """`compound_tensor_distributions.MultiCategorical` in PyTorch."""

    component = TorchCategorical

    @property
    def cats(self) -> list[Any]:
        """The components as `torch.distributions.Categorical`s."""
        return [each.dist for each in self._components]

    @cats.setter
    def cats(self, cats: list[Any]) -> None:
        if not self._components:  # of a program's own constructor
            self.input_lens = tuple(int(cat.logits.shape[-1]) for cat in cats)
            self._shape, self._bits = (len(cats),), 64
            self._components = [self.component(cat.logits, self.model) for cat in cats]
        for each, cat in zip(self._components, cats, strict=True):
            each.dist = cat


class _Normal(TorchDistributionWrapper):
    """A distribution that rests on normal components."""

    mean: Tensor
    std: Tensor
    log_std: Tensor

    @property
    def dist(self) -> Any:
        """The normal components as a `torch.distributions.Normal`."""
        return td.Normal(self.mean, self.std, validate_args=False)

    @dist.setter
    def dist(self, dist: Any) -> None:
        self.mean, self.std, self.log_std = dist.mean, dist.stddev, dist.stddev.log()


class TorchDiagGaussian(continuous.DiagGaussian, _Normal):
    """`continuous_tensor_distributions.DiagGaussian` in PyTorch."""

    def _draw(self) -> Any:
        return ops.stop_gradient(super()._draw())

    def logp(self, actions: Any) -> Tensor:  # RLlib's name of the argument
        """Returns log-densities of `actions`, float `[B, A]`. Float `[B]`."""
        result: Tensor = super().logp(actions)
        return result


class TorchSquashedGaussian(continuous.SquashedGaussian, _Normal):
    """`continuous_tensor_distributions.SquashedGaussian` in PyTorch."""


class TorchBeta(continuous.Beta, TorchDistributionWrapper):
    """`continuous_tensor_distributions.Beta` in PyTorch."""

    @property
    def dist(self) -> Any:
        """The components on [0, 1] as a `torch.distributions.Beta`."""
        return td.Beta(self.alpha, self.beta, validate_args=False)

    @dist.setter
    def dist(self, dist: Any) -> None:
        self.alpha, self.beta = dist.concentration1, dist.concentration0


class TorchDirichlet(continuous.Dirichlet, TorchDistributionWrapper):
    """`continuous_tensor_distributions.Dirichlet` in PyTorch."""

    @property
    def dist(self) -> Any:
        """The same as a `torch.distributions.Dirichlet`."""
        return td.Dirichlet(self.concentration, validate_args=False)

    @dist.setter
    def dist(self, dist: Any) -> None:
        self.concentration = dist.concentration


class TorchDeterministic(continuous.Deterministic, TorchDistributionWrapper):
    """`continuous_tensor_distributions.Deterministic` in PyTorch."""


class TorchTanh(continuous.Tanh, TorchDistributionWrapper):
    """`continuous_tensor_distributions.Tanh` in PyTorch."""


class TorchRelaxedOneHot(continuous.RelaxedOneHot, TorchCategorical):
    """`continuous_tensor_distributions.RelaxedOneHot` in PyTorch."""


class TorchMultiActionDistribution(compound.MultiActionDistribution, TorchDistributionWrapper):
    """`compound_tensor_distributions.MultiActionDistribution` in PyTorch."""


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
