"""Networks that xagents' `.cfg` files describe, as config keys of an algorithm here."""

from __future__ import annotations

import configparser
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rlframe.models.actor_layers import ACTIVATIONS
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import read_text

ROLES = ("model", "actor", "critic")
"""What a network may be to an algorithm."""

_MOST_BYTES = 1 << 16
_KEYS = {
    "convolutional": {"filters", "size", "stride", "activation", "initializer", "gain", "common", "output"},
    "flatten": {"common", "output"},
    "dense": {"units", "activation", "initializer", "gain", "common", "output"},
}
#: What algorithms put behind their outputs themselves.
_OF_OUTPUTS = ("linear", "softmax", "tanh")
#: `tf.keras` takes layers for channels-last images without padding.
_PADDING = "valid"


@dataclass(frozen=True)
class NetworkFile:
    """A network file, read.

    Attributes:
        path: Where it is.
        convolutions: [filters, kernel, stride, padding] of each.
        conv_activation: Behind each of these.
        dense: Hidden layers behind them: how many of one activation stand in a row.
        outputs: How many outputs attach to the last hidden layer: actions, or actions and values.
        initial: Whether it says how weights begin, which nothing here takes over.
    """

    path: Path
    convolutions: tuple[tuple[Any, ...], ...]
    conv_activation: str
    dense: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: int
    initial: bool

    def model_section(self) -> dict[str, Any]:
        """Returns the keys of the `model` section.

        Raises:
            ConfigError: If activations change more often than the section can say.
        """
        shared = {"vf_share_layers": True} if self.outputs > 1 else {}
        if self.convolutions:
            self._check_activations(1, "behind convolutions one activation: post_fcnet_activation")
            filters = [[out, list(size), stride, padding] for out, size, stride, padding in self.convolutions]
            convs = {"conv_filters": filters, "conv_activation": self.conv_activation}
            return {**convs, **self._group("post_fcnet", 0), **shared}
        self._check_activations(2, "at most two in a row: fcnet_activation and post_fcnet_activation")
        return {**self._group("fcnet", 0), **(self._group("post_fcnet", 1) if len(self.dense) > 1 else {}), **shared}

    def hidden_layers(self, prefix: str) -> dict[str, Any]:
        """Returns `<prefix>_hiddens` and `<prefix>_hidden_activation`, for algorithms whose networks see vectors only.

        Raises:
            ConfigError: If there are convolutions, or several activations.
        """
        if self.convolutions:
            raise ConfigError(
                f"{self.path}: has convolutions, which networks of observation and action do not take; wanted dense "
                "layers, and model.conv_filters for images"
            )
        self._check_activations(1, f"one: {prefix}_hidden_activation")
        activation, sizes = self.dense[0] if self.dense else ("linear", ())
        return {f"{prefix}_hiddens": list(sizes), f"{prefix}_hidden_activation": activation}

    def _group(self, prefix: str, index: int) -> dict[str, Any]:
        activation, sizes = self.dense[index] if index < len(self.dense) else ("linear", ())
        return {f"{prefix}_hiddens": list(sizes), f"{prefix}_activation": activation}

    def _check_activations(self, most: int, wanted: str) -> None:
        if len(self.dense) > most:
            names = ", ".join(activation for activation, _ in self.dense)
            raise ConfigError(
                f"{self.path}: its dense layers have the activations {names}; wanted {wanted}; for others write a "
                "custom_model"
            )


