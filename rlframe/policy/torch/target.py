"""A copy of a network that is refreshed now and then."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import nn

from rlframe.policy.parts import Component
from rlframe.policy.torch.arrays import load_weights, to_arrays
from rlframe.policy.torch.flat import flatten_parameters


class TargetNetwork(Component):
    """Holds a frozen copy of a model; `update(tau)` moves it towards the online model.

    Args:
        online: The model that learns. Its parameters may be flattened later; the copy does not care.
        model: A second model of the same make, to be the copy; None makes one.
    """

    def __init__(self, online: nn.Module, model: nn.Module | None = None) -> None:
        self.online = online
        self.model: Any = copy.deepcopy(online) if model is None else model.to(next(online.parameters()).device)
        # The copy is one buffer too, so that a full update is one copy when the online side is one as well.
        self._flat = flatten_parameters(self.model.parameters())
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.model.eval()

    def update(self, tau: float = 1.0) -> None:
        """Sets target := tau · online + (1 − tau) · target, buffers included (those are copied)."""
        with torch.no_grad():
            for target, source in zip(self.model.parameters(), self.online.parameters(), strict=True):
                if tau == 1.0:
                    target.copy_(source)
                else:
                    target.lerp_(source, tau)
            for buffer, online in zip(self.model.buffers(), self.online.buffers(), strict=True):
                buffer.copy_(online)

    def get_weights(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the target's parameters and buffers, `{name: array}`."""
        return to_arrays(self.model.state_dict())

    def set_weights(self, weights: Mapping[str, Any], *, owner: str = "the target network") -> None:
        """Copies `{name: array}` into the target; a ValueError names `owner` where they do not fit."""
        load_weights(self.model, weights, owner=owner)

    def get_state(self) -> dict[str, Any]:
        """Returns the weights, as a policy's component does."""
        return {"weights": self.get_weights()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self.set_weights(state["weights"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the frozen copy."""
        return cast(Any, self.model)(*args, **kwargs)
