"""Checkpoints of a trainer: what is in them, and how one is taken over whole or not at all."""

from __future__ import annotations

import io
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.config.faults import shorten
from rlframe.trainer.checkpoint_paths import said
from rlframe.trainer.loggers import flatten, to_jsonable
from rlframe.trainer.recovery import revive
from rlframe.utils import names
from rlframe.utils.errors import CheckpointError
from rlframe.utils.state_files import is_file_of_a_state, read_state, write_state

_LOGGER = logging.getLogger("rlframe")
SCHEMA = 1


def save(trainer: Any, directory: str) -> None:
    """Writes a checkpoint of a trainer; see `Trainer.save`."""
    write_state(directory, trainer.__getstate__(), describe(trainer))  # which a program may have extended
    _LOGGER.info("checkpoint of iteration %s written: %s", trainer.iteration, directory)


def describe(trainer: Any) -> dict[str, Any]:
    """Returns what identifies a checkpoint: algorithm, spaces, versions, and the config for reading."""
    from rlframe.version import __version__

    worker: Any = None if trainer.workers is None else trainer.workers.local_worker()
    return {
        "kind": "trainer",
        "trainer_schema": SCHEMA,
        "algorithm": trainer.algorithm_name,
        "framework": trainer.config["framework"],
        "rlframe_version": __version__,
        "env": str(trainer._env_id),
        "iteration": trainer.iteration,
        "counters": _counters(trainer),
        "spaces": {
            pid: {
                "observation_space": str(policy.observation_space),
                "action_space": str(policy.action_space),
                "policy_class": type(policy).__name__,
                **_own_config(worker.policy_specs[pid].config),
            }
            for pid, policy in (worker.policy_map.items() if worker else ())
        },
        "config": to_jsonable(trainer.config),
    }


def _own_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns a policy's overrides of the trainer's config as a checkpoint holds them, or which key it cannot hold."""
    if not config:
        return {}
    try:
        return {"config": _plain(config)}
    except ValueError as error:
        return {"config_lost": str(error)}


def _plain(value: Any, key: str = "") -> Any:
    """Returns a value as dicts, lists and scalars.

    Raises:
        ValueError: If it is none of these; the message is its dotted key, and what it is.
    """
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _plain(item, f"{key}.{name}" if key else name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{key} ({shorten(value)})")


def gather(trainer: Any, *, buffer: bool | None = None) -> dict[str, Any]:
    """Returns a trainer's whole state as nested dicts of arrays and numbers.

    Args:
        trainer: The trainer.
        buffer: Whether the replay buffer is included; None goes by `store_buffer_in_checkpoints`.
    """
    workers = trainer.workers
    if workers is None:  # of a trainer whose `_init` builds other parts
        return _counters(trainer)
    if workers.learns_remotely:
        workers.pull_policies()
    if buffer is None:
        buffer = _keeps_buffers(trainer)
    state: dict[str, Any] = {
        **_counters(trainer),
        "worker_restarts": workers.restarts,
        "local_worker": workers.local_worker().get_state(),
        "remote_workers": _remote_states(workers),
        "plan": _plan_state(trainer),
    }
    if trainer.evaluation_workers is not None:
        state["evaluation_worker"] = trainer.evaluation_workers.local_worker().get_state(policies=False)
        state["remote_evaluation_workers"] = _remote_states(trainer.evaluation_workers)
    if buffer and trainer.local_replay_buffer is not None:
        state["replay_buffer"] = trainer.local_replay_buffer.get_state()
    return state


def _counters(trainer: Any) -> dict[str, Any]:
    return {
        "iteration": trainer._iteration,
        "time_total": trainer._time_total,
        "timesteps_total": trainer._timesteps_total,
        "episodes_total": trainer._episodes_total,
        "seed": trainer.seed,
        "experiment_id": trainer.experiment_id,
    }


def _set_counters(trainer: Any, state: Mapping[str, Any]) -> None:
    trainer.seed = int(state["seed"])
    trainer._iteration = int(state["iteration"])
    trainer._time_total = float(state["time_total"])
    trainer._timesteps_total = state["timesteps_total"]
    trainer._episodes_total = state["episodes_total"]
    trainer.experiment_id = state["experiment_id"]
    vars(trainer).update(dict.fromkeys(_SINCE_RESTORE, 0))


def _set_state(trainer: Any, state: dict[str, Any], meta: Mapping[str, Any]) -> None:
    """Hands a trainer its state, and counts on where a program's own `__getstate__` wrote no counters."""
    counted = "iteration" in state
    trainer.__setstate__(state)
    if not counted:
        _set_counters(trainer, meta["counters"])


