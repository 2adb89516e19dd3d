"""A first graph file, drafted from a table of logs; what a table cannot say, the user says or changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.columns import Column
from rlframe.revive.data_files import TRAJECTORY_NAMES, read_table
from rlframe.revive.graph_file import near
from rlframe.utils.errors import ConfigError, DataError

__all__ = ["draft_graph"]

_ACTION_PREFIXES = ("action", "act_", "control", "command")
_MOST_CATEGORIES = 10
_FEWEST_STEPS, _MOST_STEPS = 4, 101


def draft_graph(path: str | Path, actions: Sequence[str] = (), external: Sequence[str] = ()) -> str:
    """Returns the text of a graph file for a table: one node for actions, one for the state, one for the rest.

    Args:
        path: A `.csv` or `.parquet` file, one row per step.
        actions: Columns that were decided; none takes those whose name begins with action, act_, control or command.
        external: Columns that nothing here changes; none takes those that are constant within each trajectory.

    Raises:
        ConfigError: A named column is not there, or none looks like an action.
        DataError: The file cannot be read, or a column is not of numbers.
    """
    table = read_table(Path(path))
    for name in (*actions, *external):
        if name not in table:
            raise ConfigError(f"{path}: there is no column {name!r}; {near(name, table)}")
    both = next((name for name in actions if name in external), None)
    if both is not None:
        raise ConfigError(
            f"{path}: column {both!r} is named as decided, and as what nothing here changes; wanted one of both"
        )
    trajectory = next((table[name] for name in TRAJECTORY_NAMES if name in table), None)
    skipped = {*TRAJECTORY_NAMES, "done", "reward", "index", "step", "time", "t"}
    columns = [name for name in table if name not in skipped and not name.startswith("next_")]
    for name in columns:
        if table[name].dtype == object:
            raise DataError(
                f"{path}: column {name!r} has text, such as {table[name][0]!r}; write categories as numbers"
            )
    empty = [name for name in columns if np.isnan(table[name]).all() and name not in {*actions, *external}]
    columns = [name for name in columns if name not in empty]
    decided = list(actions) or [name for name in columns if name.lower().startswith(_ACTION_PREFIXES)]
    if not decided:
        raise ConfigError(f"{path}: no column looks like an action; say which were decided: --action COLUMN")
    rest = [name for name in columns if name not in decided]
    outside = list(external) or [name for name in rest if _constant(table[name], trajectory)]
    state = [name for name in rest if name not in outside]
    if not state:
        raise ConfigError(f"{path}: nothing is left for the state besides {', '.join([*decided, *outside])}")
    text = _text(Path(path).name, table, {"state": state, "action": decided, "external": outside})
    return text + "".join(f"    # {_quoted(name)} is left out: it has no values\n" for name in empty)


def _constant(values: NDArray[np.float64], trajectory: NDArray[np.float64] | None) -> bool:
    if trajectory is None:
        return False
    within = trajectory[1:] == trajectory[:-1]
    return bool(within.any() and (values[1:] == values[:-1])[within].all())


def _text(name: str, table: dict[str, NDArray[np.float64]], nodes: dict[str, list[str]]) -> str:
    seen = ["state", *(["external"] if nodes["external"] else [])]
    lines = [
        f"# Drafted from {name}. Split nodes, and leave out inputs, where you know more of what depends on what.",
        "metadata:",
        "  graph:",
        f"    action: [{', '.join(seen)}]",
        f"    next_state: [{', '.join(['state', 'action', *seen[1:]])}]",
        "  columns:",
    ]
    for node, columns in nodes.items():
        lines += [f"    - {_quoted(column)}: {_described(node, table[column])}" for column in columns]
    if "done" in table and set(np.unique(table["done"])) == {0, 1}:
        lines.insert(5, "    done: [next_state]  # whether the process ends with the step")
        lines.append("    - done: {dim: done, type: category, values: [0, 1]}")
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return (
        name
        if name.isidentifier() and name.lower() not in {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
        else json.dumps(name, ensure_ascii=False)
    )


def _described(node: str, values: NDArray[np.float64]) -> str:
    logged = np.unique(values[~np.isnan(values)].astype(np.float32)).astype(np.float64)  # as `train` reads them
    if not len(logged):
        return f"{{dim: {node}, type: continuous, min: 0, max: 1}}  # no value was logged"
    steps = np.diff(logged)
    grid = round((logged[-1] - logged[0]) / steps.min()) + 1 if len(steps) else 1
    places = (logged - logged[0]) / (steps.min() if len(steps) else 1)
    least, most = (_number(value) for value in (logged[0], logged[-1]))
    ranged = Column("", node, "discrete", float(least), float(most), grid)
    if (
        _FEWEST_STEPS <= len(logged) <= len(values) // 2
        and grid <= _MOST_STEPS
        and np.allclose(places, np.rint(places))
        and ranged.on_grid(logged).all()
    ):
        return f"{{dim: {node}, type: discrete, min: {least}, max: {most}, num: {grid}}}"
    if (logged == np.rint(logged)).all() and len(logged) <= min(_MOST_CATEGORIES, len(values) // 2):
        return f"{{dim: {node}, type: category, values: [{', '.join(map(_number, logged))}]}}"
    return f"{{dim: {node}, type: continuous}}  # {logged[0]:g} to {logged[-1]:g} in the data"


def _number(value: float) -> str:
    """Returns a number as YAML reads it again, to the last digit of float32; `1e+06` were a text there."""
    return np.format_float_positional(np.float32(value), trim="-")
