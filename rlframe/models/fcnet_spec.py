"""What the default networks consist of: lists of named layers for torch, TensorFlow and NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlframe.models.actor_layers import normalize_activation
from rlframe.models.conv_sizes import filters_for
from rlframe.models.spec import AppendBias, Convolutions, Dense, Initial, Layer, ModelLayers
from rlframe.utils.errors import ConfigError

#: PopArt's layer: one weight σ and one bias μ behind `value`, which no gradient changes: V is μ + σ times what `value`
#: gives. Where the model's config has this key, networks have this layer.
POPART_LAYER = "popart"
#: How hidden layers begin, and outputs and values: near zero.
HIDDEN, HEAD = Initial("normc", 1.0), Initial("normc", 0.01)
#: How hidden layers, outputs and values begin, by `fcnet_weights_initializer`. Source of "orthogonal": Engstrom et al.
#: 2020, "Implementation Matters in Deep Policy Gradients", section 3.
_INITIALS = {
    "normc": (HIDDEN, HEAD, HEAD),
    "orthogonal": (Initial("orthogonal", 2.0**0.5), Initial("orthogonal", 0.01), Initial("orthogonal", 1.0)),
    "xavier": (Initial("xavier"),) * 3,
    "fan_in": (Initial("fan_in"),) * 3,
}


def fcnet_spec(
    num_outputs: int | None, model_config: Mapping[str, Any], *, values: bool = True, head: Initial | None = None
) -> ModelLayers:
    """Returns the layers of the network that `model_config` asks for.

    Layers are named `hidden_0`, `hidden_1`, …, `output`, `free_log_std`, `value_hidden_0`, …, `value`, `popart`.

    Args:
        num_outputs: Width of the outputs; None makes the last hidden layer the output.
        model_config: Keys `fcnet_hiddens`, `fcnet_activation`, `fcnet_weights_initializer`, `post_fcnet_hiddens`,
            `post_fcnet_activation`, `no_final_linear`, `free_log_std`, `initial_log_std` and `vf_share_layers`; and
            `POPART_LAYER`, which policies add.
        values: Whether the network also has a value head.
        head: How the layers of outputs and values begin; None as `fcnet_weights_initializer` says.

    Raises:
        ConfigError: If `free_log_std` meets an odd `num_outputs`.
        ValueError: If an activation is unknown.
    """
    inner, output_head, value_head = _INITIALS[model_config.get("fcnet_weights_initializer") or "normc"]
    hidden = _hidden_layers(model_config, "hidden", inner)
    free_log_std = bool(model_config.get("free_log_std", False)) and num_outputs is not None
    width = _width_before_log_std(num_outputs, free_log_std)
    outputs: list[Layer] = list(hidden)
    shared = len(outputs)
    if width is not None and model_config.get("no_final_linear", False):
        last = hidden[-1] if hidden else Dense("hidden_0", _activation(model_config, "fcnet_activation", "tanh"))
        outputs[-1:] = [Dense(last.name, last.activation, width, inner)]
        shared = len(outputs)
    elif width is not None:
        outputs.append(Dense("output", "linear", width, head or output_head))
    if free_log_std:
        outputs.append(AppendBias("free_log_std", width, float(model_config.get("initial_log_std") or 0.0)))
    if not values:
        return ModelLayers(tuple(outputs), None, shared)
    separate = not model_config.get("vf_share_layers", True)
    value_layers = [
        *(_hidden_layers(model_config, "value_hidden", inner) if separate else ()),
        Dense("value", "linear", 1, head or value_head),
    ]
    if model_config.get(POPART_LAYER):
        value_layers.append(Dense(POPART_LAYER, "linear", 1, Initial("ones"), trainable=False))
    return ModelLayers(tuple(outputs), tuple(value_layers), 0 if separate else shared)


def visionnet_spec(
    shape: Sequence[int], num_outputs: int | None, model_config: Mapping[str, Any], *, values: bool = True
) -> ModelLayers:
    """Returns the layers of the network for images that `model_config` asks for.

    Layers are named `convs`, `dense.0`, …, `output`, `value_convs`, `value_dense.0`, …, `value`. With `no_final_linear`
    the last layer before the output has `num_outputs` units, and is the output.

    Args:
        shape: Height, width and channels.
        num_outputs: Width of the outputs; None makes the features the output, which a memory then has before it: all of
            them, where the last convolution leaves more than 1×1.
        model_config: Keys `conv_filters`, `conv_activation`, `post_fcnet_hiddens`, `post_fcnet_activation`,
            `no_final_linear` and `vf_share_layers`.
        values: Whether the network also has a value head.

    Raises:
        ConfigError: If filters do not fit the images.
        ValueError: If an activation is unknown.
    """
    ends_linear = num_outputs is not None and not model_config.get("no_final_linear", False)
    features = _image_layers(shape, model_config, "", None if ends_linear else num_outputs, flat=num_outputs is None)
    outputs = [*features, *([Dense("output", "linear", num_outputs, HEAD)] if ends_linear else ())]
    if not values:
        return ModelLayers(tuple(outputs), None, len(features))
    separate = not model_config.get("vf_share_layers", True)
    own = _image_layers(shape, model_config, "value_", None, flat=num_outputs is None) if separate else []
    return ModelLayers(tuple(outputs), (*own, Dense("value", "linear", 1, HEAD)), 0 if separate else len(features))


def _image_layers(
    shape: Sequence[int], model_config: Mapping[str, Any], prefix: str, num_outputs: int | None, *, flat: bool
) -> list[Layer]:
    """Returns convolutions and the dense layers behind them, the last one with `num_outputs` units where given."""
    filters = [list(layer) for layer in filters_for(shape, model_config.get("conv_filters"))]
    hiddens = [int(units) for units in model_config.get("post_fcnet_hiddens") or ()]
    if num_outputs is not None and hiddens:
        hiddens[-1] = num_outputs
    elif num_outputs is not None:
        filters[-1][0] = num_outputs
    activation = normalize_activation(model_config.get("conv_activation", "relu"))
    size = tuple(int(n) for n in shape)
    return [
        Convolutions(f"{prefix}convs", size, filters, activation, reduce=not (hiddens or flat)),
        *post_layers(model_config, hiddens, prefix),
    ]


def post_layers(model_config: Mapping[str, Any], hiddens: Sequence[int], prefix: str = "") -> list[Layer]:
    """Returns dense layers "<prefix>dense.0", … behind convolutions, with `post_fcnet_activation`."""
    activation = _activation(model_config, "post_fcnet_activation", "relu")
    return [Dense(f"{prefix}dense.{index}", activation, units, HIDDEN) for index, units in enumerate(hiddens)]


def _hidden_layers(model_config: Mapping[str, Any], prefix: str, initial: Initial) -> list[Dense]:
    """Returns `fcnet_hiddens` followed by `post_fcnet_hiddens` as layers."""
    activation = _activation(model_config, "fcnet_activation", "tanh")
    post_activation = _activation(model_config, "post_fcnet_activation", "relu")
    sizes = [(int(units), activation) for units in model_config.get("fcnet_hiddens") or ()]
    sizes += [(int(units), post_activation) for units in model_config.get("post_fcnet_hiddens") or ()]
    return [Dense(f"{prefix}_{index}", name, units, initial) for index, (units, name) in enumerate(sizes)]


def _activation(model_config: Mapping[str, Any], key: str, default: str) -> str:
    return normalize_activation(model_config.get(key, default))


def _width_before_log_std(num_outputs: int | None, free_log_std: bool) -> int | None:
    """Returns the width of the last dense layer: half of `num_outputs` where the other half is a free vector."""
    if not free_log_std or num_outputs is None:
        return num_outputs
    if num_outputs % 2:
        raise ConfigError(
            f"model.free_log_std=True needs an even number of outputs (a mean and a log-std per action dimension), "
            f"got num_outputs={num_outputs}. Set it to False for this action space."
        )
    return num_outputs // 2
