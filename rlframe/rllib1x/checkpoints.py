"""Checkpoints of RLlib 1.9 to 1.13, read without executing what is in them, into trainers of this package.

A checkpoint of RLlib's is a file `checkpoint-N` and, beside it, `checkpoint-N.tune_metadata`. The first holds the
pickled state of the worker: for each policy weights, observation filter, optimiser, and the policy's class as code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.config.faults import shorten
from rlframe.offline.array_pickles import MOST_BYTES
from rlframe.rllib1x.pickled_state import Plain, Unread, read_pickle
from rlframe.trainer.checkpoint_paths import is_pointer
from rlframe.trainer.checkpointing import apply, gather
from rlframe.utils.errors import CheckpointError, DataError
from rlframe.utils.files import read_bytes

_NAME = re.compile(r"checkpoint-(\d+)")
_COUNTERS = frozenset({
    "num_steps_sampled", "num_agent_steps_sampled", "num_steps_trained", "num_agent_steps_trained",
    "last_target_update_ts", "num_target_updates",
})  # fmt: skip
_LARGEST = 2**63
#: Characters of the longest name of a layer.
_LONGEST = 500


@dataclass(frozen=True)
class RLlibCheckpoint:
    """What a checkpoint of RLlib 1.9 to 1.13 holds that can be read.

    Attributes:
        path: The file.
        weights: By policy id, `{RLlib's name: array}`; a list of arrays of eager TensorFlow policies.
        filters: By policy id, the state of the observation filter as `MeanStdFilter.set_state` takes it; None for none.
        timesteps: By policy id, the env steps that its schedules count.
        counters: RLlib's counters, such as `num_steps_sampled`, in env steps.
        iteration: Iterations trained.
        episodes: Episodes sampled.
        time_s: Seconds trained.
        not_run: Names of classes and functions in the file; nothing of them was imported or called.
    """

    path: str
    weights: dict[str, Any]
    filters: dict[str, dict[str, Any] | None]
    timesteps: dict[str, int]
    counters: dict[str, int]
    iteration: int
    episodes: int = 0
    time_s: float = 0.0
    not_run: tuple[str, ...] = field(default=(), repr=False)


def is_rllib_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Returns whether this is a file `checkpoint-N`, or a directory with one."""
    return bool(_files_of(Path(path)))


