"""Datasets made by D4RL's recipe: a policy is trained, checkpoints of it are judged, and what they do is recorded."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import yaml

from rlframe.cli.data_recording import Recorder, Recording
from rlframe.cli.run_directory import RUN_FILE, RunSpec, checkpoints
from rlframe.data.columns import N_STEPS, T
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline.datasets import FORMATS, make_writer, read_dataset
from rlframe.trainer.loggers import read_results
from rlframe.utils.errors import ConfigError, DataError
from rlframe.version import __version__

LEVELS = ("random", "medium", "medium-replay", "expert", "medium-expert")
MANIFEST = "manifest.yaml"
#: Below the dataset's directory: the run that trains the policy, what it sampled, and what is being recorded.
TRAINING, LOG, _UNFINISHED = "training", "training_rows", "unfinished"
#: Checkpoints that a training leaves, about, and episodes by which each is judged.
_CHECKPOINTS, JUDGING_EPISODES = 20, 10


@dataclass(frozen=True)
class MakeRequest:
    """What dataset is wanted.

    Attributes:
        level: One of `LEVELS`.
        rows: How many, about: episodes are whole.
        seed: Of training and recording.
        kind: Format, one of `datasets.FORMATS`.
        source: A run or checkpoint whose policies record; None trains.
        spec: What is trained, or was.
    """

    level: str
    rows: int
    seed: int
    kind: str
    source: str | None
    spec: RunSpec = field(repr=False)

    def __post_init__(self) -> None:
        """Refuses what there is no recipe for."""
        if self.level not in LEVELS:
            raise ConfigError(f"--level: got {self.level!r}, wanted one of {', '.join(LEVELS)}")
        if self.kind not in FORMATS:
            raise ConfigError(f"--format: got {self.kind!r}, wanted one of {', '.join(FORMATS)}")
        if self.level == "medium-replay" and self.source is not None:
            raise ConfigError(
                "--level medium-replay is what a training samples until its policy is medium; leave --from out, so "
                "that one is trained and what it samples is kept"
            )
        n_step = self.spec.config.get("n_step", 1)
        if self.level == "medium-replay" and n_step != 1:
            raise ConfigError(f"--level medium-replay: got n_step={n_step}, wanted rows of single steps: --n-step 1")

    @property
    def trains(self) -> bool:
        """Whether a policy is to be trained."""
        return self.source is None and self.level != "random"

    def to_dict(self) -> dict[str, Any]:
        """Returns the request as plain values, by which the same one is known again."""
        spec = {"algorithm": self.spec.algorithm, "env": self.spec.env, "config": _plain(self.spec.config)}
        steps = self.spec.stop.timesteps_total if self.trains else None
        named = {name: value for name, value in asdict(self).items() if name != "spec"}
        return {**spec, "train_steps": steps, **named}


def training_spec(request: MakeRequest, directory: Path) -> RunSpec:
    """Returns the run that trains the policy: with checkpoints all along, and with a log where its rows are wanted."""
    from rlframe.cli.algorithms import find_trainer_class

    spec = request.spec
    whole = {**find_trainer_class(spec.algorithm).get_default_config(), **spec.config}
    per_iteration = int(whole.get("timesteps_per_iteration") or whole.get("train_batch_size") or 1000)
    steps = int(spec.stop.timesteps_total or 0)
    config = {**spec.config, "seed": request.seed, "num_workers": 0}
    if request.level == "medium-replay":
        config |= {"output": str(directory / LOG), "output_config": {"format": "json"}, "output_compress_columns": []}
    freq = max(1, steps // per_iteration // _CHECKPOINTS)
    return replace(spec, config=config, checkpoint_freq=freq, keep_checkpoints=0, keep_best=False)


def begin(request: MakeRequest, directory: Path) -> dict[str, Any] | None:
    """Makes the directory, or looks whether what is in it is of the same request.

    Returns:
        The manifest where the dataset is finished; None where there is something left to do.

    Raises:
        ConfigError: If something else is in the directory.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigError(
                f"--out: {str(directory)!r} is not empty, and no dataset is being made there; name another"
            )
        directory.mkdir(parents=True, exist_ok=True)
        _write_manifest(directory, {"request": request.to_dict(), "finished": False})
        return None
    wanted, found = request.to_dict(), manifest["request"]
    differing = [key for key in wanted if wanted[key] != found.get(key)]
    if differing:
        key = differing[0]
        raise ConfigError(
            f"--out: {str(directory)!r} has a dataset of another request: {key} is {found.get(key)!r} there, and "
            f"{wanted[key]!r} here; name another directory"
        )
    return manifest if manifest["finished"] else None


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Returns what a dataset's manifest says; None where there is none.

    Raises:
        ConfigError: If it is damaged.
    """
    path = directory / MANIFEST
    if not path.is_file():
        return None
    try:
        made = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert isinstance(made["request"], dict)
        assert isinstance(made["finished"], bool)
    except (yaml.YAMLError, TypeError, KeyError, AssertionError) as error:
        raise ConfigError(f"{path}: got no manifest of a dataset ({error!r}); remove the directory") from error
    return dict(made)


def cut_log(directory: Path) -> None:
    """Cuts the log of a training that goes on to the rows before its checkpoint; those behind are sampled again."""
    results = read_results(directory / TRAINING)
    left = int(results[-1].get("timesteps_total") or 0) if results else 0
    for path in _in_order(directory / LOG):
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            rows = sum(batch.count for batch in _batches(line)) if left > 0 and line.endswith("\n") else 0
            if not 0 < rows <= left:
                left = 0
                break
            kept.append(line)
            left -= rows
        path.write_text("".join(kept), encoding="utf-8") if kept else path.unlink()


def _batches(line: str) -> Iterator[SampleBatch]:
    from rlframe.offline.json_format import from_line

    batch = from_line(line)
    assert isinstance(batch, SampleBatch)
    yield batch


def _in_order(directory: Path) -> list[Path]:
    from rlframe.offline.data_files import find_files

    return [Path(path) for path in find_files(str(directory))] if any(directory.glob("*.json")) else []


@dataclass(frozen=True)
class Judged:
    """A checkpoint and what its policy reaches.

    Attributes:
        path: The checkpoint; None is the policy that acts at random.
        steps: Env steps that it was trained for.
        mean_return: Of `JUDGING_EPISODES` episodes, acting as in training, in reward units of the environment.
    """

    path: Path | None
    steps: int
    mean_return: float


def judged_checkpoints(recorder: Recorder, run: Path) -> list[Judged]:
    """Returns the checkpoints of a run with what they reach, oldest first."""
    steps = {int(row["training_iteration"]): int(row.get("timesteps_total") or 0) for row in read_results(run)}
    made = []
    for path in reversed(checkpoints(run)):
        mean = recorder.mean_return(path, JUDGING_EPISODES)
        made.append(Judged(path, steps.get(int(path.name.rpartition("_")[2]), 0), mean))
    return made


def medium_of(found: Sequence[Judged], at_random: float) -> Judged:
    """Returns the checkpoint nearest to a third of the way from acting at random to the last one.

    Raises:
        DataError: If the last one is not better than chance, or none is nearer to that than chance and the last are.
    """
    expert = found[-1].mean_return
    told = ", ".join(f"{judged.mean_return:.4g} after {judged.steps:,}" for judged in found)
    if expert <= at_random:
        raise DataError(
            f"the trained policy's mean return is {expert:.4g}, and that of random actions {at_random:.4g}: it has "
            f"learned nothing; train it for longer (--train-steps) or otherwise. Checkpoints: {told}"
        )
    third = (expert - at_random) / 3
    medium = min(found[:-1], key=lambda judged: abs(judged.mean_return - at_random - third), default=None)
    if medium is None or abs(medium.mean_return - at_random - third) >= third:
        raise DataError(
            f"no checkpoint is medium: wanted a mean return near {at_random + third:.4g}, a third of the way from "
            f"{at_random:.4g} (random) to {expert:.4g} (the last), got {told}; keep more checkpoints "
            "(--checkpoint-freq 1 --keep-checkpoints 0 of `rlframe train`)"
        )
    return medium


def record(request: MakeRequest, directory: Path, run: Path | None) -> dict[str, Any]:
    """Records what a request asks for; returns the manifest.

    Args:
        request: The request.
        directory: Where the dataset is made; see `begin`.
        run: A run directory, or one checkpoint; None where actions are random.
    """
    unfinished = directory / _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    said: dict[str, Any] = {}
    if request.level == "random" or run is None:
        parts: dict[str, Path | None] = {"random": None}
    elif not (run / RUN_FILE).exists():
        parts = dict.fromkeys([request.level], run)
        if request.level == "medium-expert":
            raise ConfigError(f"--from: got the checkpoint {str(run)!r}, wanted a run with several for medium-expert")
    else:
        parts, said = _chosen(request, run)
    recordings = {}
    for number, (part, checkpoint) in enumerate(parts.items()):
        rows = request.rows // len(parts) + (number < request.rows % len(parts))
        if request.level == "medium-replay":
            recordings[part] = _replay(request, directory, said["medium"]["steps"], unfinished / part)
        else:
            with Recorder(request.spec, request.seed, part) as recorder:
                recordings[part] = recorder.record(checkpoint, rows, unfinished / part, request.kind)
    files = _move(unfinished, directory, list(recordings))
    manifest = _manifest(request, said, recordings, files)
    _write_manifest(directory, manifest)
    return manifest


def _chosen(request: MakeRequest, run: Path) -> tuple[dict[str, Path | None], dict[str, Any]]:
    """Returns the checkpoint of each part, and what the manifest says of the choice."""
    with Recorder(request.spec, request.seed, "judge") as recorder:
        at_random = recorder.mean_return(None, JUDGING_EPISODES)
        found = judged_checkpoints(recorder, run)
    if not found:
        raise ConfigError(f"{str(run)!r} has no checkpoint yet; train it first")
    said: dict[str, Any] = {
        "judged_by_episodes": JUDGING_EPISODES,
        "random": {"mean_return": at_random},
        "checkpoints": [{"steps": judged.steps, "mean_return": judged.mean_return} for judged in found],
        "expert": {"steps": found[-1].steps, "mean_return": found[-1].mean_return},
    }
    parts: dict[str, Path | None] = {}
    if request.level != "expert":
        medium = medium_of(found, at_random)
        parts["medium"] = medium.path
        said["medium"] = {"steps": medium.steps, "mean_return": medium.mean_return}
    if "expert" in request.level:
        parts["expert"] = found[-1].path
    return ({"medium-replay": None} if request.level == "medium-replay" else parts), said


def _replay(request: MakeRequest, directory: Path, steps: int, target: Path) -> Recording:
    """Writes what a training sampled in its first steps, of more rows than wanted the last episodes."""
    rows: SampleBatch = SampleBatch.concat_samples(list(read_dataset(str(directory / LOG))))[:steps]
    if N_STEPS in rows and (np.asarray(rows[N_STEPS]) > 1).any():
        raise DataError("--level medium-replay: got rows with sums of several rewards; train with --n-step 1")
    begins = np.flatnonzero(np.asarray(rows[T]) == 0)
    first = int(begins[begins >= max(rows.count - request.rows, 0)][:1].sum()) if rows.count > request.rows else 0
    writer = make_writer(str(target), request.kind, actions_normalized=True)
    made = Recording()
    for part in made.take([rows[first:]], rows.count):
        writer.write(part)
    writer.close()  # type: ignore[attr-defined]  # each of these has it
    return made


def _move(unfinished: Path, directory: Path, parts: Sequence[str]) -> list[dict[str, str]]:
    """Gives files that are whole their places and names; returns each one's name and the SHA-256 of its bytes."""
    from rlframe.offline.data_files import find_files

    files = []
    for part in parts:
        for number, path in enumerate(find_files(str(unfinished / part))):
            name = f"{part}-{number}{Path(path).suffix}"
            os.replace(path, directory / name)
            digest = hashlib.sha256((directory / name).read_bytes()).hexdigest()
            files.append({"name": name, "sha256": digest})
    shutil.rmtree(unfinished)
    return files