def network_config(path: Path, role: str, known: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns what a network file says in the keys of an algorithm, and remarks on what it does not say there.

    Args:
        path: A `.cfg` file.
        role: "model", "actor" or "critic".
        known: The algorithm's keys.

    Raises:
        ConfigError: If the file cannot be read, or says what the algorithm's config cannot.
    """
    network = read_network_file(path)
    return _keys_of(network, role, known), list(_remarks(network))


def _keys_of(network: NetworkFile, role: str, known: Collection[str]) -> dict[str, Any]:
    two = "actor_hiddens" in known or "policy_model" in known
    if role == "model" and two:
        raise ConfigError(
            f"{network.path}: the algorithm has an actor and a critic; wanted --actor-model FILE, --critic-model FILE"
        )
    if "actor_hiddens" in known:
        return network.hidden_layers(role)
    if "policy_model" in known:
        section = network.model_section()
        section.pop("vf_share_layers", None)
        return {"policy_model" if role == "actor" else "Q_model": section}
    if role != "model":
        section = network.model_section()
        return {"model": {**section, "vf_share_layers": False}}
    # Q-networks end with their outputs there, with no heads in between.
    heads = {"hiddens": [], "dueling": False} if {"hiddens", "dueling"} <= set(known) else {}
    if heads and network.outputs > 1:
        raise ConfigError(f"{network.path}: has {network.outputs} outputs; wanted one, of Q-values, for this algorithm")
    return {"model": network.model_section(), **heads}


def _remarks(network: NetworkFile) -> Iterator[str]:
    if network.initial:
        yield (
            f"{network.path}: initializer and gain are not taken over: rows of weights begin with norm 1 here, those "
            "of outputs with 0.01"
        )


def read_network_file(path: Path) -> NetworkFile:
    """Reads a `.cfg` file: layers as sections, executed from top to bottom.

    Raises:
        ConfigError: If it cannot be read, or has layers or keys that have no counterpart.
    """
    layers = _sections(path)
    _check_order(path, layers)
    outputs = [index for index, (_, kind, keys) in enumerate(layers) if kind == "dense" and _is_output(keys)]
    _check_outputs(path, layers, outputs)
    convs = [keys for _, kind, keys in layers if kind == "convolutional"]
    hidden = [(name, keys) for i, (name, kind, keys) in enumerate(layers) if kind == "dense" and i not in outputs]
    conv_activations = [_activation(path, name, keys) for name, kind, keys in layers if kind == "convolutional"]
    if len(set(conv_activations)) > 1:
        raise ConfigError(
            f"{path}: its convolutions have the activations {', '.join(conv_activations)}; wanted one for all of them"
        )
    sized = [(_activation(path, name, keys), _number(path, name, keys, "units")) for name, keys in hidden]
    return NetworkFile(
        path,
        tuple(_convolution(path, f"convolutional-{i}", keys) for i, keys in enumerate(convs)),
        conv_activations[0] if conv_activations else "relu",
        tuple((name, tuple(units for _, units in rows)) for name, rows in groupby(sized, lambda layer: layer[0])),
        len(outputs),
        any({"initializer", "gain"} & set(keys) for _, _, keys in layers),
    )


_Layers = Sequence[tuple[str, str, Mapping[str, str]]]


def _sections(path: Path) -> _Layers:
    """Returns name, kind and keys of each section."""
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(read_text(path, _MOST_BYTES))
    except (OSError, ValueError, configparser.Error) as error:
        raise ConfigError(f"cannot read the network file {str(path)!r}: {' '.join(str(error).split())}") from error
    layers = [(name, name.partition("-")[0].strip().lower(), dict(parser[name])) for name in parser.sections()]
    if not layers:
        raise ConfigError(f"{path}: holds no layers; wanted sections such as [dense-0] with units=64")
    for name, kind, keys in layers:
        if kind not in _KEYS:
            raise ConfigError(
                f"{path}: [{name}] is a layer that has no counterpart here; wanted [convolutional-0], [flatten-0] or "
                "[dense-0]: write a custom_model for it"
            )
        unknown = sorted(set(keys) - _KEYS[kind])
        if unknown:
            raise ConfigError(f"{path}: [{name}] has {', '.join(unknown)}; wanted {', '.join(sorted(_KEYS[kind]))}")
    return layers


def _check_order(path: Path, layers: _Layers) -> None:
    kinds = [kind for _, kind, _ in layers]
    if sorted(kinds, key=list(_KEYS).index) != kinds:
        raise ConfigError(
            f"{path}: its layers are {', '.join(kinds)}; wanted convolutions first, then flatten, then dense layers"
        )


def _is_output(keys: Mapping[str, str]) -> bool:
    return keys.get("output", "0").strip() == "1" or "units" not in keys


def _check_outputs(path: Path, layers: _Layers, outputs: list[int]) -> None:
    """Raises a ConfigError unless one or two outputs attach to the last hidden layer."""
    if not outputs or len(outputs) > 2:
        raise ConfigError(
            f"{path}: has {len(outputs)} outputs; wanted one, or two with values as the second: dense layers with "
            "output=1, whose units come from the spaces"
        )
    first, (name, _, keys) = outputs[0], layers[max(outputs[0] - 1, 0)]
    behind = [layer for layer, (_, kind, _) in enumerate(layers) if kind == "dense" and layer > first]
    if len(behind) >= len(outputs):
        raise ConfigError(f"{path}: hidden layers stand behind [{layers[first][0]}], an output; wanted them before it")
    if len(outputs) > 1 and keys.get("common", "0").strip() != "1":
        raise ConfigError(f"{path}: two outputs need a layer that they share; wanted common=1 in [{name}]")
    marked = [index for index, (_, _, keys) in enumerate(layers) if keys.get("common", "0").strip() == "1"]
    if [index for index in marked if index != first - 1]:
        raise ConfigError(f"{path}: common=1 stands in [{layers[marked[0]][0]}]; wanted it in the last hidden layer")
    for index in outputs:
        name, _, keys = layers[index]
        activation = _activation(path, name, keys)
        if activation not in _OF_OUTPUTS:
            raise ConfigError(f"{path}: [{name}] is an output with {activation}; wanted {' or '.join(_OF_OUTPUTS)}")


def _activation(path: Path, name: str, keys: Mapping[str, str]) -> str:
    activation = keys.get("activation", "linear").strip().lower()
    if activation not in ACTIVATIONS and not (activation == "softmax" and _is_output(keys)):
        raise ConfigError(
            f"{path}: [{name}] has activation={activation}; wanted one of {', '.join(sorted(ACTIVATIONS))}"
        )
    return activation


def _convolution(path: Path, name: str, keys: Mapping[str, str]) -> tuple[Any, ...]:
    size = _number(path, name, keys, "size")
    return _number(path, name, keys, "filters"), (size, size), _number(path, name, keys, "stride"), _PADDING


def _number(path: Path, name: str, keys: Mapping[str, str], key: str) -> int:
    text = keys.get(key, "nothing").strip()
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"{path}: [{name}] has {key}={text}; wanted a whole number >= 1")
    return int(text)