def _files_of(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    return [file for file in found if _NAME.fullmatch(file.name) and file.is_file() and not is_pointer(file)]


def read_checkpoint(path: str | os.PathLike[str]) -> RLlibCheckpoint:
    """Reads a checkpoint of RLlib 1.9 to 1.13.

    Nothing that the file names is imported or called: it may come from anybody.

    Args:
        path: The file `checkpoint-N`, or the directory that has it.

    Raises:
        CheckpointError: If there is none, or it is damaged, or its weights or filters are no arrays.
    """
    files = _files_of(Path(path))
    if len(files) != 1:
        said = f"{len(files)} of them" if files else "none"
        raise CheckpointError(
            f"{os.fspath(path)!r}: wanted RLlib's file checkpoint-N or a directory with one, got {said}"
        )
    try:
        return _read(files[0])
    except (DataError, OSError) as error:
        raise CheckpointError(
            f"{str(files[0])!r} is no checkpoint of RLlib 1.9 to 1.13 that can be read: {error}"
        ) from error


def _read(file: Path) -> RLlibCheckpoint:
    data = read_bytes(file, MOST_BYTES)
    plain = Plain(len(data))
    outer, names = read_pickle(data)
    worker = _part(outer, "worker", (bytes, bytearray), "the checkpoint")
    inner, inner_names = read_pickle(bytes(worker))
    states = _part(inner, "state", dict, "the worker's state")
    if not states or not all(isinstance(pid, str) and isinstance(state, dict) for pid, state in states.items()):
        raise DataError("the worker's state has no policies by name")
    filters = _part(inner, "filters", dict, "the worker's state")
    metrics = outer.get("train_exec_impl")
    counters = metrics.get("counters", {}) if isinstance(metrics, dict) else {}
    about = _metadata(file)
    timesteps = {
        pid: _count(plain(state.get("global_timestep", 0), "global_timestep")) for pid, state in states.items()
    }
    counts = {name: _count(plain(counters.get(name, 0), name)) for name in sorted(_COUNTERS)}
    # Without counters, as in RLlib 1.13, the steps are those that the schedules count.
    counts["num_steps_sampled"] = max(
        counts["num_steps_sampled"] or _count(about.get("timesteps_total", 0)), *timesteps.values()
    )
    return RLlibCheckpoint(
        path=str(file),
        weights={
            pid: _weights(plain(state.get("weights"), f"weights of {pid!r}"), pid) for pid, state in states.items()
        },
        filters={pid: _filter(filters.get(pid), plain, f"the filter of {pid!r}") for pid in states},
        timesteps=timesteps,
        counters=counts,
        iteration=_count(about.get("iteration", int(file.name.partition("-")[2]))),
        episodes=_count(about.get("episodes_total", 0)),
        time_s=_seconds(about.get("time_total", 0.0)),
        not_run=tuple(sorted(names | inner_names)),
    )


def _part(whole: Any, key: str, kind: Any, what: str) -> Any:
    """Returns a part of a dict, of a kind.

    Raises:
        DataError: If there is none, which names what made it.
    """
    if isinstance(whole, Unread):
        raise DataError(f"{what} is made by {whole.name}, which is not run; wanted a dict")
    part = whole.get(key) if isinstance(whole, dict) else None
    if isinstance(part, Unread):
        raise DataError(f"{key!r} of {what} is made by {part.name}, which is not run")
    if not isinstance(part, kind):
        raise DataError(f"{what} has no {key!r}, as RLlib 1.9 wrote it")
    return part


def _metadata(file: Path) -> dict[str, Any]:
    """Returns what Tune wrote beside a checkpoint; nothing where it was left behind."""
    beside = file.with_name(f"{file.name}.tune_metadata")
    if not beside.is_file():
        return {}
    data = read_bytes(beside, 1 << 20)
    about = read_pickle(data)[0]
    if not isinstance(about, dict):
        raise DataError(f"{beside.name} holds a {type(about).__name__}, wanted a dict")
    # RLlib 1.13 put the last result beside these, with its config.
    keys = ("iteration", "timesteps_total", "episodes_total", "time_total")
    return {key: Plain(len(data))(about[key], key) for key in keys if about.get(key) is not None}


def _weights(weights: Any, pid: str) -> Any:
    if isinstance(weights, dict) and not all(isinstance(name, str) and len(name) <= _LONGEST for name in weights):
        raise DataError(f"weights of {pid!r} have names that no layers have")
    arrays = weights.values() if isinstance(weights, dict) else weights if isinstance(weights, list) else ()
    if not len(arrays) or not all(isinstance(array, (np.ndarray, np.generic)) for array in arrays):
        raise DataError(f"weights of {pid!r} are no arrays by name")
    if any(np.asarray(array).dtype.kind not in "fiub" or not np.isfinite(array).all() for array in arrays):
        raise DataError(f"weights of {pid!r} hold what is no finite number")
    return weights


def _filter(made: Any, plain: Plain, what: str) -> dict[str, Any] | None:
    """Returns the state of a filter of RLlib's as `MeanStdFilter.set_state` takes it; None for none."""
    kind = made.name.rpartition(".")[2] if isinstance(made, Unread) else type(made).__name__
    if made is None or kind == "NoFilter":
        return None
    if kind not in ("MeanStdFilter", "ConcurrentMeanStdFilter") or not isinstance(made.state, dict):
        raise DataError(f"{what} is a {kind}; wanted NoFilter, MeanStdFilter or ConcurrentMeanStdFilter")
    stats = made.state.get("rs")
    numbers = plain(stats.state, what) if isinstance(stats, Unread) else None
    if not isinstance(numbers, dict) or not {"_n", "_M", "_S"} <= set(numbers):
        raise DataError(f"{what} has no count, mean and spread, as RLlib 1.9 wrote them")
    mean, spread = (np.asarray(numbers[key]) for key in ("_M", "_S"))
    if any(part.dtype.kind not in "fiu" or not np.isfinite(part).all() for part in (mean, spread)):
        raise DataError(f"{what} holds what is no finite number")
    settings = {key: plain(made.state.get(key), what) for key in ("demean", "destd", "clip")}
    return {
        **settings,
        "type": kind,
        "rs": {"n": _count(numbers["_n"]), "mean": mean, "m2": spread},
        "buffer": {"n": 0, "mean": np.zeros_like(mean), "m2": np.zeros_like(mean)},
    }


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value < _LARGEST:
        raise DataError(f"a count is {shorten(value)}, wanted a number of at least 0")
    return int(value)


def _seconds(value: Any) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value < _LARGEST:
        raise DataError(f"time_total is {shorten(value)}, wanted seconds")
    return float(value)


# --- into trainers ------------------------------------------------------------------------------------------------


def load_rllib_checkpoint(trainer: Any, path: str | os.PathLike[str]) -> RLlibCheckpoint:
    """Has a new trainer go on from a checkpoint of RLlib 1.9 to 1.13: weights, filters, counters and schedules.

    Optimisers, target networks (copies of what was loaded), adaptive coefficients, random streams and replay buffers
    start anew. `trainer.save()` then writes a checkpoint of this package's.

    Args:
        trainer: A trainer with the same algorithm, spaces and networks, that has not trained yet.
        path: The file `checkpoint-N`, or the directory that has it.

    Returns:
        What was read.

    Raises:
        CheckpointError: If it cannot be read, or does not fit; the trainer is then as it was before.
    """
    read = read_checkpoint(path)
    if trainer.iteration:
        raise CheckpointError(
            f"{trainer._name} has trained {trainer.iteration} iterations, wanted a new trainer: optimisers start anew"
        )
    workers = trainer.workers
    _check_fits(read, workers.local_worker())
    before, state = gather(trainer, buffer=False), gather(trainer, buffer=False)
    _put(read, state)
    try:
        apply(trainer, state)
    except Exception as error:
        apply(trainer, before)
        raise CheckpointError(f"{read.path!r} does not fit this trainer: {error}") from error
    workers.weights_changed()
    if workers.remote_workers():
        workers.sync_filters()
    return read


def _check_fits(read: RLlibCheckpoint, worker: Any) -> None:
    missing = sorted(set(worker.policy_map) - set(read.weights))
    if missing:
        raise CheckpointError(f"{read.path!r} has no policy {missing[0]!r}, only {sorted(read.weights)}")
    for pid, made in worker.filters.items():
        theirs = "NoFilter" if read.filters[pid] is None else str(read.filters[pid]["type"])  # type: ignore[index]
        if (theirs == "NoFilter") != (type(made).__name__ == "NoFilter"):
            raise CheckpointError(
                f"{read.path!r} was trained with the observation filter {theirs}, and this trainer has "
                f"{type(made).__name__}: set observation_filter={theirs!r}"
            )

    for pid, policy in worker.policy_map.items():
        _check_bounds(read, pid, policy)


def _check_bounds(read: RLlibCheckpoint, pid: str, policy: Any) -> None:
    """Raises where an actor of RLlib's DDPG, which acts within the bounds themselves, is to act within [-1, 1]."""
    names = [name for name in read.weights[pid] if isinstance(name, str)]  # eager policies have none
    theirs = any(re.search(r"policy_model\.action_|(^|/)actor_(hidden_\d+|out)/", name) for name in names)
    low, high = (np.asarray(getattr(policy.action_space, name, one)) for name, one in (("low", -1.0), ("high", 1.0)))
    if theirs and policy.config.get("normalize_actions") and not ((low == -1.0).all() and (high == 1.0).all()):
        raise CheckpointError(
            f"{read.path!r} has an actor whose actions lie within the bounds [{low.min():g}, {high.max():g}], and "
            "this trainer's lie within [-1, 1]: set normalize_actions=False"
        )


def _put(read: RLlibCheckpoint, state: dict[str, Any]) -> None:
    """Writes what was read into a trainer's state."""
    local = state["local_worker"]
    for pid, policy in local["policies"].items():
        policy["weights"] = read.weights[pid]
        policy["global_timestep"] = read.timesteps[pid]
        policy.get("_components", {}).pop("target_network", None)
    for worker in (local, *state["remote_workers"].values()):
        _put_into_worker(read, worker)
    plan, sampled = state["plan"], read.counters["num_steps_sampled"]
    plan["metrics"]["counters"].update({name: count for name, count in read.counters.items() if count})
    for node in plan["nodes"]:
        if node["name"] == "CollectMetrics":
            node["state"]["operator"]["reported_steps"] = sampled
        elif node["name"] == "OncePerTimestepsElapsed":
            node["state"]["operator"]["last_called"] = sampled
    state["iteration"], state["time_total"] = read.iteration, read.time_s
    state["timesteps_total"], state["episodes_total"] = sampled, read.episodes


def _put_into_worker(read: RLlibCheckpoint, worker: dict[str, Any]) -> None:
    worker["global_vars"] = {**worker["global_vars"], "timestep": read.counters["num_steps_sampled"]}
    for pid, streams in worker["streams"].items():
        streams["timestep"] = read.timesteps[pid]
    filters: Mapping[str, Any] = read.filters
    worker["filters"] = {pid: filters[pid] or made for pid, made in worker["filters"].items()}


__all__ = ["RLlibCheckpoint", "is_rllib_checkpoint", "load_rllib_checkpoint", "read_checkpoint"]
