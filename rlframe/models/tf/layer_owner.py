"""Layers of `rlframe.models.spec` in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rlframe.models.actor_layers import BATCH_NORM_EPSILON
from rlframe.models.layer_owner import LayerOwner
from rlframe.models.spec import (
    GRU,
    LSTM,
    AppendBias,
    Atoms,
    BatchNorm,
    Convolutions,
    Dense,
    Dueling,
    Layer,
    LayerNorm,
    NoisyDense,
    Rescale,
    Sum,
)
from rlframe.models.tf import cells
from rlframe.models.tf.conv_stack import ConvStack
from rlframe.models.tf.misc import activation_function, initial_rng
from rlframe.models.tf.noisy import NoisyLayer
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.models.tf.variables import VariableOwner
from rlframe.utils.quiet_tf import tf

Tensor: TypeAlias = Any

#: Limits of batch renormalisation: how far its scale and its shift may go.
MOST_SCALE, MOST_SHIFT = 3.0, 5.0


class TFLayerOwner(LayerOwner, VariableOwner):
    """Has the variables of layers, named as those of the torch sibling."""

    def init_model_base(self, *arguments: Any, **options: Any) -> None:
        """Initialises `TFModelV2`."""
        TFModelV2.__init__(self, *arguments, **options)  # type: ignore[arg-type]  # it is one

    def _add_spec_layer(self, layer: Layer, in_size: int, rng: np.random.Generator | None) -> None:
        """Makes the variables of a layer."""
        name, units = layer.name, int(layer.units or 0)
        if isinstance(layer, Dense):
            weight, bias = layer.initial.draw(rng or initial_rng(), units, in_size)
            self.add_weight(f"{name}.weight", weight, layer.trainable)
            self.add_weight(f"{name}.bias", bias, layer.trainable)
        elif isinstance(layer, NoisyDense):
            setattr(self, name, NoisyLayer(in_size, units, layer.sigma0, activation=None))
        elif isinstance(layer, GRU | LSTM):
            setattr(self, name, (cells.GRU if isinstance(layer, GRU) else cells.LSTM)(in_size, units))
        elif isinstance(layer, Convolutions):
            setattr(self, name, ConvStack(layer.shape, layer.filters, layer.activation, reduce=layer.reduce))
        elif isinstance(layer, AppendBias):
            self.add_weight(f"{name}.log_std", np.full(units, layer.start, np.float32))
        elif isinstance(layer, LayerNorm | BatchNorm):
            self.add_weight(f"{name}.weight", np.ones(units, np.float32))
            self.add_weight(f"{name}.bias", np.zeros(units, np.float32))
        if isinstance(layer, BatchNorm):
            self.add_weight(f"{name}.running_mean", np.zeros(units, np.float32), trainable=False)
            self.add_weight(f"{name}.running_var", np.ones(units, np.float32), trainable=False)
            self.add_weight(f"{name}.steps", np.zeros((), np.float32), trainable=False)

    def _add_spec_constant(self, name: str, value: Any) -> None:
        """Keeps a tensor."""
        setattr(self, name, tf.constant(value))

    def bind_spec(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Returns the layers: what finds their variables takes no time once it is traced."""
        return tuple(layers)

    def run_spec(self, layers: tuple[Layer, ...], x: Tensor, *, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns what layers make of rows `[B, n]`."""
        del frozen  # a tape computes what it is asked for
        for layer in layers:
            x = self._run_spec_layer(layer, x, training)
            inside = isinstance(layer, Convolutions)  # which have their activations themselves
            activation = activation_function(None if inside else getattr(layer, "activation", None))
            if activation is not None:
                x = activation(x)
        return x

    def has_spec_layers(self, layers: Sequence[Layer]) -> bool:
        """Returns True: the variables are all there is."""
        del layers
        return True

    def spec_variable(self, layer: str, part: str) -> Any:
        """Returns a variable."""
        return self.get_weight(f"{layer}.{part}")

    def _run_spec_layer(self, layer: Layer, x: Tensor, training: bool) -> Tensor:
        """Returns what a layer makes of `x`, before its activation."""
        if isinstance(layer, Dense):
            return self.dense(layer.name, x)
        if isinstance(layer, NoisyDense):
            return getattr(self, layer.name)(x, training)
        if isinstance(layer, Convolutions):
            return getattr(self, layer.name)(x)
        if isinstance(layer, Dueling | Sum | Atoms):
            branches = () if isinstance(layer, Atoms) else layer.branches
            return self._run_spec_composite(layer, branches, x, training=training)
        if isinstance(layer, Rescale):
            low, high = np.asarray(layer.low, np.float32), np.asarray(layer.high, np.float32)
            return x * (high - low) / 2 + (high + low) / 2
        if isinstance(layer, AppendBias):
            log_std = self.get_weight(f"{layer.name}.log_std")
            return tf.concat([x, tf.broadcast_to(log_std, [tf.shape(x)[0], layer.units or 0])], axis=1)
        assert isinstance(layer, LayerNorm | BatchNorm)  # none else stands in a row
        return self._spec_normalised(layer, x, training)

    def _spec_normalised(self, layer: LayerNorm | BatchNorm, x: Tensor, training: bool) -> Tensor:
        """Returns rows by layer normalisation or batch renormalisation."""
        scale, bias = self.get_weight(f"{layer.name}.weight"), self.get_weight(f"{layer.name}.bias")
        if isinstance(layer, LayerNorm):
            mean, variance = tf.nn.moments(x, axes=[1], keepdims=True)
            return (x - mean) * tf.math.rsqrt(variance + 1e-5) * scale + bias
        return self._spec_renormalised(layer, x, training) * scale + bias

    def _spec_renormalised(self, layer: BatchNorm, x: Tensor, training: bool) -> Tensor:
        """Returns rows by batch renormalisation; see `rlframe.models.spec.BatchNorm`."""
        running, running_var, steps = (
            self.get_weight(f"{layer.name}.{array}") for array in ("running_mean", "running_var", "steps")
        )
        running_std = tf.sqrt(running_var + BATCH_NORM_EPSILON)
        if not training:
            return (x - running) / running_std
        mean, variance = tf.nn.moments(x, axes=[0])
        std = tf.sqrt(variance + BATCH_NORM_EPSILON)
        warm = tf.cast(steps >= layer.warmup, tf.float32)
        scale = 1.0 + warm * (tf.clip_by_value(std / running_std, 1.0 / MOST_SCALE, MOST_SCALE) - 1.0)
        shift = warm * tf.clip_by_value((mean - running) / running_std, -MOST_SHIFT, MOST_SHIFT)
        made = (x - mean) / std * tf.stop_gradient(scale) + tf.stop_gradient(shift)
        running.assign_add(layer.momentum * (mean - running))
        running_var.assign_add(layer.momentum * (variance - running_var))
        steps.assign_add(1.0)
        return made
