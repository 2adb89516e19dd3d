"""Networks as the Keras models that RLlib 1.x had inside of its models, with RLlib's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlframe.models.layered_model import LayeredModel
from rlframe.models.rllib_names import keras_name
from rlframe.models.spec import AppendBias, Convolutions, Dense, Layer, Network
from rlframe.models.tf import keras_two
from rlframe.models.tf.keras_files import ViewModel
from rlframe.models.tf.misc import keras_activation
from rlframe.models.tf.variables import VIEWS
from rlframe.utils.quiet_tf import tf


class KerasView:
    """An attribute of a model's that is a Keras model, made once; a program's own in its place is kept.

    Args:
        make: Makes it of the model; raises AttributeError where there is none.
    """

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        """Takes the attribute's name."""
        self._name = name

    def __get__(self, model: Any, owner: type) -> Any:
        """Returns the Keras model; itself where a class is asked."""
        if model is None:
            return self
        made = vars(model).setdefault(VIEWS, {})
        if self._name not in made:
            made[self._name] = self._make(model)
        return made[self._name]


class BaseModel(KerasView):
    """`base_model` of a default network: a model of a program's own that is put in its place makes the forward pass."""

    def __get__(self, model: Any, owner: type) -> Any:
        """Returns the program's own model, or the view."""
        own = None if model is None else vars(model).get(self._name)
        return super().__get__(model, owner) if own is None else own

    def __set__(self, model: Any, value: Any) -> None:
        """Sets the program's own."""
        vars(model)[self._name] = value
        if type(model).forward is LayeredModel.forward:
            vars(model)["forward"] = partial(_forward_of_base_model, model)


def _forward_of_base_model(model: Any, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Any, list[Any]]:
    """Does what RLlib's default networks did: their Keras model gives outputs and values."""
    del seq_lens
    images = any(isinstance(layer, Convolutions) for layer in model._spec.outputs)
    outputs, model._value_out = model.base_model(tf.cast(input_dict["obs" if images else "obs_flat"], tf.float32))
    return outputs, state


