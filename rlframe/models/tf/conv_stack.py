"""Stacks of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlframe.models.conv_sizes import ConvPlan, Filters, plan_convs
from rlframe.models.tf.misc import activation_function, flat_rows, initial_rng, keras_activation, xavier_uniform
from rlframe.models.tf.variables import VariableOwner
from rlframe.utils.quiet_tf import tf


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
        self._shape = tuple(int(size) for size in shape)
        self._activation = activation_function(activation)
        self._keras_activation = keras_activation(activation)
        for index, plan in enumerate(self._plans):
            size = (plan.out_channels, plan.in_channels, *plan.kernel)
            self.add_weight(f"{_name(index, plan)}.weight", xavier_uniform(initial_rng(), size))
            self.add_weight(f"{_name(index, plan)}.bias", np.zeros(plan.out_channels, np.float32))

    def __call__(self, images: Any) -> Any:
        """Returns flat features. Images `[B, H, W, C]`, or flat ones, of any dtype to float `[B, out_size]`."""
        images = tf.reshape(images, [-1, *self._shape]) if images.shape.rank == 2 else images
        maps = tf.cast(images, tf.float32)
        for index in range(len(self._plans)):
            maps = self.convolve(maps, index)
        return self.flatten(maps)

    def convolve(self, maps: Any, index: int) -> Any:
        """Returns what one convolution and its activation make of `[B, H, W, C]`."""
        plan = self._plans[index]
        maps = tf.nn.bias_add(self._convolved(maps, index, plan), self.get_weight(f"{_name(index, plan)}.bias"))
        return maps if self._activation is None else self._activation(maps)

    @staticmethod
    def flatten(maps: Any) -> Any:
        """Returns maps in rows, channels first, so that the layers behind have their inputs in torch's order."""
        return flat_rows(tf.transpose(maps, [0, 3, 1, 2]))

    def plain_of(self, index: int) -> Any:
        """Returns what makes a layer of Keras' that computes the same as one convolution and its activation."""
        plan = self._plans[index]
        return partial(
            tf.keras.layers.Conv2D, plan.out_channels, plan.kernel, plan.stride,
            padding="valid" if plan.padding is None else "same", activation=self._keras_activation,
        )  # fmt: skip

    def weights_of(self, index: int) -> tuple[Any, Any]:
        """Returns the weights and the biases of one convolution."""
        name = _name(index, self._plans[index])
        return self.get_weight(f"{name}.weight"), self.get_weight(f"{name}.bias")

    def __len__(self) -> int:
        """Returns how many convolutions there are."""
        return len(self._plans)

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
