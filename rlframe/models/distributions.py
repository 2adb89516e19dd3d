"""Action distributions in NumPy: what acts without a framework, and what the framework siblings are tested against.

Here are the base and choices among actions; `gaussian`, `bounded_distributions` and `compound_distributions` have the
others, `numpy_dists` finds the one for an action space.

Inputs may be float32 or float64; densities come back in the dtype of the inputs. Every distribution is made anew for
each forward pass, so construction does as little as possible and everything else is computed when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlframe.models.action_dist import ActionDistribution

Array: TypeAlias = NDArray[Any]
NumpyDistClass: TypeAlias = "type[NumpyDistribution] | Callable[..., NumpyDistribution]"


def log_softmax(logits: Array) -> Array:
    """Returns log-probabilities along the last axis; finite for logits as low as the smallest float."""
    # The ufuncs' own reduce: the methods of arrays cost 2 µs more per call, as much as the work on a small batch.
    shifted: Array = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    shifted -= np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True))
    return shifted


def sum_last(x: Array) -> Array:
    """Returns sums along the last axis."""
    total: Array = np.add.reduce(x, axis=-1)
    return total


def categorical_entropy(logp: Array) -> Array:
    """Returns the entropy of choices whose log-probabilities are `logp`. Float `[B, A]` to `[B]`."""
    # A masked action has probability exactly 0 and a huge negative log: 0 · log 0 is 0.
    p = np.exp(logp)
    return -sum_last(p * np.where(p > 0.0, logp, 0.0))


def categorical_kl(logp: Array, other_logp: Array) -> Array:
    """Returns the divergence KL(p‖q) of choices from others, by their log-probabilities. Float `[B, A]` to `[B]`."""
    p = np.exp(logp)
    return sum_last(p * (np.where(p > 0.0, logp, 0.0) - np.where(p > 0.0, other_logp, 0.0)))


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
        return categorical_entropy(self.log_probs)

    def kl(self, other: Categorical) -> Array:
        """Returns Σ p (log p − log q). Float `[B]`."""
        return categorical_kl(self.log_probs, other.log_probs)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:  # noqa: ARG004
        """Returns the number of actions."""
        return int(action_space.n)
