"""The default networks, once for both frameworks: layers from observations to outputs and, beside them, to a value."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from rlframe.data.columns import OBS
from rlframe.models.conv_sizes import filters_for
from rlframe.models.fcnet_spec import POPART_LAYER, fcnet_spec, visionnet_spec
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.modelv2 import OBS_FLAT, ModelV2
from rlframe.models.spec import Initial, ModelLayers
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor


class LayeredModel(LayerOwner, ModelV2):
    """A model of layers; its weights carry their names, so a NumPy actor can stand in for it.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the features the output.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Unused entries of `custom_model_config`, see `TorchModelV2` and `TFModelV2`.
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
        self.init_model_base(obs_space, action_space, num_outputs, model_config, name, **options)
        in_size = self._prepare_inputs()
        spec = self._spec = self._describe_layers(num_outputs)
        self._actor_spec = spec.to_spec()
        widths = self.add_spec_layers(spec.outputs, in_size)
        self.add_spec_layers(spec.values or (), widths[spec.shared])
        if num_outputs is None:
            self.num_outputs = widths[-1]
        trunk = spec.shared or self._hidden_count(spec)
        self._trunk = self.bind_spec(spec.outputs[:trunk])
        self._head = self.bind_spec(spec.outputs[trunk:])
        self._value_layers = self.bind_spec(spec.values or ())
        # What values are made of: under RLlib's names, since the forward passes of subclasses set them, too.
        self._features: Any = None
        self._last_flat_in: Any = None
        self._value_out: Any = None  # values themselves, as those of TensorFlow keep them

    def _prepare_inputs(self) -> int:
        """Returns the width of what the first layer gets."""
        return math.prod(self.obs_space.shape)

    def _describe_layers(self, num_outputs: int | None) -> ModelLayers:
        """Returns what the network consists of."""
        raise NotImplementedError

    def _hidden_count(self, spec: ModelLayers) -> int:
        """Returns how many layers give the features of outputs that share none with values."""
        del spec
        return 0

    def _layer_inputs(self, input_dict: Any) -> Tensor:
        """Returns what the first layer gets."""
        return ops.flat_rows(input_dict[OBS_FLAT])

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns outputs, float `[B, num_outputs]`, and the state unchanged."""
        del seq_lens
        self._last_flat_in = self._layer_inputs(input_dict)
        self._features = self.run_spec(self._trunk, self._last_flat_in)
        return self.run_spec(self._head, self._features), state

    def value_function(self) -> Tensor:
        """Returns the value of every row of the last forward pass. Float `[B]`.

        Raises:
            ValueError: If no forward pass came before, or the network was built without a value head.
        """
        if not self._value_layers:
            raise ValueError(f"{self.name} was built without a value head (uses_value_function=False).")
        self._catch_up()
        if self._value_out is not None:
            return ops.reshape(self._value_out, (-1,))
        if self._features is None:
            raise ValueError("value_function() speaks of the last forward pass: call the model first.")
        return self.run_spec(self._value_layers, self._features if self._spec.shared else self._last_flat_in)[:, 0]

    def own_popart_variables(self) -> tuple[Any, ...] | None:
        """Returns what `popart_variables` does for this network alone; None where it has no such layer."""
        if not any(layer.name == POPART_LAYER for layer in self._spec.values or ()):
            return None
        return tuple(
            self.spec_variable(layer, part) for layer in ("value", POPART_LAYER) for part in ("weight", "bias")
        )

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns the spec for `ChainActor`; None for what NumPy cannot act with, or for subclasses of the user's."""
        own = type(self)
        same = own.forward is LayeredModel.forward and own.value_function is LayeredModel.value_function
        if not same or not self._acts_in_numpy:
            return None
        return self._actor_spec if self.has_spec_layers((*self._spec.outputs, *(self._spec.values or ()))) else None

    #: Whether NumPy has all of the layers.
    _acts_in_numpy = True


class FullyConnected(LayeredModel):
    """Dense layers from flat observations; what it consists of is said in `rlframe.models.fcnet_spec`."""

    #: How the layers of outputs and values begin; None as `fcnet_weights_initializer` says.
    _head_initial: ClassVar[Initial | None] = None

    def _hidden_count(self, spec: ModelLayers) -> int:
        return sum(layer.name.startswith("hidden_") for layer in spec.outputs)

    def _describe_layers(self, num_outputs: int | None) -> ModelLayers:
        return fcnet_spec(num_outputs, self.model_config, values=self.uses_value_function, head=self._head_initial)


class BehindMemory(FullyConnected):
    """Outputs and a value behind a memory: no hidden layers, weights Xavier-uniform, as RLlib's.

    With outputs near zero, as those of networks without a memory begin, what the memory holds changes actions too
    little for it to be learned soon: PPO took half as many steps again to repeat tokens.
    """

    _head_initial = Initial("xavier")


class Vision(LayeredModel):
    """Convolutions, `post_fcnet_hiddens` dense layers, and linear output and value heads.

    Images come as [H, W, C]; pixel values are taken as they are, unscaled.
    """

    _acts_in_numpy = False

    def _describe_layers(self, num_outputs: int | None) -> ModelLayers:
        shape = self.obs_space.shape
        if isinstance(self.model_config, dict):  # programs build further layers by what the defaults came to
            self.model_config["conv_filters"] = filters_for(shape, self.model_config.get("conv_filters"))
        return visionnet_spec(shape, num_outputs, self.model_config, values=self.uses_value_function)

    def _layer_inputs(self, input_dict: Any) -> Tensor:
        return input_dict[OBS]
