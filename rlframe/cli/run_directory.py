"""What a run leaves behind, and how it is found again."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rlframe.cli.patience import Patience
from rlframe.cli.stop import StopCriterion
from rlframe.config.faults import shorten
from rlframe.trainer.checkpoint_paths import noted_directory, resolve_path
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.files import is_inside, read_json
from rlframe.utils.run_lock import LOCK_FILE
from rlframe.utils.state_files import MOST_STRUCTURE_BYTES

RUN_FILE = "run.json"
CHECKPOINTS = "checkpoints"
#: Where the checkpoint with the best mean return is.
BEST = "best"
#: Where runs go that are not told where.
RUNS = "runs"

_SCHEMA = 1
_MOST_ITERATIONS = 1 << 62
_CHECKPOINT_NAME = re.compile(r"checkpoint_(\d{6,})")


@dataclass(frozen=True)
class RunSpec:
    """What a run was asked for: with its checkpoints, all that is needed to go on.

    Attributes:
        algorithm: Name, or "module:Class".
        env: Name of the environment.
        config: What differs from the algorithm's defaults; plain values.
        stop: What ends it.
        checkpoint_freq: Iterations between checkpoints; 0 writes only the last.
        keep_checkpoints: How many are kept; 0 keeps all.
        keep_best: Whether the checkpoint with the best mean return is kept beside them.
        patience: What happens when returns no longer rise.
        history: Path of a Parquet file that gets a row for each iteration, None for none.
        monitors: Where else results go: "wandb", "mlflow", "tensorboard".
    """

    algorithm: str
    env: str
    config: dict[str, Any] = field(default_factory=dict)
    stop: StopCriterion = field(default_factory=StopCriterion)
    checkpoint_freq: int = 10
    keep_checkpoints: int = 2
    keep_best: bool = True
    patience: Patience = field(default_factory=Patience)
    history: str | None = None
    monitors: tuple[str, ...] = ()

    def write(self, directory: Path) -> None:
        """Writes `run.json`, whole or not at all."""
        temporary = directory / f"{RUN_FILE}.tmp"
        content = {"schema": _SCHEMA, **asdict(self), "stop": self.stop.limits(), "patience": self.patience.to_dict()}
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        temporary.replace(directory / RUN_FILE)

    @classmethod
    def read(cls, directory: Path) -> RunSpec:
        """Returns what `run.json` says.

        Raises:
            CheckpointError: If it is missing or damaged.
        """
        path = directory / RUN_FILE
        if not os.path.lexists(path):
            raise CheckpointError(f"{str(directory)!r} is no run directory: it has no {RUN_FILE}")
        try:
            content = read_json(path, infinite=True)
            schema = content.pop("schema", None)
            if schema != _SCHEMA:
                raise CheckpointError(f"{str(path)!r} has schema {schema!r}, wanted {_SCHEMA}")
            _check_fields(content)
            content["stop"] = StopCriterion.from_dict(content["stop"])
            content["patience"] = Patience(**content.get("patience", {}))
            content["monitors"] = tuple(content.get("monitors", ()))
            return cls(**content)
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            if isinstance(error, CheckpointError):
                raise
            said = getattr(error, "strerror", None) or error
            raise CheckpointError(f"{str(path)!r} is damaged: {said}") from error

    def with_stop(self, stop: StopCriterion) -> RunSpec:
        """Returns the spec with another criterion, if that sets any limit."""
        return replace(self, stop=self.stop.updated(stop))


#: What the fields of `run.json` are: types, and in words.
_FIELDS: dict[str, tuple[Any, str]] = {
    "algorithm": (str, "a text"),
    "env": (str, "a text"),
    "config": (dict, "an object"),
    "stop": (dict, "an object"),
    "checkpoint_freq": (int, "a number >= 0"),
    "keep_checkpoints": (int, "a number >= 0"),
    "keep_best": (bool, "true or false"),
    "patience": (dict, "an object"),
    "history": ((str, type(None)), "a text or null"),
    "monitors": (list, "a list of texts"),
}


def _check_fields(content: dict[str, Any]) -> None:
    """Raises a ValueError where a field has another type."""
    for name, value in content.items():
        kind, words = _FIELDS.get(name, (object, ""))
        fits = isinstance(value, kind) and (kind is not int or (type(value) is int and 0 <= value < _MOST_ITERATIONS))
        if name == "monitors":
            fits = fits and all(isinstance(monitor, str) for monitor in value)
        if name == "patience":
            fits = fits and all(type(limit) in (int, float) for limit in value.values())
        if not fits:
            raise ValueError(f"{name} is {shorten(value)}, wanted {words}")


def strange_entries(directory: Path) -> list[str]:
    """Returns what lies in a run directory that no run writes: links that lead outside, pipes, devices.

    Written through, they would change files elsewhere, or wait for ever.
    """
    strange = []
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        plain = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
        if not plain and not (entry.is_symlink() and is_inside(Path(entry.path), directory)):
            strange.append(entry.name)
    return strange


def make_run_directory(algorithm: str, env: str, wanted: Path | None = None) -> Path:
    """Makes the directory of a new run.

    Args:
        algorithm: Name of the algorithm.
        env: Name of the environment.
        wanted: The directory itself; None makes `runs/<algorithm>_<env>_<date>_<time>`.

    Raises:
        ConfigError: If there is a run in it already, or it cannot be made or written.
    """
    directory = wanted or _fresh_name(algorithm, env)
    if (directory / RUN_FILE).exists():
        raise ConfigError(
            f"--run-dir: {str(directory)!r} holds a run already: go on with it by `--resume {directory}`, or name "
            "another directory"
        )
    try:
        (directory / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        probe = directory / f".{os.getpid()}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"the run directory {str(directory)!r} cannot be written: {error}") from error
    return directory


def remove_if_unused(directory: Path) -> None:
    """Removes a run directory in which nothing was started yet; a user's own files in it stay."""
    if (directory / RUN_FILE).exists():
        return
    for name in ("params.json", "result.jsonl", "progress.csv", LOCK_FILE):
        (directory / name).unlink(missing_ok=True)
    for path in (directory / CHECKPOINTS, directory):
        with contextlib.suppress(OSError):  # not empty: the user's own
            path.rmdir()


