"""Action distributions of native tensors, said once for PyTorch and TensorFlow; those that act are in `distributions`.

Here are the base and choices among actions; `continuous_tensor_distributions` and `compound_tensor_distributions` have
the others. What a framework adds is how numbers are drawn and the names of its classes: `torch.torch_action_dist` and
`tf.tf_action_dist`. Everything works eagerly, with batches of unknown size, and while a graph is traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.models.action_dist import ActionDistribution
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor

_LOWEST, TINY = float(np.finfo(np.float32).min), float(np.finfo(np.float32).tiny)


def size_of(shape: Sequence[int]) -> int:
    """Returns how many numbers an action of a shape has."""
    return int(np.prod(shape, dtype=np.int64))


def sum_last(x: Tensor) -> Tensor:
    """Returns sums along the last axis."""
    return ops.sum(x, -1)


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
        boosted = ops.maximum(self._gamma(concentration + 1.0), TINY)
        return ops.log(boosted) + ops.log(ops.maximum(self._uniform_like(concentration), TINY)) / concentration


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
        return -sum_last(ops.exp(self.log_probs) * ops.maximum(self.log_probs, _LOWEST))

    def kl(self, other: Any) -> Tensor:
        """Returns KL(self ‖ other), infinite only where a choice is impossible, not where it is below floats. `[B]`."""
        p = ops.exp(self.log_probs)
        possible = p > 0.0
        return sum_last(p * (ops.where(possible, self.log_probs, 0.0) - ops.where(possible, other.log_probs, 0.0)))

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns the number of actions."""
        del model_config
        return int(action_space.n)
