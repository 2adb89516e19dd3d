"""The graph file as it is written: read and checked entry by entry; `graph` makes the decision graph of it."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from rlframe.revive.columns import KINDS, Column
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import read_text
from rlframe.utils.yaml_text import parse_yaml

__all__ = ["GraphSpec", "NodeOptions", "parse_graph", "read_yaml"]

_KEYS = ("graph", "columns", "expert_functions", "nodes", "metric_nodes", "tunable")
_COLUMN_KEYS = {
    "continuous": ("dim", "type", "fit", "min", "max"),
    "discrete": ("dim", "type", "fit", "min", "max", "num"),
    "category": ("dim", "type", "fit", "values"),
}
_NODE_KEYS = ("ts", "ts_length", "step_input", "traj_id", "freeze", "loss_type")
LOSSES = ("log_prob", "mae", "mse")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_REFERENCE = re.compile(r"(?P<file>[^\s]+?)\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\Z")
RESERVED = ("next_", "ts_", "all_ts_")


@dataclasses.dataclass(frozen=True)
class NodeOptions:
    """What `nodes` says of one node; the attributes are the keys there."""

    ts: int | None = None
    ts_length: int | None = None
    step_input: bool = False
    traj_id: bool = False
    freeze: bool = False
    loss_type: str | None = None


@dataclasses.dataclass(frozen=True)
class GraphSpec:
    """A graph file that says something possible of each entry alone.

    Attributes:
        inputs: Input nodes of each produced node.
        columns: Columns of each node that has some of its own.
        functions: `(file, function)` of each node that is a function of the user's.
        options: What `nodes` says, by node.
        metric_nodes: Those that count in the metric; None where the file does not say.
        tunable: Those that parameter tuning searches.
    """

    inputs: dict[str, tuple[str, ...]]
    columns: dict[str, tuple[Column, ...]]
    functions: dict[str, tuple[str, str]]
    options: dict[str, NodeOptions]
    metric_nodes: tuple[str, ...] | None
    tunable: tuple[str, ...]


def near(name: Any, known: Iterable[str]) -> str:
    """Returns a question for the nearest known name, or what is known where none is near."""
    known = [str(one) for one in known]
    alike = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {alike[0]!r}?" if alike else f"wanted one of {', '.join(known)}"


def read_yaml(path: Path) -> Any:
    """Returns what a YAML file says.

    Raises:
        ConfigError: It is not there, is no YAML, or says something twice.
    """
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigError(f"{path}: the graph file cannot be read: {said}") from None
    return parse_yaml(text, where=str(path), unique=True)


def parse_graph(document: Any, source: str) -> GraphSpec:
    """Returns what a graph file says, each entry checked.

    Args:
        document: What the YAML holds: `metadata` with the keys of `GraphSpec`, or these keys alone.
        source: Of the document, for messages.

    Raises:
        ConfigError: An entry is wrong; says which and what was wanted.
    """
    try:
        return _parse(document.get("metadata", document) if isinstance(document, Mapping) else document)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _parse(metadata: Any) -> GraphSpec:
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("graph"), Mapping):
        raise ConfigError("wanted `metadata:` with `graph:`, a map from each produced node to its input nodes")
    for key in metadata:
        if key == "custom_nodes":
            raise ConfigError("custom_nodes are classes of Revive's networks; make them expert_functions instead")
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key!r}; {near(key, _KEYS)}")
    inputs = {_node_name(node): _inputs(node, names) for node, names in metadata["graph"].items()}
    if not inputs:
        raise ConfigError("graph: no node; wanted a map from each produced node to its input nodes")
    metric = metadata.get("metric_nodes")
    return GraphSpec(
        inputs=inputs,
        columns=_columns(metadata.get("columns") or ()),
        functions=dict(_functions(metadata.get("expert_functions") or {})),
        options=dict(_options(metadata.get("nodes") or {})),
        metric_nodes=None if metric is None else _names("metric_nodes", metric),
        tunable=_names("tunable", metadata.get("tunable") or ()),
    )


def _node_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.match(name):
        raise ConfigError(f"graph: got the node name {name!r}; wanted letters, digits, '_', '-' and '.'")
    return name


def _names(key: str, names: Any) -> tuple[str, ...]:
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple):
        raise ConfigError(f"{key}: got {names!r}; wanted a list of nodes")
    return tuple(_node_name(name) for name in names)


def _inputs(node: Any, names: Any) -> tuple[str, ...]:
    found = _names(f"graph: {node}", names)
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"graph: node {node!r} has the inputs {list(found)}; wanted each of them once, at least one")
    return found


def _entries(key: str, entries: Any) -> Iterator[tuple[str, Any]]:
    """Yields what is a list of single-entry maps, or one map."""
    listed = [entries] if isinstance(entries, Mapping) else entries
    if not isinstance(listed, list | tuple) or not all(isinstance(entry, Mapping) for entry in listed):
        raise ConfigError(f"{key}: got {entries!r}; wanted a list of entries `- NAME: {{...}}`")
    for name, said in (item for entry in listed for item in entry.items()):
        if name is None or isinstance(name, bool):
            raise ConfigError(f'{key}: got the name {name}, which YAML reads as no text; write it in quotes, as "yes"')
        yield str(name), said


def _columns(entries: Any) -> dict[str, tuple[Column, ...]]:
    columns: dict[str, tuple[Column, ...]] = {}
    for name, said in _entries("columns", entries):
        column = _column(name, said)
        before = columns.get(column.node, ())
        if any(other.name == name for other in before):
            raise ConfigError(f"columns: node {column.node!r} has two columns named {name!r}; rename one")
        columns[column.node] = (*before, column)
    return columns


def _column(name: str, said: Any) -> Column:
    where = f"columns: column {name!r}"
    if not isinstance(said, Mapping) or "dim" not in said:
        raise ConfigError(f"{where}: got {said!r}; wanted {{dim: NODE, type: continuous, discrete or category}}")
    kind = said.get("type", "continuous")
    if kind not in KINDS:
        raise ConfigError(f"{where} has type {kind!r}; {near(kind, KINDS)}")
    for key in said:
        if key not in _COLUMN_KEYS[kind]:
            raise ConfigError(f"{where}: unknown key {key!r} of a {kind} column; {near(key, _COLUMN_KEYS[kind])}")
    fit = said.get("fit", True)
    if not isinstance(fit, bool):
        raise ConfigError(f"{where}: fit is {fit!r}; wanted true or false")
    low, high = (_number(where, key, said.get(key)) for key in ("min", "max"))
    if low is not None and high is not None and low > high:
        raise ConfigError(f"{where}: min {low:g} is above max {high:g}")
    if kind == "discrete" and said.get("num") == 1 and None not in {low, high} and low != high:
        raise ConfigError(f"{where}: num is 1 from {low:g} to {high:g}; wanted 2 at least, the ends are two values")
    return Column(
        name=name,
        node=_node_name(said["dim"]),
        kind=cast("Any", kind),
        low=low,
        high=high,
        num=_count(f"{where}: num", said.get("num")) if kind == "discrete" else None,
        values=_values(where, said.get("values")) if kind == "category" else None,
        fit=fit,
    )


def _number(where: str, key: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
        raise ConfigError(f"{where}: {key} is {value!r}; wanted a number")
    return float(value)


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{what} is {value!r}; wanted a whole number of at least 1")
    return value


def _values(where: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{where}: values is {values!r}; wanted the list of its values, as numbers")
    numbers = tuple(cast("float", _number(where, "one of values", value)) for value in values)
    if None in numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"{where}: values is {list(values)}; wanted each value once, as a number")
    return numbers


def _functions(said: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    for node, entry in _entries("expert_functions", said):
        reference = entry.get("node_function") if isinstance(entry, Mapping) and len(entry) == 1 else None
        parts = _REFERENCE.match(reference) if isinstance(reference, str) else None
        if parts is None:
            raise ConfigError(f"expert_functions: {node}: got {entry!r}; wanted {{node_function: FILE.FUNCTION}}")
        yield node, (parts["file"].removesuffix(".py") + ".py", parts["name"])


def _options(said: Any) -> Iterator[tuple[str, NodeOptions]]:
    for node, entry in _entries("nodes", said):
        where = f"nodes: {node}"
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{where}: got {entry!r}; wanted a map of {', '.join(_NODE_KEYS)}")
        for key, value in entry.items():
            if key not in _NODE_KEYS:
                raise ConfigError(f"{where}: unknown key {key!r}; {near(key, _NODE_KEYS)}")
            if key in {"ts", "ts_length"}:
                _count(f"{where}: {key}", value)
            elif key == "loss_type" and value not in LOSSES:
                raise ConfigError(f"{where}: loss_type is {value!r}; wanted one of {', '.join(LOSSES)}")
            elif key != "loss_type" and not isinstance(value, bool):
                raise ConfigError(f"{where}: {key} is {value!r}; wanted true or false")
        options = NodeOptions(**entry)
        if options.ts_length is not None and options.ts_length > (options.ts or 0):
            raise ConfigError(f"{where}: ts_length {options.ts_length} needs ts of at least as many frames")
        yield node, options
