"""Distributions of actions in several parts, in NumPy: several choices, and nested action spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tree

from rlframe.models.dist_plan import plan_dist
from rlframe.models.distributions import (
    Array,
    NumpyDistClass,
    NumpyDistribution,
    categorical_entropy,
    categorical_kl,
    log_softmax,
    sum_last,
)


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
        return np.stack([categorical_entropy(part) for part in self.log_probs], axis=1)

    def entropy(self) -> Array:
        """Returns the summed entropy. Float `[B]`."""
        return sum_last(self.multi_entropy())

    def multi_kl(self, other: MultiCategorical) -> Array:
        """Returns the divergence of every component. Float `[B, components]`."""
        pairs = zip(self.log_probs, other.log_probs, strict=True)
        return np.stack([categorical_kl(mine, theirs) for mine, theirs in pairs], axis=1)

    def kl(self, other: MultiCategorical) -> Array:
        """Returns the summed divergence. Float `[B]`."""
        return sum_last(self.multi_kl(other))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of logits."""
        return plan_dist(action_space).dim


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