def _remote_states(workers: Any) -> dict[str, Any]:
    """Returns the states of the remote workers that live, by number; what those that died knew is lost with them."""
    if not workers.remote_workers():
        return {}
    from rlframe.evaluation.cluster import answers_of

    indexes = workers.remote_indexes()
    states, failures = answers_of([worker.get_state.remote(policies=False) for worker in workers.remote_workers()])
    for place, error in failures.items():
        _LOGGER.warning(
            "worker %s does not answer (%s): its random streams and the places of its environments are not in the "
            "checkpoint, with which it begins new episodes",
            indexes[place],
            str(error).strip().partition("\n")[0],
        )
    return {str(indexes[place]): state for place, state in states.items()}


def load(trainer: Any, directory: str) -> None:
    """Takes over a checkpoint, or raises and leaves the trainer as it was.

    Raises:
        CheckpointError: Names what does not fit.
    """
    state, meta = read_state(directory)
    if trainer.workers is None:
        check_fits(trainer, meta, directory)
        _set_state(trainer, state, meta)
        return
    revive(trainer)
    with names.from_file(f"checkpoint {directory!r}", _ADVICE, _named_by(trainer)):
        _take_over(trainer, state, meta, directory)
    _LOGGER.info("goes on from iteration %s: %s", trainer.iteration, directory)


_SINCE_RESTORE = ("_time_since_restore", "_timesteps_since_restore", "_iterations_since_restore")
_ADVICE = "Name it in this trainer's config, or add the policy before restore(); if you trust the file: trust=True"


def _named_by(trainer: Any) -> frozenset[str]:
    """Returns what the program itself has named: in the trainer's config, and in those of its policies."""
    specs = trainer.workers.local_worker().policy_specs.values()
    return names.texts_in([trainer.config, *(spec.config for spec in specs)])


def _take_over(trainer: Any, state: dict[str, Any], meta: dict[str, Any], directory: str) -> None:
    try:
        missing = check_fits(trainer, meta, directory)
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {directory!r} is malformed: {said(error)}") from error
    before = gather(trainer, buffer=False)
    since = {name: getattr(trainer, name) for name in (*_SINCE_RESTORE, "_goes_on_exactly", "_left_behind")}
    added: list[str] = []
    try:
        for pid in missing:
            trainer.add_policy(pid, config=meta["spaces"][pid].get("config"))
            added.append(pid)
        _check_spaces(meta, describe(trainer)["spaces"], directory)
        _set_state(trainer, state, meta)
        for part, parts in _working_parts(trainer).items():
            check_kinds(before[part], parts, part)
    except BaseException as error:
        for pid in added:
            trainer.remove_policy(pid)
        apply(trainer, before)
        vars(trainer).update(since)
        if isinstance(error, CheckpointError) or not isinstance(error, Exception):
            raise
        differs = _differences(meta.get("config"), describe(trainer)["config"])
        raise CheckpointError(f"checkpoint {directory!r} does not fit this trainer: {said(error)}{differs}") from error


#: Sections and keys whose values can change what is restored; the first to be named where a checkpoint does not fit.
_SHAPING = ("model", "hiddens", "dueling", "num_atoms", "noisy", "framework", "twin_q", "mixer")
_MOST_NAMED = 6


