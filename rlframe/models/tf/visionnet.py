"""The default network for images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rlframe.models.conv_sizes import DEFAULT_FILTERS, ConvPlan, Filters, filters_for, plan_convs
from rlframe.models.tf.misc import activation_function, flat_rows, initial_rng, xavier_uniform
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.models.tf.variables import VariableOwner

__all__ = ["DEFAULT_FILTERS", "ConvStack", "Filters", "VisionNetwork", "filters_for"]


class ConvStack(VariableOwner):
    """Convolutions on images in the order [H, W, C], padded as `rlframe.models.conv_sizes.plan_convs` says.

    Variables are named and laid out as in the torch sibling, "convs.0._model.1.weight [out, in, height, width]".

    Args:
        shape: Height, width and channels of the images.
        filters: [out_channels, kernel, stride] of every convolution, and the padding where it is named.
        activation: Name of the activation behind every convolution.
        reduce: Whether the last convolution must leave 1×1.

    Raises:
        ConfigError: If it must and does not, or a filter is larger than its input.
    """

    def __init__(self, shape: Sequence[int], filters: Filters, activation: str | None, *, reduce: bool = True) -> None:
        self._plans, self.out_size = plan_convs(shape, filters, reduce=reduce)
        self._activation = activation_function(activation)
        for index, plan in enumerate(self._plans):
            size = (plan.out_channels, plan.in_channels, *plan.kernel)
            self.add_weight(f"{_name(index, plan)}.weight", xavier_uniform(initial_rng(), size))
            self.add_weight(f"{_name(index, plan)}.bias", np.zeros(plan.out_channels, np.float32))

    def __call__(self, images: Any) -> Any:
        """Returns flat features. Images `[B, H, W, C]` of any dtype to float `[B, out_size]`."""
        maps = tf.cast(images, tf.float32)
        for index, plan in enumerate(self._plans):
            maps = tf.nn.bias_add(self._convolved(maps, index, plan), self.get_weight(f"{_name(index, plan)}.bias"))
            maps = maps if self._activation is None else self._activation(maps)
        # Channels first, so that the layers behind have their inputs in the torch sibling's order.
        return flat_rows(tf.transpose(maps, [0, 3, 1, 2]))

    def _convolved(self, maps: Any, index: int, plan: ConvPlan) -> Any:
        weight = self.get_weight(f"{_name(index, plan)}.weight")
        if plan.covers_input:  # a dense product, whose weights, millions perhaps, need no other order
            flat = flat_rows(tf.transpose(maps, [0, 3, 1, 2]))
            return tf.matmul(flat, tf.reshape(weight, [plan.out_channels, -1]), transpose_b=True)[:, None, None, :]
        # TensorFlow's "SAME" pads as `same_padding` says: the odd pixel at the right and bottom.
        padding = "VALID" if plan.padding is None else "SAME"
        return tf.nn.conv2d(maps, tf.transpose(weight, [2, 3, 1, 0]), [1, *plan.stride, 1], padding)


def _name(index: int, plan: ConvPlan) -> str:
    # In the torch sibling, padding is a module before the convolution.
    return f"convs.{index}._model.{0 if plan.padding is None else 1}"


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
