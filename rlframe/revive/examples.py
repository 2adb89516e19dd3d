"""Inputs to try things with: data, graph file and reward file of the processes of `examples.env.logged_systems`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.examples.env.logged_systems import SYSTEMS, LoggedSystem
from rlframe.revive.graph_file import near
from rlframe.utils.errors import ConfigError

__all__ = ["EXAMPLES", "Example", "simulate", "true_score", "write_example"]

Policy = Callable[[dict[str, NDArray[np.float32]]], NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Example:
    """What is written of a process besides its data.

    Attributes:
        stem: Begin of its files' names.
        graph: Its graph file.
        reward: Its reward file.
        function: Its file of expert functions, where it has one, as `(name, text)`.
    """

    stem: str
    graph: str
    reward: str
    function: tuple[str, str] | None = None


_FRIDGE = Example(
    "fridge",
    """\
metadata:
  graph:
    power: [temperature, door]
    next_temperature: [temperature, power, door]
  columns:
    - temperature: {dim: temperature, type: continuous}
    - door: {dim: door, type: category, values: [0, 1]}
    - power: {dim: power, type: continuous, min: 0}
""",
    """\
def get_reward(data):
    return -abs(data["next_temperature"][..., 0] + 2)
""",
)
_PENDULUM = Example(
    "pendulum",
    """\
metadata:
  graph:
    torque: [pendulum]
    next_pendulum: [pendulum, torque]
  columns:
    - cos: {dim: pendulum, type: continuous, min: -1, max: 1}
    - sin: {dim: pendulum, type: continuous, min: -1, max: 1}
    - speed: {dim: pendulum, type: continuous, min: -8, max: 8}
    - torque: {dim: torque, type: continuous, min: -2, max: 2}
""",
    """\
import torch


def get_reward(data):
    cos, sin, speed = (data["pendulum"][..., i] for i in range(3))
    angle = torch.atan2(sin, cos)
    return -(angle**2 + 0.1 * speed**2 + 0.001 * data["torque"][..., 0] ** 2)
""",
)
_MASS_SPRING = Example(
    "mass_spring",
    """\
metadata:
  graph:
    force: [state, target, integral]
    next_state: [state, force]
    next_integral: [integral, state, target]
  columns:
    - position_1: {dim: state, type: continuous}
    - position_2: {dim: state, type: continuous}
    - speed_1: {dim: state, type: continuous}
    - speed_2: {dim: state, type: continuous}
    - target_1: {dim: target, type: continuous, min: -1.5, max: 1.5}
    - target_2: {dim: target, type: continuous, min: -1.5, max: 1.5}
    - integral_1: {dim: integral, type: continuous}
    - integral_2: {dim: integral, type: continuous}
    - force_1: {dim: force, type: continuous, min: -1, max: 1}
    - force_2: {dim: force, type: continuous, min: -1, max: 1}
""",
    """\
import torch


def get_reward(data):
    error = (data["next_state"][..., :2] - data["target"]).abs()
    return -torch.log(error + 0.01).sum(-1)
""",
)
_MIXED = Example(
    "mixed",
    """\
metadata:
  graph:
    valve: [level, feed]
    outflow: [level, valve]
    next_level: [level, outflow, feed]
  columns:
    - level: {dim: level, type: continuous, min: 0, max: 3}
    - valve: {dim: valve, type: discrete, min: 0, max: 100, num: 11}
    - inflow: {dim: feed, type: continuous}
    - kind: {dim: feed, type: category, values: [0, 1]}
    - outflow: {dim: outflow, type: continuous}
  expert_functions:
    outflow: {node_function: mixed_flows.outflow}
""",
    """\
def get_reward(data):
    miss = abs(data["next_level"][..., :1] - 1.5)
    return 1 - miss - 0.05 * data["valve"][..., :1] / 100
""",
    (
        "mixed_flows.py",
        """\
def outflow(data):
    return 0.3 * data["valve"] / 100 * data["level"] ** 0.5
""",
    ),
)
#: By the name that `rlframe revive example` takes.
EXAMPLES = {"refrigerator": _FRIDGE, "pendulum": _PENDULUM, "mass-spring": _MASS_SPRING, "mixed": _MIXED}


def _system(name: str) -> type[LoggedSystem]:
    if name not in SYSTEMS:
        raise ConfigError(f"there is no example {name!r}; {near(name, SYSTEMS)}")
    return SYSTEMS[name]


def simulate(
    name: str, trajectories: int | None = None, seed: int = 0, policy: Policy | None = None
) -> tuple[dict[str, NDArray[Any]], float]:
    """Runs a process under its logged controller, or under a policy.

    Args:
        name: One of `EXAMPLES`.
        trajectories: How many; None takes the number that its data have.
        seed: Of all that is random.
        policy: Maps nodes `[B, columns]` to the action `[B, columns]`; None is the logged controller.

    Returns:
        Arrays as a data file has them, and the true score: the mean over trajectories of the sum of rewards, or of
        their mean for a process that has no end.
    """
    kind = _system(name)
    system = kind(trajectories or kind.trajectories, np.random.default_rng(seed))
    rows: list[dict[str, NDArray[Any]]] = []
    score = 0.0
    for _ in range(kind.steps):
        nodes = {node: values.astype(np.float32) for node, values in system.nodes().items()}
        action = np.asarray(system.control() if policy is None else policy(nodes), float).reshape(system.count, -1)
        rows.append({**nodes, kind.action: action.astype(np.float32)})
        score += float(system.advance(action).mean())
    arrays: dict[str, NDArray[Any]] = {
        node: np.stack([row[node] for row in rows], 1).reshape(system.count * kind.steps, -1) for node in rows[0]
    }
    arrays["index"] = np.arange(1, system.count + 1) * kind.steps
    return arrays, score / kind.steps if kind.mean else score


def true_score(name: str, policy: Policy, trajectories: int = 20, seed: int = 1000) -> float:
    """Returns what a policy is worth on the process itself, as `simulate` scores it."""
    return simulate(name, trajectories, seed, policy)[1]


def write_example(
    name: str, folder: str | Path, trajectories: int | None = None, seed: int = 0
) -> tuple[dict[str, Path], float]:
    """Writes data (`.npz`), graph file and reward file of a process, and its expert functions where it has some.

    Args:
        name: One of `EXAMPLES`.
        folder: Is made if it is not there.
        trajectories: How many; None takes as many as people who published such data had.
        seed: Of the data.

    Returns:
        Paths by `data`, `graph`, `reward` and `function`, and the true score of the logged controller.

    Raises:
        ConfigError: There is no such process, or one of the files exists.
    """
    _system(name)
    example, folder = EXAMPLES[name], Path(folder)
    texts = {"graph": (f"{example.stem}.yaml", example.graph), "reward": (f"{example.stem}_reward.py", example.reward)}
    if example.function is not None:
        texts["function"] = example.function
    paths = {"data": folder / f"{example.stem}.npz"} | {key: folder / file for key, (file, _) in texts.items()}
    for path in paths.values():
        if path.exists():
            raise ConfigError(f"{path} is there already; wanted a folder without it")
    arrays, score = simulate(name, trajectories, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for key, (_, text) in texts.items():
        paths[key].write_text(text, encoding="utf-8")
    np.savez_compressed(paths["data"], allow_pickle=False, **arrays)
    return paths, score