def _differences(saved: Any, mine: Mapping[str, Any]) -> str:
    """Returns in words which keys of a checkpoint's config have other values here, those of networks first."""
    if not isinstance(saved, Mapping):
        return ""
    theirs, ours = dict(flatten(saved)), dict(flatten(mine))
    keys = [key for key in ours if key in theirs and theirs[key] != ours[key] and key.partition("/")[0] != "seed"]
    keys.sort(key=lambda key: key.partition("/")[0] not in _SHAPING)
    named = [f"{key.replace('/', '.')} ({shorten(theirs[key])} there, {shorten(ours[key])} here)" for key in keys]
    return f". Their configs differ in {', '.join(named[:_MOST_NAMED])}" if named else ""


def _plan_state(trainer: Any) -> Any:
    """Returns the state of the plan; None for a trainer whose `_init` builds its parts, and that has none."""
    return None if trainer.train_exec_impl is None else trainer.train_exec_impl.get_state()


def _working_parts(trainer: Any) -> dict[str, Any]:
    """Returns what a trainer works with now, beside its policies' own states."""
    return {
        "plan": _plan_state(trainer),
        "local_worker": trainer.workers.local_worker().get_state(policies=False),
    }


_LARGEST = 2**63


def check_kinds(before: Any, after: Any, place: str) -> None:
    """Raises where a state that was taken over has another kind of value than the trainer's own had.

    Much of a state is only looked at when training goes on: it is then too late to refuse it.

    Args:
        before: What the trainer had, nested dicts and lists.
        after: What it has now. None on either side fits everything.
        place: Where that is, dotted.

    Raises:
        CheckpointError: Names the first place.
    """
    if before is None or after is None:
        return
    kind = _kind_of(before)
    beyond = kind == "number" and abs(before) < _LARGEST <= abs(after) if kind == _kind_of(after) else True
    if beyond:
        raise CheckpointError(f"a checkpoint's {place} is {shorten(after)}, wanted a {kind} such as {shorten(before)}")
    if kind == "dict":
        for key in before.keys() & after.keys():
            check_kinds(before[key], after[key], f"{place}.{key}")
    elif kind == "list":
        for number, (mine, theirs) in enumerate(zip(before, after, strict=False)):
            check_kinds(mine, theirs, f"{place}.{number}")


def _kind_of(value: Any) -> str:
    if isinstance(value, (bool, int, float, np.generic)) and not isinstance(value, (np.str_, np.bytes_)):
        return "number"
    for kind, classes in {"text": str, "dict": Mapping, "list": (list, tuple), "array": np.ndarray}.items():
        if isinstance(value, classes):  # type: ignore[arg-type]
            return kind
    return type(value).__name__


def check_fits(trainer: Any, meta: dict[str, Any], directory: str) -> list[str]:
    """Raises where a checkpoint is of another kind, algorithm or space than the trainer.

    Returns:
        Ids of the policies that a run had added before the checkpoint was written, and that this trainer lacks.

    Raises:
        CheckpointError: Names what the checkpoint has and what the trainer wants.
    """
    mine = describe(trainer)
    for key, what in (("kind", "contents"), ("trainer_schema", "format version"), ("algorithm", "algorithm")):
        if meta.get(key) != mine[key]:
            raise CheckpointError(
                f"checkpoint {directory!r} has {what} {meta.get(key)!r}, wanted {mine[key]!r}: restore it with the "
                "class that saved it"
            )
    missing = _missing_policies(trainer, meta, directory)
    _check_spaces(meta, mine["spaces"], directory)
    return missing


def _check_spaces(meta: dict[str, Any], mine: dict[str, Any], directory: str) -> None:
    """Raises a CheckpointError where a policy of the trainer's is not in a checkpoint, or had other spaces."""
    for pid, spaces in mine.items():
        saved = meta.get("spaces", {}).get(pid)
        if saved is None:
            raise CheckpointError(f"checkpoint {directory!r} has no policy {pid!r}, only {sorted(meta['spaces'])}")
        for name in ("observation_space", "action_space"):
            wanted = spaces[name]
            if saved[name] != wanted:
                raise CheckpointError(
                    f"checkpoint {directory!r} was saved with {name} {saved[name]}, this trainer's is {wanted}: make "
                    "the trainer with the environment the checkpoint was trained in"
                )


