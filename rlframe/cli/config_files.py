"""YAML and JSON files with a config, or with a whole experiment as RLlib 1.x writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlframe.config.faults import shorten
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import MOST_DEPTH, check_plain, parse_json, read_text

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
#: Bytes of a config file, and values that one may stand for.
_MOST_BYTES = 1 << 20
_MOST_NODES = 100_000


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
        value = parse_json(text) if json_only else yaml.load(text, _Loader)
        check_plain(value)
        return value
    except RecursionError:
        raise ConfigError(f"{where}: cannot be read: it nests deeper than {MOST_DEPTH} levels") from None
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        raise ConfigError(f"{where}: cannot be read: {' '.join(str(error).split())}") from error


def _read(path: str | Path) -> str:
    try:
        return read_text(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the config file {str(path)!r}: {error}") from error


def _experiment(experiment: dict[str, Any], path: str | Path) -> ConfigFile:
    unknown = sorted(set(experiment) - _EXPERIMENT_KEYS)
    if unknown:
        raise ConfigError(
            f"{path}: the experiment has {', '.join(unknown)}, wanted only {', '.join(sorted(_EXPERIMENT_KEYS))}: "
            "use ray.tune for anything beyond one run"
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


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but for numbers: there 1e-4 and 1e6 are texts, and everybody means numbers.

    References (`*name`) count with all that they stand for: a few lines of them can stand for more than memory holds.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = self._size = 0
        self._sizes: dict[str, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Returns the next node, after counting what it stands for."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        begun = self._size
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self.anchors and event.anchor not in self._sizes:
                raise yaml.YAMLError(f"*{event.anchor} stands for something that it is a part of")
            self._size += self._sizes.get(str(event.anchor), 1)
        else:
            self._size += 1
        self._depth += 1
        if self._size > _MOST_NODES or self._depth > MOST_DEPTH:
            raise yaml.YAMLError(f"it stands for more than {_MOST_NODES:,} values, or nests deeper than {MOST_DEPTH}")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if getattr(event, "anchor", None) is not None:
            self._sizes[event.anchor] = self._size - begun
        return node


_FLOAT = re.compile(r"[-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*|\d[\d_]*)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# After the resolver of integers, so that those stay integers.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT.pattern})$"), list("-+0123456789."))
