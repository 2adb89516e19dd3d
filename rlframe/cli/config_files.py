"""YAML and JSON files with a config, or with a whole experiment as RLlib 1.x writes it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlframe.utils.errors import ConfigError

_EXPERIMENT_KEYS = {
    "run", "env", "stop", "config", "checkpoint_freq", "keep_checkpoints_num", "checkpoint_at_end"
}  # fmt: skip


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
    """Reads a config.

    The file is a dict of config keys, or one experiment `{name: {run, env, stop, config}}`.

    Args:
        path: A `.yaml`, `.yml` or `.json` file.

    Raises:
        ConfigError: If it cannot be read, or holds something else.
    """
    content = parse(_read(path), json_only=str(path).endswith(".json"), where=str(path))
    if content is None:
        return ConfigFile()
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds a {type(content).__name__}, wanted a dict of config keys")
    experiments = [value for value in content.values() if isinstance(value, dict) and "run" in value]
    if not experiments:
        return ConfigFile(config=content)
    if len(content) > 1:
        raise ConfigError(f"{path}: holds {len(content)} experiments, wanted one: give each a file of its own")
    return _experiment(experiments[0], path)


def parse(text: str, *, json_only: bool = False, where: str = "value") -> Any:
    """Returns the value that a YAML or JSON text spells, with 1e-4 a number.

    Raises:
        ConfigError: If the text is neither.
    """
    try:
        # A SafeLoader's subclass: it makes plain values only.
        return json.loads(text) if json_only else yaml.load(text, _Loader)
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{where}: cannot be read: {' '.join(str(error).split())}") from error


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file {str(path)!r}: {error}") from error


def _experiment(experiment: dict[str, Any], path: str | Path) -> ConfigFile:
    unknown = sorted(set(experiment) - _EXPERIMENT_KEYS)
    if unknown:
        raise ConfigError(
            f"{path}: the experiment has {', '.join(unknown)}, wanted only {', '.join(sorted(_EXPERIMENT_KEYS))}: "
            "use ray.tune for anything beyond one run"
        )
    config = dict(experiment.get("config") or {})
    if experiment.get("env") is not None:
        config["env"] = experiment["env"]
    return ConfigFile(
        config=config,
        algorithm=str(experiment["run"]),
        stop=dict(experiment.get("stop") or {}),
        checkpoint_freq=experiment.get("checkpoint_freq"),
        keep_checkpoints=experiment.get("keep_checkpoints_num"),
    )


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but for numbers: there 1e-4 and 1e6 are texts, and everybody means numbers."""


_FLOAT = re.compile(r"[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# After the resolver of integers, so that those stay integers.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT.pattern})$"), list("-+0123456789."))
