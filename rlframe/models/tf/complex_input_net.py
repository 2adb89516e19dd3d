"""The default network for nested observations with images among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from rlframe.models.dist_plan import space_struct
from rlframe.models.nested_parts import nested_leaves, part_name
from rlframe.models.tf.misc import activation_function, flat_rows
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.models.tf.visionnet import ConvStack, filters_for
from rlframe.utils.errors import UnsupportedSpaceException


class ComplexInputNetwork(TFModelV2):
    """Images through convolutions, discrete parts one-hot, vectors as they are; all concatenated, then dense layers.

    The dense layers are `post_fcnet_hiddens`; output and value are linear heads behind them. `conv_filters` applies to
    every image; images of different sizes need sizes with default filters.

    Args:
        obs_space: Flat space with the nested one as `original_space`, or the nested space itself.
        action_space: Action space of the environment.
        num_outputs: Width of the outputs; None makes the features the output.
        model_config: The `model` section of the config.
        name: Name of the model.
        **options: Unused entries of `custom_model_config`, see `TFModelV2`.

    Raises:
        UnsupportedSpaceException: If the space is not nested, or a part of it cannot be handled.
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
        original = getattr(self.obs_space, "original_space", self.obs_space)
        if space_struct(original) is original:
            raise UnsupportedSpaceException(
                f"ComplexInputNetwork wants a Dict or Tuple observation space; got {original}."
            )
        self.convs: dict[str, ConvStack] = {}
        width = 0
        self._parts: list[tuple[tuple[Any, ...], str, int]] = []
        for path, space in nested_leaves(space_struct(original)):
            kind, size = self._part(path, space)
            self._parts.append((path, kind, size))
            width += size
        self._dense_activation = activation_function(model_config.get("post_fcnet_activation", "relu"))
        hiddens = [int(units) for units in model_config.get("post_fcnet_hiddens") or ()]
        self._has_output = num_outputs is not None and not model_config.get("no_final_linear", False)
        if num_outputs is not None and not self._has_output:
            hiddens[-1:] = [num_outputs]
        self._dense_layers = [f"dense.{index}" for index in range(len(hiddens))]
        for layer, units in zip(self._dense_layers, hiddens, strict=True):
            self.add_dense(layer, width, units)
            width = units
        if num_outputs is not None and self._has_output:
            self.add_dense("output", width, num_outputs, 0.01)
        if self.uses_value_function:
            self.add_dense("value", width, 1, 0.01)
        self.num_outputs = width if num_outputs is None else num_outputs
        self._features: Any = None

    def _part(self, path: tuple[Any, ...], space: Any) -> tuple[str, int]:
        """Returns the kind of a leaf and its number of features; adds convolutions for images."""
        names = {base.__name__ for base in type(space).__mro__}
        if "Discrete" in names:
            return "one_hot", int(space.n)
        if "MultiDiscrete" in names:
            return "one_hot", int(np.sum(space.nvec))
        if space.shape is None:
            raise UnsupportedSpaceException(
                f"ComplexInputNetwork cannot handle the part {path} of the observations: {space}."
            )
        if len(space.shape) != 3:
            return "flat", math.prod(space.shape)
        filters = filters_for(space.shape, self.model_config.get("conv_filters"))
        convs = ConvStack(space.shape, filters, self.model_config.get("conv_activation", "relu"), reduce=False)
        self.convs[part_name(path)] = convs
        return "image", convs.out_size

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:  # noqa: ARG002
        """Returns outputs, float `[B, num_outputs]`, of the nested `input_dict["obs"]`, and the state unchanged."""
        pieces = []
        for path, kind, size in self._parts:
            leaf = input_dict["obs"]
            for key in path:
                leaf = leaf[key]
            if kind == "image":
                pieces.append(self.convs[part_name(path)](leaf))
            elif kind == "one_hot" and math.prod(leaf.shape[1:]) != size:
                pieces.append(self._one_hot(leaf, path))
            else:
                pieces.append(flat_rows(leaf))
        x = tf.concat(pieces, axis=1)
        for layer in self._dense_layers:
            x = self.dense(layer, x)
            x = x if self._dense_activation is None else self._dense_activation(x)
        self._features = x
        return (self.dense("output", x) if self._has_output else x), state

    def _one_hot(self, leaf: Any, path: tuple[Any, ...]) -> Any:
        """Returns discrete observations that came without preprocessing as float one-hot rows `[B, n]`."""
        space = space_struct(getattr(self.obs_space, "original_space", self.obs_space))
        for key in path:
            space = space[key]
        if hasattr(space, "n"):
            return tf.one_hot(tf.reshape(tf.cast(leaf, tf.int64), [-1]) - int(getattr(space, "start", 0)), int(space.n))
        counts = np.asarray(space.nvec).reshape(-1)
        columns = tf.unstack(tf.reshape(tf.cast(leaf, tf.int64), [-1, len(counts)]), axis=1)
        return tf.concat([tf.one_hot(column, int(n)) for column, n in zip(columns, counts, strict=True)], axis=1)

    def value_function(self) -> Any:
        """Returns the value of every row of the last forward pass. Float `[B]`.

        Raises:
            ValueError: If no forward pass came before, or the network was built without a value head.
        """
        if not self.uses_value_function:
            raise ValueError(f"{self.name} was built without a value head (uses_value_function=False).")
        if self._features is None:
            raise ValueError("value_function() speaks of the last forward pass: call the model first.")
        return tf.squeeze(self.dense("value", self._features), axis=1)
