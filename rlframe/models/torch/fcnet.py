"""The default network for vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from rlframe.fast.dense_torch import dense
from rlframe.models.actor import normalize_activation
from rlframe.models.fcnet_spec import POPART_LAYER, fcnet_spec
from rlframe.models.torch.misc import AppendBiasLayer, activation_function, normc_linear
from rlframe.models.torch.rllib_layers import RLlibLayers, slim, slim_stack
from rlframe.models.torch.torch_modelv2 import TorchModelV2

_HIDDEN_STD, _HEAD_STD = 1.0, 0.01


class FullyConnectedNetwork(RLlibLayers, TorchModelV2, nn.Module):
    """Dense layers from flat observations to outputs and, beside them, to a value.

    What it consists of is said once, in `rlframe.models.fcnet_spec`; its submodules carry the names of that spec
    (`hidden_0`, …, `output`, `free_log_std`, `value_hidden_0`, …, `value`, `popart`), so the NumPy actor can stand
    in for it. They are also found as `_hidden_layers`, `_logits`, `_value_branch_separate` and `_value_branch`.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the last hidden layer the output.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Unused entries of `custom_model_config`, see `TorchModelV2`.
    """

    _rllib_layers: ClassVar = {
        "_hidden_layers": lambda model: slim_stack(model, model._dense_layers("outputs", "hidden_")),
        "_logits": lambda model: slim(model._modules.get("output")),
        "_append_free_log_std": lambda model: model._modules.get("free_log_std"),
        "_value_branch_separate": lambda model: (
            slim_stack(model, model._dense_layers("values", "value_hidden_")) if model._spec["shared"] == 0 else None
        ),
        "_value_branch": lambda model: slim(model._modules.get("value"), model._modules.get(POPART_LAYER)),
    }
    _rllib_heads: ClassVar = {"_logits": "output", "_value_branch": "value"}

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        **options: Any,
    ) -> None:
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name, **options)
        self._spec = fcnet_spec(num_outputs, model_config, values=self.uses_value_function)
        in_size = math.prod(obs_space.shape)
        widths = [in_size]
        for layer in self._spec["outputs"]:
            widths.append(self._add(layer, widths[-1]))
        if num_outputs is None:
            self.num_outputs = widths[-1]
        value_width = widths[self._spec["shared"]]
        for layer in self._spec["values"] or ():
            value_width = self._add(layer, value_width)
        shared = self._spec["shared"]
        self._trunk = self._bound(self._spec["outputs"][:shared])
        self._head = self._bound(self._spec["outputs"][shared:])
        self._value_layers = self._bound(self._spec["values"] or ())
        self._features: torch.Tensor | None = None

    def _add(self, layer: Mapping[str, Any], in_size: int) -> int:
        """Adds the submodule that `layer` describes; returns the width behind it."""
        units = int(layer["units"])
        if layer["kind"] == "append_bias":
            self.add_module(layer["name"], AppendBiasLayer(units))
            return in_size + units
        if layer["name"] == POPART_LAYER:
            self.add_module(POPART_LAYER, PopArtLayer())
            return units
        head = layer["name"] in ("output", "value")
        self.add_module(layer["name"], self._dense(in_size, units, head=head))
        return units

    def _dense(self, in_size: int, units: int, *, head: bool) -> nn.Linear:
        return normc_linear(in_size, units, _HEAD_STD if head else _HIDDEN_STD)

    def _bound(self, layers: Any) -> tuple[tuple[str, str, Any], ...]:
        """Returns (submodule name, activation's name, activation function or None) for every layer."""
        named = ((layer["name"], normalize_activation(layer.get("activation"))) for layer in layers)
        return tuple((name, activation, activation_function(activation)) for name, activation in named)

    def _dense_layers(self, part: str, prefix: str) -> list[tuple[str, str | None]]:
        """Returns (submodule name, name of the activation) of the layers of a part whose names begin so."""
        layers = self._spec[part] or ()
        return [(layer["name"], layer["activation"]) for layer in layers if layer["name"].startswith(prefix)]

    def _run(self, layers: tuple[tuple[str, str, Any], ...], x: torch.Tensor) -> torch.Tensor:
        # By name, not by reference: a replaced or deep-copied submodule is then the one that computes.
        modules: Any = self._modules
        for name, activation, function in layers:
            x = dense(x, modules[name], activation, function)
        return x

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[torch.Tensor, list[Any]]:  # noqa: ARG002
        """Returns outputs, float `[B, num_outputs]`, of `input_dict["obs_flat"]`, and the state unchanged."""
        flat = input_dict["obs_flat"]
        x = flat.float().reshape(flat.shape[0], -1)
        self._features = self._run(self._trunk, x)
        return self._run(self._head, self._features), state

    def value_function(self) -> torch.Tensor:
        """Returns the value of every row of the last forward pass. Float `[B]`.

        Raises:
            ValueError: If no forward pass came before, or the network was built without a value head.
        """
        if not self._value_layers:
            raise ValueError(f"{self.name} was built without a value head (uses_value_function=False).")
        if self._features is None:
            raise ValueError("value_function() speaks of the last forward pass: call the model first.")
        return self._run(self._value_layers, self._features).squeeze(1)

    @torch.no_grad()
    def set_own_value_moments(self, mean: float, std: float) -> bool:
        """Does what `set_value_moments` does for this network alone."""
        popart: Any = self._modules.get(POPART_LAYER)
        if popart is None:
            return False
        value: Any = self._modules["value"]
        old_mean, old_std = popart.bias.item(), popart.weight.item()
        value.weight.mul_(old_std / std)
        value.bias.mul_(old_std).add_(old_mean - mean).div_(std)
        popart.weight.fill_(std)
        popart.bias.fill_(mean)
        return True

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec for `ChainActor`; None for subclasses that compute something else."""
        own = type(self)
        same = (
            own.forward is FullyConnectedNetwork.forward and own.value_function is FullyConnectedNetwork.value_function
        )
        own_layers = [layer["name"] for part in ("outputs", "values") for layer in self._spec[part] or ()]
        plain = all(isinstance(self._modules[name], nn.Linear | AppendBiasLayer | PopArtLayer) for name in own_layers)
        return self._spec if same and plain else None


class PopArtLayer(nn.Module):
    """A dense layer of one weight and one bias that no gradient changes; it begins as the identity."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(1, 1))
        self.register_buffer("bias", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns σ x + μ. `[B, 1]` to `[B, 1]`."""
        return nn.functional.linear(x, self.weight, self.bias)


class MemoryHeads(FullyConnectedNetwork):
    """Outputs and a value behind a memory: no hidden layers, weights Xavier-uniform, as RLlib's.

    With outputs near zero, as those of networks without a memory begin, what the memory holds changes actions too
    little for it to be learned soon: PPO took half as many steps again to repeat tokens.
    """

    def _dense(self, in_size: int, units: int, *, head: bool) -> nn.Linear:
        layer = super()._dense(in_size, units, head=head)
        nn.init.xavier_uniform_(layer.weight)
        return layer
