"""The default networks as the Keras models that RLlib 1.x kept in `base_model`, with RLlib's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rlframe.models.rllib_names import keras_name
from rlframe.models.spec import Convolutions


class LiveVariable:
    """A variable of a network's under RLlib's name, kernels as [in, out]: reads and assignments go to the network's.

    Args:
        name: RLlib's name, such as "fc_1/kernel".
        variable: The network's `tf.Variable`; weights lie as [out, in].
    """

    def __init__(self, name: str, variable: Any) -> None:
        self.trainable = bool(variable.trainable)
        self.path, self._variable, self._transposed = name, variable, len(variable.shape) == 2
        self.name = f"{name}:0"

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in RLlib's layout."""
        shape = tuple(int(size) for size in self._variable.shape)
        return shape[::-1] if self._transposed else shape

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        name: str = self._variable.dtype.name
        return name

    @property
    def value(self) -> Any:
        """The tensor."""
        return tf.transpose(self._variable) if self._transposed else tf.identity(self._variable)

    def numpy(self) -> Any:
        """Returns the values."""
        return self.value.numpy()

    def assign(self, value: Any) -> None:
        """Sets the values, given in RLlib's layout."""
        array = np.asarray(value)
        self._variable.assign(array.T if self._transposed else array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Returns the values."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        """Returns name and shape."""
        return f"<{self.name} {self.shape}>"


class LiveLayer(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow has no types
    """A layer of a network's that computes with the network's own variables.

    Args:
        name: RLlib's name.
        function: What it computes of its input `[B, in]`.
        variables: Its variables.
    """

    def __init__(self, name: str, function: Callable[[Any], Any], variables: Sequence[LiveVariable]) -> None:
        super().__init__(name=name)
        self.built = True
        self._function, self._live = function, tuple(variables)

    def call(self, inputs: Any) -> Any:
        """Returns the layer's outputs."""
        return self._function(inputs)

    @property
    def weights(self) -> list[LiveVariable]:
        """Kernel and bias, which are the network's."""
        return list(self._live)

    variables = weights

    @property
    def kernel(self) -> LiveVariable:
        """The weights, [in, out]."""
        return self._live[0]

    @property
    def bias(self) -> LiveVariable:
        """The biases, [out]."""
        return self._live[-1]


class RLlibLayers:
    """The part of a default network by which it is found as RLlib 1.x's Keras model."""

    @property
    def base_model(self) -> Any:
        """The network as RLlib's Keras model, a view made anew: see `network_as_keras`."""
        return network_as_keras(self)


def network_as_keras(model: Any) -> Any:
    """Returns a default network as a Keras model of observations [B, ...] to [outputs, values [B, 1]].

    It is a view: its layers `fc_1`, …, `fc_out`, `fc_value_1`, …, `value_out` compute with the network's variables as
    they are then, and setting theirs sets the network's. A policy that acts in NumPy reads them again when it learns
    or `set_weights` is called. Convolutions are one layer.

    Args:
        model: The network.
    """
    spec, named = model._spec, model.named_variables()
    images = bool(spec.outputs) and isinstance(spec.outputs[0], Convolutions)
    shape = tuple(model.obs_space.shape) if images else (int(np.prod(model.obs_space.shape)),)
    inputs = tf.keras.layers.Input(shape, name="observations")

    def through(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = _live(model, layer, named)(x)
        return x

    features = through(spec.outputs[: spec.shared], inputs)
    outputs = [through(spec.outputs[spec.shared :], features)]
    if spec.values:
        outputs.append(through(spec.values, features))
    return tf.keras.Model(inputs, outputs)


def _live(model: Any, layer: Any, named: Mapping[str, Any]) -> LiveLayer:
    """Returns the view of one layer."""
    name = layer.name
    many = isinstance(layer, Convolutions)
    own = [other for other in named if (other.startswith(f"{name}.") if many else other.rpartition(".")[0] == name)]
    theirs = {other: keras_name(other) or other.replace(".", "/") for other in own}
    if model.model_config.get("no_final_linear") and layer is model._spec.outputs[-1] and name != "output":
        theirs = {other: f"fc_out/{path.rpartition('/')[2]}" for other, path in theirs.items()}
    variables = [LiveVariable(theirs[other], named[other]) for other in own]
    title = name if many else variables[0].path.rpartition("/")[0] or name
    return LiveLayer(title, lambda x: model.run_spec((layer,), x), variables)
