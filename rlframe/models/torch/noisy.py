"""Noisy linear layers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own abbreviation
from torch import nn

from rlframe.models.torch.misc import activation_function


class NoisyLayer(nn.Module):
    """A dense layer with factorised Gaussian noise on its weights, drawn anew at every forward pass.

        y = (μ_w + σ_w ∘ f(ε_out) f(ε_in)ᵀ) x + μ_b + σ_b ∘ f(ε_out),   f(ε) = sign(ε) √|ε|

    Parameters are `weight [out, in]` and `bias [out]` (the means), `weight_sigma [out, in]` and `bias_sigma [out]`:
    the names that `rlframe.models.actor.NoisyDense` reads, so the NumPy actor serves it.

    Args:
        in_size: Width of the inputs.
        out_size: Width of the outputs.
        sigma0: Initial size of the noise; σ starts as sigma0 / √in_size.
        activation: Name of the activation behind the layer; None or "linear" for none.

    Source: Fortunato et al. 2018, "Noisy Networks for Exploration", eqs. 9 to 11 and section 3.2.
    """

    def __init__(self, in_size: int, out_size: int, sigma0: float = 0.5, activation: str | None = "relu") -> None:
        super().__init__()
        self.in_size, self.out_size = in_size, out_size
        bound = 1.0 / math.sqrt(in_size)
        self.weight = nn.Parameter(torch.empty(out_size, in_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_size).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_size, in_size), sigma0 * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_size,), sigma0 * bound))
        #: None: noisy while the module is in training mode. True and False decide it for good.
        self.noise: bool | None = None
        #: Where the noise is drawn from; None is PyTorch's global generator.
        self.generator: torch.Generator | None = None
        self._activation = activation_function(activation)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns the activated outputs; one draw of noise serves all rows. Float `[B, in]` to `[B, out]`."""
        y = F.linear(inputs, self.weight, self.bias)
        if self.training if self.noise is None else self.noise:
            epsilon = torch.randn(
                self.in_size + self.out_size, generator=self.generator, device=inputs.device, dtype=inputs.dtype
            )
            epsilon = epsilon.sign() * epsilon.abs().sqrt()
            epsilon_in, epsilon_out = torch.split(epsilon, [self.in_size, self.out_size])
            # (inputs ∘ ε_in) σᵀ ∘ ε_out: the same product without forming the noisy matrix.
            y = y + F.linear(inputs * epsilon_in, self.weight_sigma, self.bias_sigma) * epsilon_out
        return y if self._activation is None else self._activation(y)

    def __getstate__(self) -> dict[str, object]:
        """Returns the attributes to copy or pickle; a generator is its owner's, and stays behind."""
        return {**self.__dict__, "generator": None}