def _manifest(
    request: MakeRequest, said: Mapping[str, Any], recordings: Mapping[str, Recording], files: list[dict[str, str]]
) -> dict[str, Any]:
    versions = {"rlframe": __version__, "gymnasium": gymnasium.__version__, "numpy": np.__version__,
                "python": platform.python_version()}  # fmt: skip
    if "torch" in sys.modules:
        versions["torch"] = str(sys.modules["torch"].__version__)
    parts = {name: made.to_dict() for name, made in recordings.items()}
    return {
        "request": request.to_dict(), "finished": True, "rows": sum(made.rows for made in recordings.values()),
        "parts": parts, **said, "files": files, "versions": versions,
    }  # fmt: skip


def _write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Writes the manifest whole or not at all."""
    temporary = directory / f"{MANIFEST}.tmp"
    temporary.write_text(yaml.safe_dump(dict(manifest), sort_keys=False), encoding="utf-8")
    temporary.replace(directory / MANIFEST)


def _plain(value: Any) -> Any:
    """Returns a config as YAML gives it back."""
    return yaml.safe_load(yaml.safe_dump(_without_tuples(value)))


def _without_tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_tuples(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_tuples(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


__all__ = ["LEVELS", "LOG", "MANIFEST", "TRAINING", "MakeRequest", "begin", "cut_log", "record", "training_spec"]
