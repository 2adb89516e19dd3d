"""Writes a policy as a file for use elsewhere, once it acts as the policy does."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.serving.export.policy_program import acts_by_hooks, policy_program
from rlframe.serving.export.program import OPSET, Port, Program
from rlframe.serving.export.recorded import Step, record
from rlframe.serving.protocol import dumps
from rlframe.utils.errors import ConfigError, DataError
from rlframe.version import __version__

Format: TypeAlias = Literal["numpy", "onnx", "torchscript", "savedmodel"]
FORMATS: tuple[str, ...] = get_args(Format)
Feeds: TypeAlias = Mapping[str, NDArray[Any]]
#: From the graph's inputs by name to its outputs by name.
Runner: TypeAlias = Callable[[Feeds], dict[str, NDArray[Any]]]

#: Name of the contract.
CONTRACT = "contract.json"
FILES = {"numpy": "policy.py", "onnx": "policy.onnx", "torchscript": "policy.pt", "savedmodel": "saved_model"}
_MODULES = {"numpy": "to_numpy", "onnx": "to_onnx", "torchscript": "to_torch", "savedmodel": "to_tf"}
_NEEDED = {"numpy": (), "onnx": ("onnx", "onnxruntime"), "torchscript": ("torch",), "savedmodel": ("tensorflow",)}
#: What can hold a network that is traced, by its framework.
_TRACED = {"torch": ("torchscript", "onnx"), "tf": ("savedmodel",)}
_SCHEMA = 1
#: How far numbers of an action may lie from the policy's, as a share of its range, or of 1 where it has none.
_CLOSE = 1e-4


def export_policy(
    trainer: Any,
    to: str,
    directory: str | os.PathLike[str],
    *,
    policy_id: str = DEFAULT_POLICY_ID,
    force: bool = False,
) -> Path:
    """Writes a trainer's policy, with `contract.json`, into a directory.

    The file holds preprocessor, observation filter, networks, masks and action bounds; it acts greedily. It has to act
    as the policy does on recorded observations before it is at its place.

    Args:
        trainer: With weights.
        to: "numpy" (`policy.py`), "onnx" (`policy.onnx`), "torchscript" (`policy.pt`) or "savedmodel" (`saved_model/`).
        directory: Where it is written.
        policy_id: Which policy.
        force: Whether a directory that is there is replaced, if it holds an export.

    Returns:
        The path of the file, or of the folder of a SavedModel.

    Raises:
        ConfigError: If there is no such format or policy, a package is missing, the directory is there, the policy acts
            by something that cannot be written, or what was written acts otherwise.
    """
    target = Path(directory)
    write = check_export(to, target, force=force)
    policies = trainer.workers.local_worker().policy_map
    if policy_id not in policies:
        raise ConfigError(f"export: got the policy {policy_id!r}, wanted one of {', '.join(policies)}; say policy_id")
    policy = policies[policy_id]
    program = policy_program(policy, trainer.how_rewards_are_clipped())
    _check_network(policy, program, to)
    recorded = record(trainer, policy_id)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        contract = _contract(trainer, policy_id, policy, program, to)
        run = _written(policy, program, partial(write, program, contract, beside / FILES[to]))
        count = sum(len(episode) for episode in recorded)
        contract["verified"] = {"observations": count, "difference": _verified(program, run, recorded)}
        (beside / CONTRACT).write_text(json.dumps(contract, indent=1) + "\n", encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        os.replace(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target / FILES[to]


def _check_network(policy: Any, program: Program, to: str) -> None:
    """Raises a ConfigError where a format cannot hold the policy's network."""
    if program.network is not None and to not in _TRACED[program.network.framework]:
        raise ConfigError(
            f"export: got the format {to!r} for {_traced_part(policy)}, which is not built in; wanted "
            f"{' or '.join(_TRACED[program.network.framework])}, which trace it, or rlframe serve RUN"
        )


def _traced_part(policy: Any) -> str:
    """Returns what of a policy is written by running it, for messages."""
    model = type(policy.model).__name__
    return f"{model} and what chooses actions behind it" if acts_by_hooks(policy) else model


def _written(policy: Any, program: Program, write: Callable[[], Runner]) -> Runner:
    """Writes a file and returns how it runs; what a network of the user's own does against tracing is one sentence."""
    if program.network is None:
        return write()

    def told(act: Callable[[], Any], what: str) -> Any:
        try:
            return act()
        except ConfigError:
            raise
        except Exception as error:  # whatever users' code and the frameworks raise
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"export: {_traced_part(policy)} {what} ({type(error).__name__}: {reason:.200}); serve it instead: "
                "rlframe serve RUN"
            ) from error

    run: Runner = told(write, "cannot be traced")
    return lambda feeds: told(lambda: run(feeds), f"runs on 2 rows, as it was traced, and not on {_rows(feeds)}")


def _rows(feeds: Feeds) -> int:
    return len(next(iter(feeds.values())))