def checkpoints(directory: Path, kind: str = CHECKPOINTS) -> list[Path]:
    """Returns the checkpoints of a run, newest first: periodic ones, or those of kind `BEST`."""
    found = [path for path in (directory / kind).glob("checkpoint_*") if iteration_of(path) is not None]
    return sorted(found, key=lambda path: iteration_of(path) or 0, reverse=True)


def iteration_of(checkpoint: Path) -> int | None:
    """Returns the iteration in a checkpoint's name; None for anything else."""
    match = _CHECKPOINT_NAME.fullmatch(checkpoint.name)
    return int(match[1]) if match else None


def prune(directory: Path, keep: int) -> None:
    """Removes all but the newest periodic checkpoints of a run.

    Args:
        directory: The run directory.
        keep: How many stay; 0 keeps all.
    """
    for path in checkpoints(directory)[keep:] if keep > 0 else []:
        shutil.rmtree(path, ignore_errors=True)


def remove_unfinished(directory: Path) -> None:
    """Removes what a process left in a run directory that was killed while it saved. Nobody may train there."""
    for kind in (CHECKPOINTS, BEST):
        for path in (directory / kind).glob(".checkpoint_*.new-*"):
            shutil.rmtree(path, ignore_errors=True)


def save_into(trainer: Any, parent: Path) -> Path:
    """Writes a checkpoint of a trainer's below a directory, and returns the checkpoint's own."""
    path = Path(trainer.save(str(parent)))
    return parent / path.relative_to(parent).parts[0]


def directory_of(path: Path) -> Path:
    """Returns the directory of a checkpoint for the path in it that `Trainer.save` returned; anything else as it is."""
    return Path(resolve_path(str(path))) if path.is_file() or noted_directory(str(path)) else path


def restore_newest(trainer: Any, directory: Path, warn: Callable[[str], None], kind: str = CHECKPOINTS) -> Path:
    """Restores the newest checkpoint that can be loaded, and returns it.

    Args:
        trainer: A trainer of the run's algorithm.
        directory: The run directory.
        warn: Is told of each checkpoint that was passed over.
        kind: `CHECKPOINTS` or `BEST`.

    Raises:
        CheckpointError: If there is none, or none can be loaded.
    """
    found = checkpoints(directory, kind)
    if not found:
        raise CheckpointError(f"{str(directory)!r} has no {'best ' if kind == BEST else ''}checkpoint yet")
    for path in found:
        try:
            trainer.restore(str(path))
        except CheckpointError as error:
            if path == found[-1]:
                raise
            warn(f"{path.name} is passed over for the one before it: {error}")
        else:
            return path
    raise AssertionError("unreachable: the last one returns or raises")


def describe_checkpoint(checkpoint: Path) -> RunSpec:
    """Returns the algorithm, environment and config that a checkpoint itself names.

    For checkpoints that a program saved outside a run directory.

    Raises:
        CheckpointError: If it is missing or damaged.
    """
    resolve_path(str(checkpoint))  # says so where it is one of RLlib's
    path = checkpoint / "state.json"
    try:
        meta = read_json(path, MOST_STRUCTURE_BYTES)["meta"]
        named = {"algorithm": meta["algorithm"], "env": meta["env"], "config": meta["config"]}
        _check_fields(named)
        return RunSpec(**named)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{str(checkpoint)!r} is neither a run directory nor a checkpoint: wanted a directory with {RUN_FILE}, or "
            f"what trainer.save() returned ({type(error).__name__}: {error})"
        ) from error


def _fresh_name(algorithm: str, env: str) -> Path:
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    name = re.sub(r"[^\w.-]+", "-", f"{algorithm}_{env}_{stamp}")
    directory, number = Path(RUNS, name), 1
    while directory.exists():
        number += 1
        directory = Path(RUNS, f"{name}_{number}")
    return directory
