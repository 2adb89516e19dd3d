"""The user's functions on tensors: for arrays that they do not take, and for gradients through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rlframe.utils.errors import ConfigError

__all__ = ["call_with_tensors", "differentiable"]


def call_with_tensors(function: Callable[[Any], Any], data: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Calls a function with tensors of the arrays, without gradients, and returns an array."""
    with torch.no_grad():
        tensors = {name: torch.from_numpy(np.array(values, np.float32)) for name, values in data.items()}
        result = torch.as_tensor(function(tensors))
    return cast("NDArray[np.float32]", result.to(torch.float32).cpu().numpy())


def differentiable(
    function: Callable[[Any], Any], data: Mapping[str, torch.Tensor], where: str = "the function"
) -> torch.Tensor:
    """Calls a user's function with tensors, so that gradients flow through it.

    Args:
        function: `NodeFunction.function` or `RewardFunction.function`.
        data: Float32 `[..., columns]` by node.
        where: The function as messages name it.

    Raises:
        ConfigError: It does not work with tensors, or its result has no gradient.
    """
    try:
        result = function(dict(data))
    except (TypeError, AttributeError, RuntimeError) as error:
        raise ConfigError(f"{where} does not work with torch tensors ({error}); gradients need torch") from error
    needed = any(values.requires_grad for values in data.values())
    if not isinstance(result, torch.Tensor) or (needed and not result.requires_grad):
        raise ConfigError(f"{where} cuts gradients; wanted torch's operations from its arguments to its result")
    return result