class LiveVariable:
    """A variable of a network's under RLlib's name: reads and assignments go to the network's.

    Kernels are [in, out] there, those of convolutions [height, width, in, out].

    Args:
        name: RLlib's name, such as "fc_1/kernel".
        variable: The network's `tf.Variable`; weights lie as [out, in], or [out, in, height, width].
    """

    #: Who looks for a model's variables finds the network's elsewhere.
    is_view = True

    def __init__(self, name: str, variable: Any) -> None:
        self.trainable = bool(variable.trainable)
        self.path, self._variable = name, variable
        self._order = _ORDERS.get(len(variable.shape), (0,))
        self.name = f"{name}:0"

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes in RLlib's layout."""
        return tuple(int(self._variable.shape[axis]) for axis in self._order)

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        name: str = self._variable.dtype.name
        return name

    @property
    def value(self) -> Any:
        """The tensor."""
        return tf.transpose(self._variable, self._order)

    def numpy(self) -> Any:
        """Returns the values."""
        return self.value.numpy()

    def assign(self, value: Any) -> None:
        """Sets the values, given in RLlib's layout."""
        self._variable.assign(np.asarray(value).transpose(np.argsort(self._order)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Returns the values."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        """Returns name and shape."""
        return f"<{self.name} {self.shape}>"


#: RLlib's order of a variable's axes, by their number.
_ORDERS = {0: (), 1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}


class LiveLayer(tf.keras.layers.Layer):  # type: ignore[misc]  # TensorFlow has no types
    """A layer of a network's that computes with the network's own variables.

    Args:
        name: RLlib's name.
        function: What it computes of its input `[B, in]`.
        variables: Its variables.
        make_plain: Makes a layer of Keras' that computes the same with `plain_weights()`; None where there is none.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Any], Any],
        variables: Sequence[LiveVariable],
        make_plain: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(name=name)
        self.built = True
        self._function, self.live = function, tuple(variables)
        self.make_plain: Any = None if make_plain is None else partial(make_plain, name=name)

    def call(self, inputs: Any) -> Any:
        """Returns the layer's outputs."""
        return self._function(inputs)

    @property
    def weights(self) -> list[LiveVariable]:
        """Kernel and bias, which are the network's."""
        return list(self.live)

    variables = weights

    @property
    def trainable_weights(self) -> list[LiveVariable]:
        """Those that are learned."""
        return [variable for variable in self.live if variable.trainable]

    @property
    def non_trainable_weights(self) -> list[LiveVariable]:
        """The others."""
        return [variable for variable in self.live if not variable.trainable]

    def plain_weights(self) -> list[Any]:
        """Returns the arrays of the layer that `make_plain` makes."""
        return [variable.numpy() for variable in self.live]

    def save_own_variables(self, store: Any) -> None:
        """Writes the weights into Keras' file."""
        for index, variable in enumerate(self.live):
            store[str(index)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Takes them from it."""
        for index, variable in enumerate(self.live):
            variable.assign(store[str(index)])

    @property
    def kernel(self) -> LiveVariable:
        """The weights, [in, out]."""
        return self.live[0]

    @property
    def bias(self) -> LiveVariable:
        """The biases, [out]."""
        return self.live[-1]


class LiveBias(LiveLayer):
    """A layer of a network's that puts numbers of its own behind its inputs; a dense one can do that, too."""

    def __init__(self, name: str, function: Callable[[Any], Any], variables: Sequence[LiveVariable]) -> None:
        super().__init__(name, function, variables)
        self.make_plain = self._dense

    def _dense(self) -> Any:
        return tf.keras.layers.Dense(int(self.output.shape[-1]), name=self.name)

    def plain_weights(self) -> list[Any]:
        """Returns the identity with zeros behind it, and the numbers behind zeros."""
        (bias,), units = super().plain_weights(), int(self.output.shape[-1])
        inputs = units - len(bias)
        return [np.eye(inputs, units), np.concatenate([np.zeros(inputs), bias])]


def base_model_of(model: Any) -> Any:
    """Returns a default network as a Keras model of observations [B, ...] to [outputs, values [B, 1]].

    It is a view: its layers `fc_1`, …, `fc_out`, `fc_value_1`, …, `value_out`, and `conv1`, … for images, compute with
    the network's variables as they are then, and setting theirs sets the network's.
    """
    keras_two.accept()  # for `save_weights("weights.h5")`
    spec, variables = model._spec, model.named_variables()
    shape = model.obs_space.shape
    images = any(isinstance(layer, Convolutions) for layer in spec.outputs)
    inputs = tf.keras.layers.Input(shape if images else (int(np.prod(shape)),), name="observations")
    features = _through(model, spec.outputs[: spec.shared], variables, inputs)
    outputs = [_through(model, spec.outputs[spec.shared :], variables, features)]
    if spec.values:
        outputs.append(_through(model, spec.values, variables, features))
    return ViewModel(inputs, outputs)


class RLlibLayers:
    """The part of a default network by which it is found as RLlib 1.x's Keras model."""

    #: The network as RLlib's Keras model: see `base_model_of`.
    base_model = BaseModel(base_model_of)


def head_of(model: Any, layers: Sequence[Layer], finish: Callable[[Any], Any] | None = None) -> Any:
    """Returns layers behind a model's outputs as a Keras model of those, `[B, num_outputs]`; a view, as above.

    Args:
        model: The model.
        layers: The layers.
        finish: What is made of their outputs; None for themselves.
    """
    inputs = tf.keras.layers.Input((int(model.num_outputs),), name="model_out")
    made = _through(model, layers, model.named_variables(), inputs)
    return ViewModel(inputs, made if finish is None else LiveLayer("made", finish, ())(made))


def network_of(model: Any, part: str) -> Any:
    """Returns an actor or a critic as a Keras model of its inputs, features and for critics actions; a view, as above.

    Args:
        model: The model.
        part: The network's name.

    Raises:
        AttributeError: If there is none, or it is a model of the program's own.
    """
    network = getattr(model, part)
    if network is None or not isinstance(network.spec, Network):
        raise AttributeError(f"{part} of {type(model).__name__} is no network of layers")
    inputs = [tf.keras.layers.Input((width,)) for width in network.spec.inputs.values()]
    x = inputs[0] if len(inputs) == 1 else tf.keras.layers.Concatenate(axis=1)(inputs)
    made = _through(network, network.spec.layers, network.named_variables(), x, f"{part}.")
    return ViewModel(inputs if len(inputs) > 1 else x, made)


def _through(model: Any, layers: Sequence[Layer], variables: Mapping[str, Any], x: Any, prefix: str = "") -> Any:
    for layer in layers:
        for view in _views(model, layer, variables, prefix):
            x = view(x)
    return x


def _views(model: Any, layer: Layer, variables: Mapping[str, Any], prefix: str) -> list[LiveLayer]:
    """Returns the view of one layer, of convolutions one for each."""
    if isinstance(layer, Convolutions):
        stack = getattr(model, layer.name)
        convs = []
        for index in range(len(stack)):
            mine = {name: one for weight in stack.weights_of(index) for name, one in variables.items() if one is weight}
            convolve = partial(stack.convolve, index=index)
            convs.append(_view(f"conv_{index}", convolve, _named(mine, prefix), stack.plain_of(index)))
        return [*convs, LiveLayer(f"{layer.name}_flat", stack.flatten, (), _channels_first)]
    mine = {name: variable for name, variable in variables.items() if name.rpartition(".")[0] == layer.name}
    named = _named(mine, prefix)
    if _is_last(model, layer):
        named = {f"fc_out/{path.rpartition('/')[2]}": variable for path, variable in named.items()}
    function = partial(_run, model, layer)
    if isinstance(layer, AppendBias):
        return [LiveBias(layer.name, function, _live(named))]
    dense = None
    if isinstance(layer, Dense) and len(mine) == 2:
        (units,) = (int(variable.shape[0]) for variable in mine.values() if len(variable.shape) == 2)
        dense = partial(tf.keras.layers.Dense, units, activation=keras_activation(layer.activation))
    return [_view(layer.name, function, named, dense)]


def _run(model: Any, layer: Layer, x: Any) -> Any:
    return model.run_spec(model.bind_spec((layer,)), x)


def _channels_first(name: str) -> Any:
    """Returns a layer of Keras' that puts maps in rows, channels first."""
    return tf.keras.Sequential([tf.keras.layers.Permute((3, 1, 2)), tf.keras.layers.Flatten()], name=name)


def _named(variables: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Returns variables by RLlib's names."""
    return {keras_name(prefix + name) or name.replace(".", "/"): variable for name, variable in variables.items()}


def _view(
    name: str, function: Callable[[Any], Any], variables: Mapping[str, Any], make_plain: Callable[..., Any] | None
) -> LiveLayer:
    """Returns a layer that is called as its variables are, or `name` without any."""
    title = next(iter(variables), f"{name}/").rpartition("/")[0].replace("/", "_")
    return LiveLayer(title, function, _live(variables), make_plain)


def _live(variables: Mapping[str, Any]) -> list[LiveVariable]:
    return [LiveVariable(path, variable) for path, variable in variables.items()]


def _is_last(model: Any, layer: Layer) -> bool:
    """Returns whether a hidden layer is the last one of a default network that has no linear one behind it."""
    spec = getattr(model, "_spec", None)
    if spec is None or not model.model_config.get("no_final_linear"):
        return False
    return layer is spec.outputs[-1] and layer.name != "output"
