"""What the default fully connected network consists of: one list of named layers for torch, TensorFlow and NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.models.actor import normalize_activation
from rlframe.models.spec import AppendBias, Dense, Layer
from rlframe.utils.errors import ConfigError

#: PopArt's layer: one weight σ and one bias μ behind `value`, which no gradient changes: V is μ + σ times what `value`
#: gives. Where the model's config has this key, networks have this layer.
POPART_LAYER = "popart"


def fcnet_spec(num_outputs: int | None, model_config: Mapping[str, Any], *, values: bool = True) -> dict[str, Any]:
    """Returns the actor spec of the network that `model_config` asks for.

    Layers are named `hidden_0`, `hidden_1`, …, `output`, `free_log_std`, `value_hidden_0`, …, `value`, `popart`.

    Args:
        num_outputs: Width of the outputs; None makes the last hidden layer the output.
        model_config: Keys `fcnet_hiddens`, `fcnet_activation`, `post_fcnet_hiddens`, `post_fcnet_activation`,
            `no_final_linear`, `free_log_std` and `vf_share_layers`; and `POPART_LAYER`, which policies add.
        values: Whether the network also has a value head.

    Returns:
        `{"outputs": [...], "values": [...] or None, "shared": n}`, see `rlframe.models.actor`; every layer has `units`.

    Raises:
        ConfigError: If `free_log_std` meets an odd `num_outputs`.
        ValueError: If an activation is unknown.
    """
    hidden = _hidden_layers(model_config, "hidden")
    free_log_std = bool(model_config.get("free_log_std", False)) and num_outputs is not None
    width = _width_before_log_std(num_outputs, free_log_std)
    outputs: list[Layer] = list(hidden)
    shared = len(outputs)
    if width is not None and model_config.get("no_final_linear", False):
        last = hidden[-1] if hidden else Dense("hidden_0", _activation(model_config, "fcnet_activation", "tanh"))
        outputs[-1:] = [Dense(last.name, last.activation, width)]
        shared = len(outputs)
    elif width is not None:
        outputs.append(Dense("output", "linear", width))
    if free_log_std:
        outputs.append(AppendBias("free_log_std", width))
    value_layers: list[Layer] | None = None
    if values:
        separate = not model_config.get("vf_share_layers", True)
        value_layers = [
            *(_hidden_layers(model_config, "value_hidden") if separate else []),
            Dense("value", "linear", 1),
            *([Dense(POPART_LAYER, "linear", 1)] if model_config.get(POPART_LAYER) else []),
        ]
        shared = 0 if separate else shared
    return {
        "outputs": [layer.to_spec() for layer in outputs],
        "values": None if value_layers is None else [layer.to_spec() for layer in value_layers],
        "shared": shared,
    }


def _hidden_layers(model_config: Mapping[str, Any], prefix: str) -> list[Dense]:
    """Returns `fcnet_hiddens` followed by `post_fcnet_hiddens` as layers."""
    activation = _activation(model_config, "fcnet_activation", "tanh")
    post_activation = _activation(model_config, "post_fcnet_activation", "relu")
    sizes = [(int(units), activation) for units in model_config.get("fcnet_hiddens") or ()]
    sizes += [(int(units), post_activation) for units in model_config.get("post_fcnet_hiddens") or ()]
    return [Dense(f"{prefix}_{index}", name, units) for index, (units, name) in enumerate(sizes)]


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
