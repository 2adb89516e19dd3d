"""The decision graph: which node is made of which, in which order, and what its numbers mean."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlframe.revive.columns import Column, NodeScaler
from rlframe.revive.functions import FunctionReference, NodeFunction, load_function
from rlframe.revive.graph_file import GraphSpec, near, parse_graph, read_yaml
from rlframe.revive.nodes import DONE, Derivation, Node, Role, resolve
from rlframe.utils.errors import ConfigError, NonFiniteError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DecisionGraph", "Derivation", "Node", "Role"]


class HasArrays(Protocol):
    """What ranges are read from: arrays by node, and which of their values were logged."""

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Arrays `[N, columns]` by node."""

    @property
    def mask(self) -> dict[str, NDArray[np.bool_]]:
        """Likewise, True where the value was logged."""


class DecisionGraph:
    """A directed graph of nodes without cycles, which says how each step of the logged process came about.

    Args:
        spec: The graph file, parsed.
        source: Where it came from, for messages.
        folder: Where the files of expert functions are; None where they are not looked at.

    Attributes:
        nodes: By name: leaves first, then produced nodes in `order`.
        order: Produced nodes, each after its inputs; else as in the graph file.
        transitions: Which node is which at the next step: `{"next_level": "level"}`.
        external: Nodes that follow the log.
        metric_nodes: Nodes whose errors make the metric.
        tunable: External nodes that parameter tuning searches.
        frozen: Networks that are not trained.
        functions: Of the function nodes, after `load_functions`.
        scalers: Of all nodes, after `fit_ranges`.
    """

    def __init__(self, spec: GraphSpec, source: str = "graph", folder: Path | None = None) -> None:
        self._spec = spec
        self.source = source
        self.folder = folder
        try:
            self.nodes, self.order, self.transitions = resolve(spec, folder)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
        self.external = tuple(node.name for node in self.nodes.values() if node.role == "external")
        networks = [name for name in self.order if self.nodes[name].role == "network"]
        self.metric_nodes = spec.metric_nodes or tuple(networks)
        self.tunable = spec.tunable
        self.frozen = tuple(name for name in networks if self.nodes[name].frozen)
        self.functions: dict[str, NodeFunction] = {}
        self.scalers: dict[str, NodeScaler] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Reads a graph file (YAML). Expert functions are not loaded, but their files must be there.

        Raises:
            ConfigError: What is wrong in it, in one sentence with the file's name.
        """
        path = Path(path)
        return cls(parse_graph(read_yaml(path), str(path)), str(path), path.parent)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], source: str = "graph") -> Self:
        """Makes a graph of what a graph file holds, or of what `to_dict` returned."""
        graph = cls(
            parse_graph({key: saved[key] for key in saved if key not in {"functions", "ranges"}}, source), source
        )
        for node, entry in saved.get("functions", {}).items():
            graph.nodes[node] = dataclasses.replace(graph.nodes[node], function=FunctionReference(**entry))
        graph._set_ranges({node: np.asarray(ranges, float) for node, ranges in saved.get("ranges", {}).items()})
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Returns the graph as JSON can hold it: the graph file, hashes of functions, ranges read from the data."""
        saved: dict[str, Any] = {"metadata": _plain(self._spec), "functions": self._references()}
        if self.scalers:
            saved["ranges"] = {
                node: np.stack([scaler.low, scaler.high], -1).tolist() for node, scaler in self.scalers.items()
            }
        return saved

    def _references(self) -> dict[str, dict[str, str | None]]:
        return {node.name: dataclasses.asdict(node.function) for node in self.nodes.values() if node.function}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the graph file and its functions say; ranges read from data are not in it."""
        said = json.dumps([_plain(self._spec), self._references()], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def load_functions(self, folder: str | Path | None = None) -> Self:
        """Loads the expert functions, which runs their files; whoever calls it trusts them.

        Args:
            folder: Where the files are; None is where the graph file was.

        Raises:
            ConfigError: A file is not there, or is another than the graph was made with.
        """
        place = self.folder if folder is None else Path(folder)
        for node in self.nodes.values():
            if node.function is not None:
                if place is None:
                    raise ConfigError(f"{self.source}: say in which folder {node.function.file!r} is")
                self.functions[node.name] = load_function(node.function, place)
        return self

    def fit_ranges(self, data: HasArrays) -> Self:
        """Takes the ranges that the graph file does not say from the data, and makes the scalers.

        A node and what it is at the next step have one range.
        """
        ranges = {}
        for name, node in self.nodes.items():
            if self.transitions.get(name, name) == name and not name.startswith(("ts_", "all_ts_")):
                sources = [one for one in (name, f"next_{name}") if one in data.arrays]
                ranges[name] = np.array(
                    [self._range(column, i, sources, data) for i, column in enumerate(node.columns)]
                )
        self._set_ranges(ranges)
        return self

    def _range(self, column: Column, place: int, sources: list[str], data: HasArrays) -> tuple[float, float]:
        if column.values is not None:
            return min(column.values), max(column.values)
        if column.low is not None and column.high is not None:
            return column.low, column.high
        parts = [data.arrays[name][:, place][data.mask[name][:, place]] for name in sources]
        logged = np.concatenate([*parts, np.zeros(0, np.float32)])
        if not len(logged):
            raise ConfigError(
                f"{self.source}: column {column.name!r} of node {column.node!r} has no value in the data; say it"
            )
        low = float(logged.min()) if column.low is None else column.low
        high = float(logged.max()) if column.high is None else column.high
        return min(low, high), max(low, high)

    def _set_ranges(self, ranges: Mapping[str, NDArray[Any]]) -> None:
        """Puts ranges into columns; windows and next steps have those of the node that they are of."""
        if not ranges:
            return
        for name, node in self.nodes.items():
            base = name.removeprefix("next_").removeprefix("all_").removeprefix("ts_")
            found = ranges[name] if name in ranges else ranges[base]
            found = np.tile(found, (len(node.columns) // len(found), 1))
            columns = tuple(
                column if column.values is not None else dataclasses.replace(column, low=float(low), high=float(high))
                for column, (low, high) in zip(node.columns, found, strict=True)
            )
            self.nodes[name] = dataclasses.replace(node, columns=columns)
            self.scalers[name] = NodeScaler(columns)

    def derive(self, node: str, values: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
        """Returns a derived or function node's values `[..., columns]` from those of its inputs.

        Raises:
            ConfigError: The node is a function, which is not loaded.
            NonFiniteError: It gives NaN or infinity.
        """
        described = self.nodes[node]
        if described.derivation is not None:
            return described.derivation([values[name] for name in described.inputs])
        if node not in self.functions:
            raise ConfigError(f"{self.source}: node {node!r} is a function that is not loaded; load with trust=True")
        inputs = {name: values[name] for name in described.inputs}
        computed = self.functions[node](inputs)
        if not np.isfinite(computed).all():
            row = tuple(np.argwhere(~np.isfinite(computed))[0][:-1])
            there = ", ".join(f"{name} {array[row].tolist()}" for name, array in inputs.items())
            raise NonFiniteError(
                f"{self.functions[node].where} returned {computed[row].tolist()} for node {node!r}, where there is "
                f"{there}; wanted finite values"
            )
        return computed

    def follows_from_data(self, name: str) -> bool:
        """Says whether a node is never read from a file: windows, and differences of two steps."""
        if name.removeprefix("next_").startswith(("ts_", "all_ts_")):
            return True
        step = self.nodes.get(f"next_{name.removeprefix('delta_')}") if name.startswith("delta_") else None
        return step is not None and step.derivation is not None

    def space(self, node: str) -> Box:
        """Returns the space of a node's array in the user's units; unlimited where a range is not known yet."""
        columns = self._known(node).columns
        limits = [
            (min(column.values), max(column.values)) if column.values is not None else (column.low, column.high)
            for column in columns
        ]
        low = np.array([-np.inf if limit is None else limit for limit, _ in limits], np.float32)
        high = np.array([np.inf if limit is None else limit for _, limit in limits], np.float32)
        return Box(low, high, dtype=np.float32)

    def policy_node(self, name: str | None = None) -> str:
        """Returns the node to optimise: the named one, else the first network that is no transition.

        Raises:
            ConfigError: There is no such network.
        """
        networks = [
            node
            for node in self.order
            if self.nodes[node].role == "network" and node != DONE and not node.startswith(("next_", "delta_"))
        ]
        if not networks:
            raise ConfigError(
                f"{self.source}: the graph has no network besides transitions; there is nothing to optimise"
            )
        if name is None:
            return next((node for node in networks if node not in self.frozen), networks[0])
        if name not in networks:
            raise ConfigError(f"{self.source}: target_policy_name {name!r} is no policy node; {near(name, networks)}")
        return name

    def check_completes(self, venv: DecisionGraph) -> tuple[str, ...]:
        """Returns which leaves of a learned environment's graph this graph makes, such as the policy node.

        Raises:
            ConfigError: Another node is not what it is there.
        """
        added = tuple(name for name in self.order if venv.nodes.get(name) and not venv.nodes[name].inputs)
        for name in dict.fromkeys([*self.nodes, *venv.nodes]):
            mine, theirs = self.nodes.get(name), venv.nodes.get(name)
            if mine is not None and theirs is not None and _columns(mine) != _columns(theirs):
                raise ConfigError(
                    f"{self.source}: node {name!r} has other columns, or of other types, than in {venv.source}"
                )
            leaf_of_one = (mine is None or theirs is None) and not (_made_of(mine) or _made_of(theirs))[0]
            if name not in added and not leaf_of_one and _made_of(mine) != _made_of(theirs):
                raise ConfigError(
                    f"{self.source}: node {name!r} is made of {_shown(mine)}, in {venv.source} of {_shown(theirs)}; "
                    "graphs of both stages may differ in the policy node only"
                )
        return added

    def _known(self, name: str) -> Node:
        if name not in self.nodes:
            raise ConfigError(f"{self.source}: the graph has no node {name!r}; {near(name, self.nodes)}")
        return self.nodes[name]


def _columns(node: Node) -> list[Column]:
    return [dataclasses.replace(column, low=None, high=None) for column in node.columns]


def _made_of(node: Node | None) -> tuple[Any, ...]:
    return () if node is None else (node.inputs, node.role, node.function, node.derivation)


def _shown(node: Node | None) -> str:
    return "nothing" if node is None else f"{', '.join(node.inputs) or 'nothing'} ({node.role})"


def _plain(spec: GraphSpec) -> dict[str, Any]:
    """Returns a specification as `metadata` of a graph file."""
    metadata: dict[str, Any] = {
        "graph": {node: list(inputs) for node, inputs in spec.inputs.items()},
        "columns": [{column.name: _plain_column(column)} for columns in spec.columns.values() for column in columns],
        "expert_functions": {
            node: {"node_function": f"{file.removesuffix('.py')}.{name}"}
            for node, (file, name) in spec.functions.items()
        },
        "nodes": {node: _changed(options) for node, options in spec.options.items()},
        "tunable": list(spec.tunable),
    }
    return metadata if spec.metric_nodes is None else {**metadata, "metric_nodes": list(spec.metric_nodes)}


def _changed(options: Any) -> dict[str, Any]:
    return {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != field.default
    }


def _plain_column(column: Column) -> dict[str, Any]:
    said: dict[str, Any] = {
        "dim": column.node,
        "type": column.kind,
        "min": column.low,
        "max": column.high,
        "num": column.num,
    }
    if column.values is not None:
        said["values"] = list(column.values)
    if not column.fit:
        said["fit"] = False
    return {key: value for key, value in said.items() if value is not None}
