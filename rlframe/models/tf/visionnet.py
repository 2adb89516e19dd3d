"""The default network for images."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rlframe.models.conv_sizes import DEFAULT_FILTERS, Filters, filters_for
from rlframe.models.tf.conv_stack import ConvStack
from rlframe.models.tf.misc import activation_function
from rlframe.models.tf.tf_modelv2 import TFModelV2

__all__ = ["DEFAULT_FILTERS", "ConvStack", "Filters", "VisionNetwork", "filters_for"]


class VisionNetwork(TFModelV2):
    """Convolutions, `post_fcnet_hiddens` dense layers, and linear output and value heads.

    Images come as [H, W, C]; pixel values are taken as they are, unscaled.

    Args:
        obs_space: Observation space of shape [H, W, C].
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the features the output.
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
        self._dense_activation = activation_function(model_config.get("post_fcnet_activation", "relu"))
        self._ends_linear = not (model_config.get("no_final_linear", False) and num_outputs is not None)
        self.convs, self._dense_layers, width = self._stack(num_outputs, "dense")
        self._has_output = num_outputs is not None and self._ends_linear
        if num_outputs is not None and self._ends_linear:
            self.add_dense("output", width, num_outputs, 0.01)
        self.num_outputs = width if num_outputs is None else num_outputs
        self.value_convs: ConvStack | None = None
        self._value_dense_layers: list[str] = []
        if self.uses_value_function:
            if not model_config.get("vf_share_layers", True):
                self.value_convs, self._value_dense_layers, width = self._stack(None, "value_dense")
            self.add_dense("value", width, 1, 0.01)
        self._features: Any = None
        self._images: Any = None

    def _stack(self, num_outputs: int | None, prefix: str) -> tuple[ConvStack, list[str], int]:
        """Returns convolutions, the names of dense layers behind them, and the width of what they give.

        With `no_final_linear` the last layer has `num_outputs` units.
        """
        config = self.model_config
        filters = [list(layer) for layer in filters_for(self.obs_space.shape, config.get("conv_filters"))]
        hiddens = [int(units) for units in config.get("post_fcnet_hiddens") or ()]
        if num_outputs is not None and not self._ends_linear:
            if hiddens:
                hiddens[-1] = num_outputs
            else:
                filters[-1][0] = num_outputs
        activation = config.get("conv_activation", "relu")
        convs = ConvStack(self.obs_space.shape, filters, activation, reduce=not hiddens)
        width, names = convs.out_size, []
        for index, units in enumerate(hiddens):
            names.append(f"{prefix}.{index}")
            self.add_dense(names[-1], width, units)
            width = units
        return convs, names, width

    def _through(self, convs: ConvStack, layers: list[str], images: Any) -> Any:
        x = convs(images)
        for name in layers:
            x = self.dense(name, x)
            x = x if self._dense_activation is None else self._dense_activation(x)
        return x

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:  # noqa: ARG002
        """Returns outputs, float `[B, num_outputs]`, of the images `input_dict["obs"]`, and the state unchanged."""
        images = input_dict["obs"]
        self._images = None if self.value_convs is None else images
        self._features = self._through(self.convs, self._dense_layers, images)
        return (self.dense("output", self._features) if self._has_output else self._features), state

    def value_function(self) -> Any:
        """Returns the value of every row of the last forward pass. Float `[B]`.

        Raises:
            ValueError: If no forward pass came before, or the network was built without a value head.
        """
        if not self.uses_value_function:
            raise ValueError(f"{self.name} was built without a value head (uses_value_function=False).")
        features = self._features
        if features is None:
            raise ValueError("value_function() speaks of the last forward pass: call the model first.")
        if self.value_convs is not None:
            features = self._through(self.value_convs, self._value_dense_layers, self._images)
        return tf.squeeze(self.dense("value", features), axis=1)
