"""A trainer made from a checkpoint alone: its algorithm, config and environment, and then its state."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.config.convert import kinds_of
from rlframe.config.nested_dict import overlay
from rlframe.trainer import tune_registry
from rlframe.trainer.checkpoint_paths import resolve_path
from rlframe.utils import names
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.files import read_json
from rlframe.utils.state_files import MOST_STRUCTURE_BYTES, STRUCTURE

if TYPE_CHECKING:
    import os

    from rlframe.config.declaration import Section

_LOGGER = logging.getLogger("rlframe")
_ADVICE = "Give the object itself, env=... or config={...}; if you trust the file: trust=True"
#: Keys that the program gives, or nobody: a checkpoint has the environment's name beside the config, and no code.
_NOT_TAKEN = ("env", "callbacks")


def rebuild(
    cls: type[Any] | None, path: str | os.PathLike[str], config: Mapping[str, Any] | None, env: Any, trust: bool
) -> Any:
    """Returns a trainer that goes on from a checkpoint; see `Trainer.from_checkpoint`.

    Args:
        cls: The trainer class; None takes the built-in one of the checkpoint's algorithm.
        path: As there, and so are the others.
        config: What differs from the checkpoint's.
        env: The environment, where its name does not find it.
        trust: Whether classes that the checkpoint names are imported.
    """
    directory = _newest(Path(path))
    meta = read_description(directory)
    given = dict(config or {})
    env = given.pop("env", None) if env is None else env
    saved = {key: value for key, value in meta["config"].items() if key not in _NOT_TAKEN}
    _warn_of_callbacks(meta["config"], given, directory)
    source = f"checkpoint {str(directory)!r}"
    gate = names.trusting() if trust else names.from_file(source, _ADVICE, names.texts_in([given, env]))
    with gate:
        trainer_class = _class_of(cls, meta["algorithm"], directory)
        try:
            saved = _without_spaces_as_text(_with_infinities(saved, trainer_class._config_class))
            trainer = trainer_class(overlay(saved, given), env=_env(meta["env"]) if env is None else env)
        except ConfigError as error:
            raise CheckpointError(
                f"{source} has a config that cannot be taken over, for it holds no code: {error}\n"
                "Give what is wrong by from_checkpoint(..., config={...})"
            ) from error
        try:
            trainer.restore(str(directory), trust=trust)
        except BaseException:
            trainer.stop()
            raise
    return trainer


def read_description(directory: Path) -> dict[str, Any]:
    """Returns what a checkpoint says about itself: algorithm, env, config, spaces.

    Raises:
        CheckpointError: If it is missing or damaged.
    """
    try:
        meta = read_json(directory / STRUCTURE, MOST_STRUCTURE_BYTES)["meta"]
        return {**meta, "algorithm": str(meta["algorithm"]), "env": str(meta["env"]), "config": dict(meta["config"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{str(directory)!r} is no checkpoint: wanted what trainer.save() returned "
            f"({type(error).__name__}: {error})"
        ) from error


def _newest(path: Path) -> Path:
    """Returns a checkpoint's directory: itself, or the newest of a run of the command line."""
    if not (path / "checkpoints").is_dir():
        return Path(resolve_path(str(path)))
    found = [each for each in (path / "checkpoints").iterdir() if re.fullmatch(r"checkpoint_\d{6,}", each.name)]
    if not found:
        raise CheckpointError(f"{str(path)!r} has no checkpoint yet")
    return max(found, key=lambda each: int(each.name.partition("_")[2]))


def _class_of(cls: type[Any] | None, algorithm: str, directory: Path) -> type[Any]:
    """Returns the class that was asked for, or the built-in one of the checkpoint's algorithm where none was."""
    if cls is not None:
        if algorithm not in (cls._name, "Trainer"):
            raise CheckpointError(
                f"checkpoint {str(directory)!r} is of algorithm {algorithm!r}, wanted {cls._name!r}: call "
                "Trainer.from_checkpoint, or that of the class that saved it"
            )
        return cls
    found: type[Any] | None = tune_registry.find_trainer_class(algorithm)
    if found is None:
        raise CheckpointError(
            f"checkpoint {str(directory)!r} is of {algorithm}, which is no algorithm of rlframe's: call "
            "from_checkpoint of the class that saved it"
        )
    return found


def _env(name: str) -> str | None:
    return None if name == "None" else name


def _warn_of_callbacks(saved: Mapping[str, Any], given: Mapping[str, Any], directory: Path) -> None:
    if saved.get("callbacks") is not None and "callbacks" not in given:
        _LOGGER.warning(
            "checkpoint %r was saved with callbacks %s; a checkpoint holds no code: give them by "
            "config={'callbacks': ...}",
            str(directory),
            saved["callbacks"],
        )


def _with_infinities(saved: dict[str, Any], declaration: type[Section]) -> dict[str, Any]:
    """Returns the config with infinity where JSON, which has none, says None for a number."""
    annotations = declaration.annotations()
    return {
        key: math.inf if value is None and _is_number(annotations.get(key)) else value for key, value in saved.items()
    }


def _without_spaces_as_text(saved: dict[str, Any]) -> dict[str, Any]:
    """Returns the config with None for the spaces of `multiagent.policies`: the environment gives them again.

    That they are the same is looked at when the state is restored.
    """
    multiagent = saved.get("multiagent")
    policies = multiagent.get("policies") if isinstance(multiagent, Mapping) else None
    if not isinstance(multiagent, Mapping) or not isinstance(policies, Mapping):
        return saved
    table = {pid: _without_spaces(spec) if isinstance(spec, list) else spec for pid, spec in policies.items()}
    return {**saved, "multiagent": {**multiagent, "policies": table}}


def _without_spaces(spec: list[Any]) -> list[Any]:
    return [None if number in (1, 2) and isinstance(part, str) else part for number, part in enumerate(spec)]


def _is_number(annotation: Any) -> bool:
    kinds = kinds_of(annotation)
    return float in kinds and type(None) not in kinds