def check_export(to: str, target: Path, *, force: bool) -> Callable[[Program, dict[str, Any], Path], Runner]:
    """Returns what writes a format's file and says how that runs.

    Raises:
        ConfigError: If there is no such format, a package is missing, or something stands at the target.
    """
    if to not in FORMATS:
        raise ConfigError(f"export: got the format {to!r}, wanted one of {', '.join(FORMATS)}")
    missing = [name for name in _NEEDED[to] if importlib.util.find_spec(name) is None]
    if missing:
        extra = "tf" if to == "savedmodel" else to
        raise ConfigError(f"export: {to} needs {' and '.join(missing)}: pip install 'rlframe[{extra}]'")
    if os.path.lexists(target) and not force:
        raise ConfigError(f"export: {str(target)!r} is there already; say another directory, or --force to replace it")
    if os.path.lexists(target) and not (target / CONTRACT).is_file():
        raise ConfigError(f"export: {str(target)!r} holds no export ({CONTRACT}), so it is not replaced; say another")
    module = importlib.import_module(f"rlframe.serving.export.{_MODULES[to]}")
    write: Callable[[Program, dict[str, Any], Path], Runner] = module.write
    return write


def _contract(trainer: Any, policy_id: str, policy: Any, program: Program, to: str) -> dict[str, Any]:
    """Returns what callers of the file must know, as plain data."""
    observed = getattr(policy.observation_space, "original_space", policy.observation_space)
    return {
        "schema": _SCHEMA,
        "rlframe": __version__,
        "algorithm": type(trainer).__name__.removesuffix("Trainer"),
        "policy": policy_id,
        "format": to,
        "file": FILES[to],
        "opset": OPSET if to == "onnx" else None,
        "acts": "greedily: the likeliest action, without exploration",
        "observation_space": json.loads(dumps(observed)),
        "action_space": json.loads(dumps(policy.action_space)),
        "observations": [_told(port) for port in program.observations],
        "actions": [_told(port) for port in program.actions],
        "states": [
            {
                **_told(state.given),
                "output": state.made,
                "initial": state.initial.tolist() if state.initial.any() else 0,
            }
            for state in program.states
        ],
        "reward": None if program.reward is None else _told(program.reward),
    }


def _told(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "shape": list(port.shape), "path": list(port.path)}


def _verified(program: Program, run: Runner, recorded: list[list[Step]]) -> float:
    """Returns how far actions of the file lie from the policy's at most.

    Raises:
        ConfigError: If that is too far.
    """
    if not (program.states or program.reward):
        batches = (*recorded, recorded[0][:1])
        return max(_checked(program, run(feeds_of(program, steps)), steps) for steps in batches)
    # One after the other and side by side: batches of one and of several.
    return max(_followed(program, run, episodes) for episodes in (*([episode] for episode in recorded), recorded))


def _followed(program: Program, run: Runner, episodes: list[list[Step]]) -> float:
    """Returns how far actions lie apart in episodes that are acted in side by side, as long as all of them last."""
    worst = 0.0
    states = {state.given.name: np.stack([state.initial] * len(episodes)) for state in program.states}
    for steps in zip(*episodes, strict=False):
        made = run({**feeds_of(program, steps), **states})
        states = {state.given.name: made[state.made] for state in program.states}
        worst = max(worst, _checked(program, made, steps))
    return worst


def feeds_of(program: Program, steps: Sequence[Step]) -> dict[str, NDArray[Any]]:
    """Returns what steps saw as inputs `[B, ...]`."""
    parts = [{port.name: _part(step.observation, port) for port in program.observations} for step in steps]
    feeds = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    if program.reward is not None:
        feeds[program.reward.name] = np.array([step.reward or 0.0 for step in steps], np.float32)
    return feeds


def _checked(program: Program, made: Feeds, steps: Sequence[Step]) -> float:
    """Returns how far actions `[B, ...]` lie from those of the steps; raises a ConfigError where that is too far."""
    worst = 0.0
    for port in program.actions:
        got, wanted = made[port.name], np.stack([np.asarray(_at(step.action, port.path)) for step in steps])
        if got.shape != wanted.shape or got.dtype != np.dtype(port.dtype):
            raise _otherwise(
                program,
                f"the file gives {port.name} as {got.dtype}{list(got.shape)}, the policy as "
                f"{wanted.dtype}{list(wanted.shape)}",
            )
        for one, other, step in zip(got, wanted, steps, strict=True):
            off = _difference(one, other)
            if not off <= _CLOSE:
                raise _otherwise(
                    program,
                    f"for the observation {step.observation!r:.200} the file gives {port.name} {one}, the policy "
                    f"{other}",
                )
            worst = max(worst, off)
    return worst


def _otherwise(program: Program, what: str) -> ConfigError:
    """Returns the error about a file that acts otherwise than the policy."""
    why = "" if program.network is None else (
        "; tracing follows tensors alone, and no branches on values or sizes: rlframe serve RUN acts without it"
    )  # fmt: skip
    return ConfigError(f"export: {' '.join(what.split())}; not written{why}")


def _difference(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Returns how far numbers lie apart, relative to their size or 1; choices that differ are 1 apart at least."""
    if not wanted.size:
        return 0.0
    one, other = (part.astype(np.float64) for part in (got, wanted))
    scale = np.maximum(np.abs(other), 1.0) if np.issubdtype(wanted.dtype, np.floating) else 1.0
    with np.errstate(invalid="ignore"):
        return float(np.where(one == other, 0.0, np.abs(one - other) / scale).max())


def _part(observation: Any, port: Port) -> NDArray[Any]:
    part = np.asarray(_at(observation, port.path))
    if part.shape != port.shape:
        raise DataError(f"{port.name}: got an observation of shape {part.shape}, wanted {port.shape}")
    return part.astype(port.dtype)


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


__all__ = ["CONTRACT", "FILES", "FORMATS", "Runner", "export_policy", "feeds_of"]
