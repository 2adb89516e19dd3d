"""Dreamer's parts as RLlib has them, for losses that are copies of its own: weights held while others learn.

The built-in policy's losses reach the weights of their own optimisers alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor


class FreezeParameters:
    """A context in which weights need no gradients; afterwards they do what they did before.

    Args:
        parameters: The weights.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = list(parameters)
        self.param_states = [parameter.requires_grad for parameter in self.parameters]

    def __enter__(self) -> None:
        for parameter in self.parameters:
            parameter.requires_grad = False

    def __exit__(self, *exc: Any) -> None:
        for parameter, before in zip(self.parameters, self.param_states, strict=True):
            parameter.requires_grad = before
