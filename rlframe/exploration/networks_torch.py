"""Networks that explorations learn, in PyTorch; `networks_tf` has the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlframe.exploration.intrinsic import Features, features_of
from rlframe.models.spec import Network
from rlframe.models.torch.networks import TorchNetwork

Array = NDArray[Any]
State = dict[str, Any]


class Networks:
    """Named networks, and Adam over those that learn.

    Args:
        obs_space: Preprocessed observation space.
        action_space: The environment's action space.
        parts: Networks by name.
        learning: Names of those that learn.
        lr: Learning rate.
        seed: Of the initial weights.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        parts: Mapping[str, Network | Features],
        learning: Sequence[str],
        lr: float,
        seed: int,
    ) -> None:
        before = torch.get_rng_state()
        torch.manual_seed(seed)
        self.modules = nn.ModuleDict()
        for name, part in parts.items():
            self.modules[name] = (
                TorchNetwork(part) if isinstance(part, Network) else features_of(part, obs_space, action_space, "torch")
            )
        torch.set_rng_state(before)
        self._of_obs = {name for name, part in parts.items() if isinstance(part, Features)}
        self.parameters = {name: p for part in learning for name, p in self.modules[part].named_parameters(prefix=part)}
        self.optimizer = torch.optim.Adam(self.parameters.values(), lr=lr) if learning else None

    def __call__(self, name: str, *inputs: Tensor) -> Tensor:
        """Returns what a network gives, `[B, n]`, for tensors `[B, ...]`."""
        module = self.modules[name]
        made: Tensor = module({"obs": inputs[0]})[0] if name in self._of_obs else module(*inputs)
        return made

    def compute(self, name: str, *inputs: Array) -> Array:
        """Returns what a network gives, float32 `[B, n]`, for arrays `[B, ...]`."""
        with torch.no_grad():
            return _array(self(name, *map(_tensor, inputs)))

    def learn(self, loss: Callable[..., tuple[Tensor, Tensor]], *inputs: Array) -> Array:
        """Does one Adam step.

        Args:
            loss: `fn(networks, *tensors)` that returns the loss, a scalar, and a number per row `[B]`.
            *inputs: Arrays of which the tensors are made.

        Returns:
            The number per row, float32 `[B]`, before the step.
        """
        assert self.optimizer is not None
        total, per_row = loss(self, *map(_tensor, inputs))
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        return _array(per_row)

    def get_state(self) -> State:
        """Returns weights and Adam's moments by name, and the number of steps."""
        moments = {} if self.optimizer is None else self.optimizer.state
        states = {name: moments[p] for name, p in self.parameters.items() if p in moments}
        return {
            "weights": {name: _array(tensor) for name, tensor in self.modules.state_dict().items()},
            "step": int(next(iter(states.values()))["step"]) if states else 0,
            "exp_avg": {name: _array(state["exp_avg"]) for name, state in states.items()},
            "exp_avg_sq": {name: _array(state["exp_avg_sq"]) for name, state in states.items()},
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` returned, here or in the other framework."""
        self.modules.load_state_dict({name: _tensor(array) for name, array in state["weights"].items()})
        for name, p in self.parameters.items() if self.optimizer is not None and state["step"] else ():
            if name in state["exp_avg"]:
                kept = {key: _tensor(state[key][name]) for key in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[p] = {"step": torch.tensor(float(state["step"])), **kept}  # type: ignore[union-attr]


def _array(tensor: Tensor) -> Array:
    return tensor.detach().numpy().copy()


def _tensor(array: Any) -> Tensor:
    """Returns a copy of an array as a tensor, float32 where it is floating."""
    made = torch.tensor(np.asarray(array))
    return made.float() if made.is_floating_point() else made