def _missing_policies(trainer: Any, meta: dict[str, Any], directory: str) -> list[str]:
    """Returns the ids of policies that a run had added before the checkpoint was written, and that can be made.

    Raises:
        CheckpointError: If one cannot: a checkpoint holds no code, neither its class nor functions in its config.
    """
    known = {} if trainer.workers is None else trainer.workers.local_worker().policy_map
    missing: list[str] = []
    for pid, spaces in meta.get("spaces", {}).items():
        if pid in known:
            continue
        if spaces.get("policy_class") != trainer.policy_class.__name__:
            raise CheckpointError(
                f"checkpoint {directory!r} has the policy {pid!r} of class {spaces.get('policy_class')}, which this "
                f"trainer does not have: call trainer.add_policy({pid!r}, ...) before restore()"
            )
        if "config_lost" in spaces:
            raise CheckpointError(
                f"checkpoint {directory!r} has the policy {pid!r} with a config of its own, of which it cannot hold "
                f"{spaces['config_lost']}: call trainer.add_policy({pid!r}, config=...) before restore()"
            )
        missing.append(pid)
    return missing


def apply(trainer: Any, state: dict[str, Any]) -> None:
    """Puts a state into a trainer; the replay buffer last, which takes a state whole or not at all.

    With `store_buffer_in_checkpoints` off, the trainer keeps its own buffer, whatever the state holds.
    """
    workers = trainer.workers
    if workers is None:
        _set_counters(trainer, state)
        return
    workers.local_worker().set_state(state["local_worker"])
    _set_counters(trainer, state)
    workers.restarts = max(workers.restarts, int(state.get("worker_restarts", 0)))
    if workers.remote_workers():
        _restore_remotes(workers, state["remote_workers"])
    # Remote workers may be more or fewer than were saved; the plan starts from its counters in any case.
    if trainer.train_exec_impl is not None:
        if trainer.train_exec_impl is trainer._made_plan:  # else a program's own `_init` made it
            trainer.train_exec_impl.close()
            trainer.train_exec_impl = trainer._make_plan()
        _restore_plan(trainer, state["plan"])
    if trainer.evaluation_workers is not None and "evaluation_worker" in state:
        trainer.evaluation_workers.local_worker().set_state(state["evaluation_worker"])
        _set_remote_states(trainer.evaluation_workers, state.get("remote_evaluation_workers", {}))
    trainer._left_behind = _left_behind(trainer, state)
    if trainer.local_replay_buffer is not None and "replay_buffer" in state and _keeps_buffers(trainer):
        _restore_buffer(trainer, state["replay_buffer"])


def _restore_buffer(trainer: Any, state: Mapping[str, Any]) -> None:
    """Fills the replay buffer; one of other settings stays as it is, which is said when training goes on, not to act.

    RLlib's checkpoints had no buffer, so that trainers which only act were made without its settings.
    """
    try:
        trainer.local_replay_buffer.set_state(state)
    except CheckpointError as fault:
        said = f"the saved replay buffer is not taken over. {fault}"
        trainer._left_behind = f"{trainer._left_behind}; {said}" if trainer._left_behind else said


def _keeps_buffers(trainer: Any) -> bool:
    return bool(trainer.config.get("store_buffer_in_checkpoints"))


def _restore_plan(trainer: Any, state: dict[str, Any]) -> None:
    """Puts the plan's state into the plan; of other operators, which other settings can mean, its counters alone."""
    plan = trainer.train_exec_impl
    trainer._goes_on_exactly = plan.has_operators_of(state)
    plan.set_state(state, counters_only=not trainer._goes_on_exactly)


