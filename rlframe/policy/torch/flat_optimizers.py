"""Optimisers of parameters in one buffer, beside Adam, which `flat` has."""

from __future__ import annotations

import inspect
from typing import Any, TypeAlias

import torch

from rlframe.policy.torch.flat import FlatAdam, FlatParameters

# Without its decorator, as `FlatAdam` is: behind TensorFlow, what that imports ends a process whose PyTorch has Triton.
_step_of_rmsprop = inspect.unwrap(torch.optim.RMSprop.step)


class FlatRMSProp(torch.optim.RMSprop):
    """RMSProp on parameters in one buffer; everybody else sees one parameter.

    Args:
        flat: The parameters.
        **options: Those of `torch.optim.RMSprop`.
    """

    add_param_group = FlatAdam.add_param_group

    def __init__(self, flat: FlatParameters, **options: Any) -> None:
        self.flat = flat
        super().__init__([flat.param], **options)

    zero_grad = FlatAdam.zero_grad

    def step(self, closure: Any = None) -> Any:
        """Does one step; what a program has frozen stays."""
        frozen = self.flat.frozen()
        with torch.no_grad():
            result = _step_of_rmsprop(self, closure)
        self.flat.put_back(frozen)
        return result


#: Optimisers of one buffer, `flat`.
FlatOptimizer: TypeAlias = FlatAdam | FlatRMSProp
