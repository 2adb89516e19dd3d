"""Noisy linear layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlframe.models.tf.misc import activation_function, initial_rng
from rlframe.models.tf.variables import VariableOwner
from rlframe.utils.quiet_tf import tf


class NoisyLayer(VariableOwner):
    """A dense layer with factorised Gaussian noise on its weights, drawn anew at every call.

        y = (μ_w + σ_w ∘ f(ε_out) f(ε_in)ᵀ) x + μ_b + σ_b ∘ f(ε_out),   f(ε) = sign(ε) √|ε|

    Variables are `weight [out, in]` and `bias [out]` (the means), `weight_sigma [out, in]` and `bias_sigma [out]`:
    the names that `rlframe.models.actor.NoisyDense` reads, so the NumPy actor serves it. As an attribute of a model
    its variables are the model's, "<attribute>.weight" and so on.

    Args:
        in_size: Width of the inputs.
        out_size: Width of the outputs.
        sigma0: Initial size of the noise; σ starts as sigma0 / √in_size.
        activation: Name of the activation behind the layer; None or "linear" for none.

    Source: Fortunato et al. 2018, "Noisy Networks for Exploration", eqs. 9 to 11 and section 3.2.
    """

    def __init__(self, in_size: int, out_size: int, sigma0: float = 0.5, activation: str | None = "relu") -> None:
        self.in_size, self.out_size = in_size, out_size
        bound = 1.0 / math.sqrt(in_size)
        rng = initial_rng()
        self.weight = self.add_weight("weight", rng.uniform(-bound, bound, (out_size, in_size)).astype(np.float32))
        self.bias = self.add_weight("bias", rng.uniform(-bound, bound, out_size).astype(np.float32))
        self.weight_sigma = self.add_weight("weight_sigma", np.full((out_size, in_size), sigma0 * bound, np.float32))
        self.bias_sigma = self.add_weight("bias_sigma", np.full(out_size, sigma0 * bound, np.float32))
        #: None: noisy where the call says `training`. True and False decide it for good.
        self.noise: bool | None = None
        #: Where the noise is drawn from, a `tf.random.Generator`; None is TensorFlow's global one.
        self.generator: Any = None
        self._activation = activation_function(activation)

    def __call__(self, x: Any, training: Any = False) -> Any:
        """Returns the activated outputs; one draw of noise serves all rows.

        Args:
            x: Inputs. Float `[B, in]`.
            training: Whether there is noise, unless `self.noise` decides: a bool, or a scalar tensor of one.

        Returns:
            Float `[B, out]`.
        """
        y = tf.nn.bias_add(tf.matmul(x, self.weight, transpose_b=True), self.bias)
        noisy = training if self.noise is None else self.noise
        if tf.is_tensor(noisy):
            y += tf.cast(noisy, y.dtype) * self._noise_of(x)
        elif noisy:
            y += self._noise_of(x)
        return y if self._activation is None else self._activation(y)

    def _noise_of(self, x: Any) -> Any:
        """Returns what the noise adds to the outputs. Float `[B, out]`."""
        draw = tf.random.normal if self.generator is None else self.generator.normal
        epsilon = draw([self.in_size + self.out_size], dtype=x.dtype)
        epsilon = tf.sign(epsilon) * tf.sqrt(tf.abs(epsilon))
        epsilon_in, epsilon_out = tf.split(epsilon, [self.in_size, self.out_size])
        # (x ∘ ε_in) σᵀ ∘ ε_out: the same product without forming the noisy matrix.
        return (tf.matmul(x * epsilon_in, self.weight_sigma, transpose_b=True) + self.bias_sigma) * epsilon_out

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes to copy or pickle; a generator is its owner's, and stays behind."""
        return {**super().__getstate__(), "generator": None}
