"""YAML and JSON files with a config, or with a whole experiment as RLlib 1.x writes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlframe.config.faults import shorten
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import read_text
from rlframe.utils.yaml_text import parse_yaml

_EXPERIMENT_KEYS = {
    "run", "env", "stop", "config", "checkpoint_freq", "keep_checkpoints_num", "checkpoint_at_end"
}  # fmt: skip


_EXPERIMENT_TYPES: dict[str, tuple[type, str]] = {
    "run": (str, "the name of an algorithm"),
    "env": (str, "the name of an environment"),
    "stop": (dict, "limits by their names"),
    "config": (dict, "config keys"),
    "checkpoint_freq": (int, "a number of iterations"),
    "keep_checkpoints_num": (int, "a number of checkpoints"),
}
_SEVERAL = "python -m rlframe.train -f {path} runs what Ray Tune does: several trials, and files of experiments"
#: Bytes of a config file.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class ConfigFile:
    """What a file says. Empty where it says nothing.

    Attributes:
        config: Config keys, nested.
        algorithm: Name of the algorithm.
        stop: Limits by their name in a result.
        checkpoint_freq: Iterations between checkpoints.
        keep_checkpoints: How many are kept.
    """

    config: dict[str, Any] = field(default_factory=dict)
    algorithm: str | None = None
    stop: dict[str, Any] = field(default_factory=dict)
    checkpoint_freq: int | None = None
    keep_checkpoints: int | None = None


def read_config_file(path: str | Path) -> ConfigFile:
    """Reads a config, out of a file or out of the text itself, which begins with `{`.

    It is a dict of config keys, or one experiment `{name: {run, env, stop, config}}`.

    Args:
        path: A `.yaml`, `.yml` or `.json` file, or the text.

    Raises:
        ConfigError: If it cannot be read, or holds something else.
    """
    if str(path).lstrip().startswith("{"):
        text, path = str(path), "--config"
    else:
        text = _read(path)
    content = parse_yaml(text, json_only=str(path).endswith(".json"), where=str(path))
    if content is None:
        return ConfigFile()
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds a {type(content).__name__}, wanted a dict of config keys")
    experiments = [value for value in content.values() if isinstance(value, dict) and "run" in value]
    if not experiments:
        return ConfigFile(config=content)
    if len(content) > 1:
        raise ConfigError(f"{path}: holds {len(content)} experiments, wanted one: {_SEVERAL.format(path=path)}")
    return _experiment(experiments[0], path)


def _read(path: str | Path) -> str:
    try:
        return read_text(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the config file {str(path)!r}: {error}") from error


def _experiment(experiment: dict[str, Any], path: str | Path) -> ConfigFile:
    beyond = sorted(set(experiment) - _EXPERIMENT_KEYS) + ["grid_search"] * _has_search(experiment)
    if beyond:
        raise ConfigError(
            f"{path}: the experiment has {', '.join(beyond)}, wanted only {', '.join(sorted(_EXPERIMENT_KEYS))}: "
            + _SEVERAL.format(path=path)
        )
    for key, (kind, words) in _EXPERIMENT_TYPES.items():
        value = experiment.get(key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ConfigError(f"{path}: {key}: got {shorten(value)}, wanted {words}")
    if experiment["run"] is None:
        raise ConfigError(f"{path}: run: got nothing, wanted the name of an algorithm")
    config = dict(experiment.get("config") or {})
    if experiment.get("env") is not None:
        config["env"] = experiment["env"]
    return ConfigFile(
        config=config,
        algorithm=experiment["run"],
        stop=dict(experiment.get("stop") or {}),
        checkpoint_freq=experiment.get("checkpoint_freq"),
        keep_checkpoints=experiment.get("keep_checkpoints_num"),
    )


def _has_search(value: Any) -> bool:
    """Returns whether there is Tune's `{grid_search: [...]}` somewhere."""
    if isinstance(value, list):
        return any(map(_has_search, value))
    return isinstance(value, dict) and ("grid_search" in value or any(map(_has_search, value.values())))
