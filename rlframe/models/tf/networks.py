"""Networks of `rlframe.models.spec` in TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from rlframe.models.actor import BATCH_NORM_EPSILON
from rlframe.models.catalog import ModelCatalog
from rlframe.models.spec import (
    GRU,
    LSTM,
    ActingView,
    AppendBias,
    BatchNorm,
    CustomNetwork,
    Dense,
    Layer,
    LayerNorm,
    Network,
    NoisyDense,
    Part,
    Rescale,
    Variable,
)
from rlframe.models.tf import cells
from rlframe.models.tf.misc import activation_function, flat_rows, initial_rng
from rlframe.models.tf.noisy import NoisyLayer
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.models.tf.variables import VariableOwner
from rlframe.tensor import ops

Tensor: TypeAlias = Any

#: Limits of batch renormalisation: how far its scale and its shift may go.
MOST_SCALE, MOST_SHIFT = 3.0, 5.0


class TFNetwork(VariableOwner):
    """A network of layers; its variables are named as those of the torch sibling.

    Args:
        spec: What it consists of.
    """

    _NOT_SEARCHED = (*VariableOwner._NOT_SEARCHED, "spec")

    def __init__(self, spec: Network) -> None:
        self.spec = spec
        width = spec.in_size
        for layer in spec.layers:
            self._add(layer, width)
            width = width + int(layer.units or 0) if layer.kind == "append_bias" else int(layer.units or 0)

    def _add(self, layer: Layer, in_size: int) -> None:
        """Makes the variables of a layer."""
        name, units = layer.name, int(layer.units or 0)
        if isinstance(layer, Dense):
            weight, bias = layer.initial.draw(initial_rng(), units, in_size)
            self.add_weight(f"{name}.weight", weight)
            self.add_weight(f"{name}.bias", bias)
        elif isinstance(layer, NoisyDense):
            setattr(self, name, NoisyLayer(in_size, units, activation=None))
        elif isinstance(layer, (GRU, LSTM)):
            setattr(self, name, (cells.GRU if isinstance(layer, GRU) else cells.LSTM)(in_size, units))
        elif isinstance(layer, AppendBias):
            self.add_weight(f"{name}.log_std", np.zeros(units, np.float32))
        elif isinstance(layer, (LayerNorm, BatchNorm)):
            self.add_weight(f"{name}.weight", np.ones(units, np.float32))
            self.add_weight(f"{name}.bias", np.zeros(units, np.float32))
        if isinstance(layer, BatchNorm):
            self.add_weight(f"{name}.running_mean", np.zeros(units, np.float32), trainable=False)
            self.add_weight(f"{name}.running_var", np.ones(units, np.float32), trainable=False)
            self.add_weight(f"{name}.steps", np.zeros((), np.float32), trainable=False)

    def __call__(self, *inputs: Tensor, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns the output of inputs that stand side by side.

        Args:
            *inputs: In the order of `spec.inputs`. Float `[B, n]` each.
            training: Whether batch normalisation goes by the batch, and follows it.
            frozen: Whether nobody asks for gradients of its weights, which then may be left out.

        Returns:
            Float `[B, out_size]`.
        """
        del frozen  # a tape computes what it is asked for
        x = inputs[0] if len(inputs) == 1 else tf.concat(inputs, 1)
        for layer in self.spec.layers:
            x = self._run(layer, x, training)
        return x

    def unroll(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the outputs `[S, T, out_size]` of sequences `[S, T, n]`, and the states behind their last steps.

        Args:
            x: Inputs side by side.
            states: The recurrent layers' states before the first step, `[S, ...]` each, as in `initial_states`.
        """
        leading, before, after = tf.shape(x)[:2], iter(states), []
        for layer in self.spec.layers:
            if isinstance(layer, (GRU, LSTM)):
                x, new = getattr(self, layer.name)(x, [next(before) for _ in range(layer.states)])
                after += new
            else:
                rows = self._run(layer, tf.reshape(x, [-1, x.shape[-1]]), False)
                x = tf.reshape(rows, [leading[0], leading[1], rows.shape[-1]])
        return x, after

    def initial_states(self) -> list[Any]:
        """Returns the states that a sequence begins with, arrays `[S]`."""
        return list(self.spec.initial_states())

    def _run(self, layer: Layer, x: Tensor, training: bool) -> Tensor:
        """Returns what a layer makes of rows `[B, n]`."""
        activation = activation_function(getattr(layer, "activation", None))
        made = self._run_linear(layer, x, training)
        return made if activation is None else activation(made)

    def _run_linear(self, layer: Layer, x: Tensor, training: bool) -> Tensor:
        """Returns what a layer makes of rows, before its activation."""
        if isinstance(layer, Dense):
            return self.dense(layer.name, x)
        if isinstance(layer, NoisyDense):
            return getattr(self, layer.name)(x, training)
        if isinstance(layer, Rescale):
            low, high = np.asarray(layer.low, np.float32), np.asarray(layer.high, np.float32)
            return x * (high - low) / 2 + (high + low) / 2
        if isinstance(layer, AppendBias):
            log_std = self.get_weight(f"{layer.name}.log_std")
            return tf.concat([x, tf.broadcast_to(log_std, [tf.shape(x)[0], layer.units or 0])], axis=1)
        scale, bias = self.get_weight(f"{layer.name}.weight"), self.get_weight(f"{layer.name}.bias")
        if isinstance(layer, LayerNorm):
            mean, variance = tf.nn.moments(x, axes=[1], keepdims=True)
            return (x - mean) * tf.math.rsqrt(variance + 1e-5) * scale + bias
        assert isinstance(layer, BatchNorm)
        return self._renormalised(layer, x, training) * scale + bias

    def _renormalised(self, layer: BatchNorm, x: Tensor, training: bool) -> Tensor:
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

    def kernels(self) -> list[Tensor]:
        """Returns the weight matrices, `[out, in]` each; no biases."""
        return [variable for variable in self.named_trainable_variables().values() if len(variable.shape) > 1]


class TFCustomNetwork(VariableOwner):
    """A user's `TFModelV2` as a network: it gets the inputs side by side as its observation.

    Args:
        spec: Widths, and the `model` section that names the model.
    """

    _NOT_SEARCHED = (*VariableOwner._NOT_SEARCHED, "spec")

    def __init__(self, spec: CustomNetwork) -> None:
        self.spec = spec
        self.model: Any = ModelCatalog.get_model_v2(*spec.spaces(), spec.out_size, dict(spec.config), "tf")
        spec.check(self.model)

    def __call__(self, *inputs: Tensor, training: bool = False, frozen: bool = False) -> Tensor:
        """Returns the model's outputs `[B, out_size]` for inputs `[B, n]` side by side."""
        del frozen
        x = inputs[0] if len(inputs) == 1 else tf.concat(inputs, 1)
        return self.model({"obs": x, "is_training": training})[0]

    def unroll(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Returns the model's outputs `[S, T, out_size]` of sequences `[S, T, n]`, and the states behind them."""
        sequences, steps = tf.unstack(tf.shape(x)[:2])
        rows = tf.reshape(x, [-1, *self.spec.spaces()[0].shape])
        lens = tf.fill([sequences], steps)
        outputs, after = self.model({"obs": rows, "is_training": False}, states, lens)
        return tf.reshape(outputs, [sequences, steps, outputs.shape[-1]]), after

    def initial_states(self) -> list[Any]:
        """Returns the states that a sequence begins with, arrays `[S]`."""
        return list(self.model.get_initial_state())

    def kernels(self) -> list[Tensor]:
        """Returns the weight matrices and filters; no biases."""
        return [variable for variable in self.named_trainable_variables().values() if len(variable.shape) > 1]


class Networks(TFModelV2):
    """The networks of a policy as its model: each is an attribute, and so is each learned variable.

    Args:
        obs_space: Preprocessed observation space.
        action_space: Action space of the environment.
        num_outputs: Width of what the acting network gives.
        model_config: The `model` section of the config.
        name: Name of the model.
        parts: Networks and variables by name.
        acting: Name of the network that gives distribution inputs for observations.
        encoder: A `ModelV2` that makes features of observations for all of them; None where they take the observations.
        view: How the acting network sees observations that are not those of one agent; see `ActingView`.
    """

    #: No head of the acting network gives values.
    uses_value_function = False
    _NOT_SEARCHED = (*TFModelV2._NOT_SEARCHED, "parts", "view")

    def __init__(  # noqa: PLR0913 - those of all models, and three
        self,
        obs_space: Any,
        action_space: Any,
        num_outputs: int,
        model_config: dict[str, Any],
        name: str,
        *,
        parts: Mapping[str, Part],
        acting: str,
        encoder: Any = None,
        view: ActingView | None = None,
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.parts, self.acting = dict(parts), acting
        self.encoder, self.view = encoder, view
        for part, spec in parts.items():
            if isinstance(spec, Variable):
                setattr(self, part, self.add_weight(part, np.asarray(spec.value, np.float32)))
            else:
                setattr(self, part, TFNetwork(spec) if isinstance(spec, Network) else TFCustomNetwork(spec))

    def encode(self, obs: Tensor, training: bool = False) -> Tensor:
        """Returns what the networks take for observations `[B, ...]`: themselves, flat, or the encoder's features."""
        if self.encoder is None:
            return flat_rows(obs)
        return self.encoder({"obs": obs, "is_training": training})[0]

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns the acting network's outputs `[B, num_outputs]`."""
        obs = input_dict["obs_flat"] if self.encoder is None else input_dict["obs"]
        x, network = self.encode(obs), getattr(self, self.acting)
        if self.view is not None:
            return self.view.act(network, x, state, seq_lens)
        if not state:
            return network(x), state
        outputs, after = network.unroll(ops.split_sequences(x, seq_lens), state)
        return ops.flatten_sequences(outputs), after

    def get_initial_state(self) -> list[Any]:
        """Returns what the acting network begins a sequence with."""
        made: list[Any] = getattr(self, self.acting).initial_states()
        return made if self.view is None else self.view.states(made)

    def weights_of(self, part: str) -> dict[str, Any]:
        """Returns the trainable variables of a network, or a variable, by their names in the model."""
        found = self.named_trainable_variables().items()
        return {name: value for name, value in found if name == part or name.startswith(f"{part}.")}

    def actor_spec(self) -> dict[str, Any] | None:
        """Returns what a NumPy actor acts by; None where acting needs the encoder, or a user's own model."""
        spec = self.parts[self.acting]
        if self.encoder is not None or not isinstance(spec, Network):
            return None
        return {"outputs": spec.prefixed(self.acting), "values": None, "shared": 0}


class SomeNetworks(VariableOwner):
    """Some of a model's networks, themselves, under their names: what a target network holds copies of.

    Args:
        model: The model.
        names: Which; "encoder" where there is one.
    """

    encoder: Any = None
    encode = Networks.encode

    def __init__(self, model: Networks, names: tuple[str, ...]) -> None:
        for name in names:
            if getattr(model, name, None) is not None:
                setattr(self, name, getattr(model, name))