def _left_behind(trainer: Any, state: Mapping[str, Any]) -> str:
    """Returns in words which episodes and rows of a checkpoint's workers are not gone on with; "" for none."""
    workers = trainer.workers
    saved = {index: worker["runner"] for index, worker in state["remote_workers"].items()}
    saved["0"] = state["local_worker"]["runner"]
    begun = {index: len(runner["slots"]) for index, runner in saved.items() if runner is not None and runner["started"]}
    indexes = ["0", *(str(index) for index in workers.remote_indexes())]
    counts = zip(indexes, workers.foreach_worker(_num_slots), strict=True)
    idle = {index for index, runner in saved.items() if runner is not None and not runner["started"]}
    slots = {index: count for index, count in counts if count and index not in idle}
    said = []
    if begun and any(begun.get(index) != count for index, count in slots.items()):
        said.append(
            f"environments of {len(begun)} workers were saved, with {_listed(begun.values())} slots each; these are "
            f"{len(slots)} with {_listed(slots.values())}, and new episodes begin where the numbers differ"
        )
    if any(runner.get("infos_lost") for runner in saved.values() if runner is not None):
        said.append("the infos of rows in unfinished episodes are empty, as checkpoints hold none")
    return "; ".join(said)


def _num_slots(worker: Any) -> int:
    return len(worker.slots)


def _listed(counts: Iterable[int]) -> str:
    return ", ".join(str(count) for count in sorted(set(counts))) or "no"


def warn_of_another_plan(trainer: Any) -> None:
    """Says once that a checkpoint of other operators or slots was restored: when training goes on, not to act."""
    left, trainer._left_behind = trainer._left_behind, ""
    if trainer._goes_on_exactly:
        if left:
            _LOGGER.warning("%s was restored, but does not go on exactly: %s", trainer._name, left)
        return
    trainer._goes_on_exactly = True
    _LOGGER.warning(
        "%s was restored from a checkpoint whose plan had other operators, as with other settings (num_workers=0 or "
        "more, num_aggregation_workers, microbatch_size) or another execution plan. Policies, filters and counters "
        "are those of the checkpoint; rows that its plan held, and the plan's random streams, are not: training goes "
        "on, but not exactly where it stopped%s",
        trainer._name,
        f"; also, {left}" if left else "",
    )


def _restore_remotes(workers: Any, states: dict[str, Any]) -> None:
    workers.sync_weights(global_vars=workers.local_worker().get_global_vars())
    if workers.learns_remotely:
        workers.push_policies()
    _set_remote_states(workers, states)


def _set_remote_states(workers: Any, states: dict[str, Any]) -> None:
    if not workers.remote_workers():
        return
    import ray

    calls = [
        worker.set_state.remote(states[str(index)])
        for worker, index in zip(workers.remote_workers(), workers.remote_indexes(), strict=True)
        if str(index) in states
    ]
    ray.get(calls)


def to_bytes(trainer: Any) -> bytes:
    """Returns a checkpoint as a zip of its files."""
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "checkpoint")
        save(trainer, str(path))
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(path))
    return buffer.getvalue()


def from_bytes(trainer: Any, data: bytes) -> None:
    """Takes over what `to_bytes` returned.

    Raises:
        CheckpointError: If the bytes are no checkpoint, or none that fits.
    """
    with tempfile.TemporaryDirectory() as directory:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                _check_members(archive, len(data))
                archive.extractall(directory)
        except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise CheckpointError(
                f"these bytes are no checkpoint ({said(error)}): wanted what save_to_object() returned"
            ) from error
        try:
            load(trainer, directory)
        except CheckpointError as error:  # a directory that is gone by now says nothing to anybody
            text = str(error).replace(os.path.realpath(directory), _BYTES).replace(directory, _BYTES)
            raise CheckpointError(text) from error


#: Files of a checkpoint, one for each array of more than a MiB, beyond which it is none.
_MOST_FILES = 4096
_BYTES = "<bytes of save_to_object()>"


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raises ValueError where an archive is not one of a checkpoint's files as they are.

    Unpacking takes no more than the archive has then.
    """
    members = archive.infolist()
    if len(members) > _MOST_FILES:
        raise ValueError(f"it holds {len(members):,} files, wanted at most {_MOST_FILES:,}")
    strange = [member.filename for member in members if not is_file_of_a_state(member.filename)]
    if strange or len({member.filename for member in members}) < len(members):
        raise ValueError(f"it holds {strange[0] if strange else 'a file twice'!r}")
    if any(m.compress_type != zipfile.ZIP_STORED for m in members) or sum(m.file_size for m in members) > size:
        raise ValueError("its files are compressed")
