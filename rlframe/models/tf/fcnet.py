"""The default network for vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rlframe.models.fcnet_spec import POPART_LAYER, fcnet_spec
from rlframe.models.tf.misc import activation_function, flat_rows, initial_rng, xavier_uniform
from rlframe.models.tf.tf_modelv2 import TFModelV2

_HIDDEN_STD, _HEAD_STD = 1.0, 0.01


class FullyConnectedNetwork(TFModelV2):
    """Dense layers from flat observations to outputs and, beside them, to a value.

    What it consists of is said once, in `rlframe.models.fcnet_spec`; its variables carry the names of that spec
    ("hidden_0.weight", …, "output.bias", "free_log_std.log_std", "value_hidden_0.weight", …, "value.bias",
    "popart.weight", "popart.bias"), as those of the torch sibling do, so the NumPy actor can stand in for it.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the last hidden layer the output.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Unused entries of `custom_model_config`, see `TFModelV2`.
    """

    def __init__(
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: dict[str, Any],
        name: str | None,
        **options: Any,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name, **options)
        self._spec = fcnet_spec(num_outputs, model_config, values=self.uses_value_function)
        widths = [math.prod(obs_space.shape)]
        for layer in self._spec["outputs"]:
            widths.append(self._add(layer, widths[-1]))
        if num_outputs is None:
            self.num_outputs = widths[-1]
        value_width = widths[self._spec["shared"]]
        for layer in self._spec["values"] or ():
            value_width = self._add(layer, value_width)
        self._features: Any = None

    def _add(self, layer: Mapping[str, Any], in_size: int) -> int:
        """Adds the variables that `layer` describes; returns the width behind it."""
        units = int(layer["units"])
        if layer["kind"] == "append_bias":
            self.add_weight(f"{layer['name']}.log_std", np.zeros(units, np.float32))
            return in_size + units
        if layer["name"] == POPART_LAYER:
            self.add_weight(f"{POPART_LAYER}.weight", np.ones((1, 1), np.float32), trainable=False)
            self.add_weight(f"{POPART_LAYER}.bias", np.zeros(1, np.float32), trainable=False)
            return units
        head = layer["name"] in ("output", "value")
        self._add_dense(layer["name"], in_size, units, head=head)
        return units

    def _add_dense(self, name: str, in_size: int, units: int, *, head: bool) -> None:
        self.add_dense(name, in_size, units, _HEAD_STD if head else _HIDDEN_STD)

    def _run(self, layers: Any, x: Any) -> Any:
        for layer in layers:
            if layer["kind"] == "append_bias":
                log_std = self.get_weight(f"{layer['name']}.log_std")
                x = tf.concat([x, tf.broadcast_to(log_std, [tf.shape(x)[0], layer["units"]])], axis=1)
                continue
            x = self.dense(layer["name"], x)
            activation = activation_function(layer["activation"])
            x = x if activation is None else activation(x)
        return x

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:  # noqa: ARG002
        """Returns outputs, float `[B, num_outputs]`, of `input_dict["obs_flat"]`, and the state unchanged."""
        shared = self._spec["shared"]
        self._features = self._run(self._spec["outputs"][:shared], flat_rows(input_dict["obs_flat"]))
        return self._run(self._spec["outputs"][shared:], self._features), state

    def value_function(self) -> Any:
        """Returns the value of every row of the last forward pass. Float `[B]`.

        Raises:
            ValueError: If no forward pass came before, or the network was built without a value head.
        """
        if not self._spec["values"]:
            raise ValueError(f"{self.name} was built without a value head (uses_value_function=False).")
        if self._features is None:
            raise ValueError("value_function() speaks of the last forward pass: call the model first.")
        return tf.squeeze(self._run(self._spec["values"], self._features), axis=1)

    def set_own_value_moments(self, mean: float, std: float) -> bool:
        """Does what `set_value_moments` does for this network alone."""
        if not self._spec["values"] or self._spec["values"][-1]["name"] != POPART_LAYER:
            return False
        sigma, mu = self.get_weight(f"{POPART_LAYER}.weight"), self.get_weight(f"{POPART_LAYER}.bias")
        weight, bias = self.get_weight("value.weight"), self.get_weight("value.bias")
        weight.assign(weight * (sigma / std))
        bias.assign((bias * sigma[0] + mu - mean) / std)
        sigma.assign([[std]])
        mu.assign([mean])
        return True

    @property
    def base_model(self) -> Any:
        """The network as RLlib 1.x's Keras model, a view made anew: see `rllib_layers.fcnet_as_keras`."""
        from rlframe.models.tf.rllib_layers import fcnet_as_keras

        return fcnet_as_keras(self)

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec for `ChainActor`; None for subclasses that compute something else."""
        own = type(self)
        same = (
            own.forward is FullyConnectedNetwork.forward and own.value_function is FullyConnectedNetwork.value_function
        )
        return self._spec if same else None


class MemoryHeads(FullyConnectedNetwork):
    """Outputs and a value behind a memory: no hidden layers, weights Xavier-uniform, as RLlib's.

    With outputs near zero, as those of networks without a memory begin, what the memory holds changes actions too
    little for it to be learned soon: PPO took half as many steps again to repeat tokens.
    """

    def _add_dense(self, name: str, in_size: int, units: int, *, head: bool) -> None:
        del head
        self.add_weight(f"{name}.weight", xavier_uniform(initial_rng(), (units, in_size)))
        self.add_weight(f"{name}.bias", np.zeros(units, np.float32))
