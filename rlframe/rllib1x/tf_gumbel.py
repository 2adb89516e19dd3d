"""RLlib's relaxed one-hot distribution in TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.models.tf.tf_action_dist import TFActionDistribution
from rlframe.utils.quiet_tf import tf


class GumbelSoftmax(TFActionDistribution):
    """Points of the simplex near its corners, through whose draws gradients flow: softmax((logits + g) / temperature).

    Args:
        inputs: Logits. Float `[B, A]`.
        model: The model that made them; may be None.
        temperature: Low ones draw corners, high ones the middle.

    Source: Jang et al. 2017, "Categorical Reparameterization with Gumbel-Softmax", eq. 2.

    Raises:
        ValueError: If the temperature is not positive.
    """

    def __init__(self, inputs: Any, model: Any = None, temperature: float = 1.0) -> None:
        if temperature <= 0.0:
            raise ValueError(f"GumbelSoftmax got temperature={temperature}; wanted a positive number.")
        super().__init__(inputs, model)
        self.temperature = temperature
        self.probs = tf.nn.softmax(self.inputs)

    def sample(self) -> Any:
        """Draws points of the simplex. Float `[B, A]`."""
        uniform = tf.random.uniform(tf.shape(self.inputs), minval=1e-20)
        self.last_sample = tf.nn.softmax((self.inputs - tf.math.log(-tf.math.log(uniform))) / self.temperature)
        return self.last_sample

    def deterministic_sample(self) -> Any:
        """Returns the probabilities. Float `[B, A]`."""
        self.last_sample = self.probs
        return self.last_sample

    def logp(self, x: Any) -> Any:
        """Returns Σ x log p: of corners, and of choices as integers `[B]`, the log-probability. Float `[B]`."""
        x = tf.convert_to_tensor(x)
        if x.dtype.is_integer:
            x = tf.one_hot(x, self.inputs.shape[-1])
        return tf.reduce_sum(x * tf.nn.log_softmax(self.inputs), axis=-1)

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Mapping[str, Any]) -> int:
        """Returns the number of choices of a Discrete space."""
        del model_config
        return int(action_space.n)
