"""Nodes of a decision graph: what the graph file says, completed by what follows from it, and put into order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rlframe.revive.columns import Column
from rlframe.revive.functions import FunctionReference, file_hash
from rlframe.revive.graph_file import RESERVED, GraphSpec, NodeOptions, near
from rlframe.utils.errors import ConfigError

__all__ = ["Derivation", "Node", "Role", "resolve"]

#: Node, and array of the data, whose values above ½ say that the process has ended with the row.
DONE = "done"
#: Array of the data with the ends of trajectories.
INDEX = "index"
Role = Literal["leaf", "external", "network", "function", "derived"]


@dataclasses.dataclass(frozen=True)
class Derivation:
    """How a derived node follows from its inputs, in the user's units.

    Attributes:
        kind: `add`: the sum of both. `shift`: the window without its oldest frame, then the new one. `take`: the
            window's oldest frames.
        columns: Columns of a frame to drop (`shift`), or to keep (`take`).
    """

    kind: Literal["add", "shift", "take"]
    columns: int = 0

    def __call__(self, inputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Returns the node's values `[..., columns]`."""
        if self.kind == "add":
            return inputs[0] + inputs[1]
        if self.kind == "take":
            return inputs[0][..., : self.columns]
        return np.concatenate([inputs[0][..., self.columns :], inputs[1]], axis=-1)


@dataclasses.dataclass(frozen=True)
class Node:
    """One array of the data, and what makes it.

    Attributes:
        name: Key of its array.
        inputs: Nodes that it is made of; none for leaves.
        role: `leaf`: part of the state, which a transition carries on. `external`: nobody's output, follows the log.
            `network`: learned. `function`: the user's code. `derived`: follows from others by its definition.
        columns: Of its array.
        ts: Frames of a window; None for a node of one frame.
        ts_length: Frames that are kept of it, the oldest; None keeps all.
        step_input: Whether its network sees the time step.
        traj_id: Whether its network sees which trajectory it is in.
        frozen: Whether its network is not trained.
        loss_type: Loss of its supervised training, where the graph file says one.
        function: Where the user's code is.
        derivation: How a derived node is made.
    """

    name: str
    inputs: tuple[str, ...]
    role: Role
    columns: tuple[Column, ...]
    ts: int | None = None
    ts_length: int | None = None
    step_input: bool = False
    traj_id: bool = False
    frozen: bool = False
    loss_type: str | None = None
    function: FunctionReference | None = None
    derivation: Derivation | None = None


def resolve(spec: GraphSpec, folder: Path | None) -> tuple[dict[str, Node], tuple[str, ...], dict[str, str]]:
    """Returns all nodes by name, the produced ones in order, and the transitions.

    Args:
        spec: The graph file.
        folder: Where the files of expert functions are; None where they are not looked at.

    Raises:
        ConfigError: Entries that do not fit each other.
    """
    return _Resolution(spec, folder).result()


class _Resolution:
    """Completes a graph; `inputs` and `columns` grow by derived nodes."""

    def __init__(self, spec: GraphSpec, folder: Path | None) -> None:
        self.spec = spec
        self.folder = folder
        self.inputs = dict(spec.inputs)
        self.columns = dict(spec.columns)
        self.derived: dict[str, Derivation] = {}
        self.windows: dict[str, str] = {}  # leaf with a window -> whose window

    def result(self) -> tuple[dict[str, Node], tuple[str, ...], dict[str, str]]:
        self._check_names()
        self._add_deltas()
        self._add_windows()
        transitions = dict(self._transitions())
        order = self._in_order()
        self._check_functions()
        leaves = dict.fromkeys(name for name in self._mentioned() if name not in self.inputs)
        leaves |= dict.fromkeys(name for name in (*transitions.values(), *self.windows.values()) if name not in order)
        nodes = {name: self._node(name, set(transitions.values())) for name in (*leaves, *order)}
        self._check_lists(nodes)
        return nodes, order, transitions

    def _mentioned(self) -> Iterator[str]:
        for node, inputs in self.inputs.items():
            yield from inputs
            yield node

    def _check_names(self) -> None:
        mentioned = set(self._mentioned())
        if INDEX in mentioned:
            raise ConfigError(
                f"graph: {INDEX!r} is where trajectories end, in the data; wanted another name for a node"
            )
        self._check_done(mentioned)
        for node in self.columns:
            if node.startswith(RESERVED):
                raise ConfigError(f"columns: node {node!r} takes its columns from the node without the prefix")
            if not mentioned & {node, "next_" + node, "ts_" + node, "delta_" + node}:
                raise ConfigError(f"columns: the graph has no node {node!r}; {near(node, sorted(mentioned))}")
        for node in self.spec.options:
            if node not in mentioned and f"ts_{node}" not in mentioned and node not in self.columns:
                raise ConfigError(f"nodes: the graph has no node {node!r}; {near(node, sorted(mentioned))}")

    def _check_done(self, mentioned: set[str]) -> None:
        columns = self.columns.get(DONE, ())
        if DONE not in mentioned or not columns:
            return
        values = columns[0].values
        if len(columns) > 1 or not set(values or ()) <= {0, 1}:
            raise ConfigError(
                f"columns: node {DONE!r} says whether the process ends; wanted one column, "
                f"{{dim: {DONE}, type: category, values: [0, 1]}}"
            )

    def _base_columns(self, node: str, prefix: str) -> tuple[Column, ...]:
        base = node.removeprefix(prefix)
        if base not in self.columns:
            raise ConfigError(f"graph: {node!r} is made of node {base!r}, which has no columns; add them to columns")
        return self.columns[base]

    def _add_deltas(self) -> None:
        """Makes `next_X` of X and `delta_X`, where that is learned instead."""
        for node in list(self.inputs):
            if not node.startswith("delta_") or node in self.columns:
                continue
            base = self._base_columns(node, "delta_")
            if any(column.kind == "category" for column in base):
                raise ConfigError(f"graph: {node!r} needs numbers; node {node[6:]!r} has a category column")
            self.columns[node] = tuple(
                Column(f"delta_{column.name}", node, "continuous", fit=column.fit) for column in base
            )
            following, parts = f"next_{node[6:]}", (node[6:], node)
            if set(self.inputs.setdefault(following, parts)) == set(parts) and following not in self.spec.functions:
                self.inputs[following] = parts
                self.derived[following] = Derivation("add")

    def _add_windows(self) -> None:
        """Adds what keeps each window `ts_X` up to date."""
        for window in [name for name in dict.fromkeys(self._mentioned()) if name.startswith("ts_")]:
            base = window[3:]
            columns = self._base_columns(window, "ts_")
            options = self.spec.options.get(base, NodeOptions())
            if options.ts is None:
                raise ConfigError(f"graph: {window!r} needs a number of frames; add nodes: {base}: {{ts: FRAMES}}")
            if window in self.inputs:
                raise ConfigError(f"graph: {window!r} follows from the frames of {base!r}; it cannot be produced")
            kept = options.ts_length or options.ts
            self.columns[window] = _frames(window, columns, options.ts)[: kept * len(columns)]
            whole = window
            if kept < options.ts:
                whole = f"all_{window}"
                self.columns[whole] = _frames(whole, columns, options.ts)
                self._derive(window, (whole,), Derivation("take", kept * len(columns)))
            self._keep_window(whole, base, len(columns))

    def _keep_window(self, whole: str, base: str, columns: int) -> None:
        newest = f"next_{base}" if f"next_{base}" in self.inputs else base
        self.windows[whole] = base
        if newest in self.inputs:  # else an external factor's: the log has it
            self._derive(f"next_{whole}", (whole, newest), Derivation("shift", columns))

    def _derive(self, node: str, inputs: tuple[str, ...], derivation: Derivation) -> None:
        written = self.inputs.get(node)
        if written is not None and set(written) != set(inputs):
            raise ConfigError(f"graph: {node!r} follows from {' and '.join(inputs)}; got the inputs {list(written)}")
        self.inputs[node] = inputs
        self.derived[node] = derivation

    def _transitions(self) -> Iterator[tuple[str, str]]:
        for node in self.inputs:
            if node.startswith("next_"):
                base = node.removeprefix("next_")
                self.columns[node] = tuple(
                    dataclasses.replace(column, node=node) for column in self._base_columns(node, "next_")
                )
                if base in self.inputs:
                    raise ConfigError(f"graph: {node!r} is {base!r} at the next step, so {base!r} cannot be produced")
                yield node, base

    def _in_order(self) -> tuple[str, ...]:
        """Returns produced nodes, each behind its inputs, else in the file's order."""
        order: dict[str, None] = {}
        waiting = list(self.inputs)
        while waiting:
            ready = next(
                (node for node in waiting if all(i in order or i not in self.inputs for i in self.inputs[node])), None
            )
            if ready is None:
                raise ConfigError(f"graph: a cycle, {self._cycle(waiting)}; a node cannot be made of itself")
            order[ready] = None
            waiting.remove(ready)
        return tuple(order)

    def _cycle(self, waiting: Sequence[str]) -> str:
        path = [waiting[0]]
        while path[-1] not in path[:-1]:
            path.append(next(name for name in self.inputs[path[-1]] if name in waiting))
        return " <- ".join(path[path.index(path[-1]) :])

    def _check_functions(self) -> None:
        for node in self.spec.functions:
            if node not in self.inputs or node in self.derived:
                known = [name for name in self.inputs if name not in self.derived]
                raise ConfigError(f"expert_functions: the graph produces no node {node!r}; {near(node, known)}")

    def _node(self, name: str, states: set[str]) -> Node:
        if name not in self.columns:
            raise ConfigError(f"graph: node {name!r} has no columns; add `- COLUMN: {{dim: {name}, type: ...}}`")
        for column in self.columns[name]:
            if column.kind == "discrete" and column.num is None:
                raise ConfigError(f"columns: discrete column {column.name!r} needs num, how many values it has")
            if column.kind == "category" and column.values is None:
                raise ConfigError(f"columns: category column {column.name!r} needs values, a list of them")
        options = self.spec.options.get(name, NodeOptions())
        window = self.spec.options.get(self.windows.get(name, ""), NodeOptions())
        reference = self.spec.functions.get(name)
        return Node(
            name=name,
            inputs=self.inputs.get(name, ()),
            role=self._role(name, states),
            columns=self.columns[name],
            ts=window.ts,
            ts_length=window.ts_length,
            step_input=options.step_input,
            traj_id=options.traj_id,
            frozen=options.freeze,
            loss_type=options.loss_type,
            function=None if reference is None else self._reference(name, *reference),
            derivation=self.derived.get(name),
        )

    def _role(self, name: str, states: set[str]) -> Role:
        if name not in self.inputs:
            return "leaf" if name in states else "external"
        if name in self.derived:
            return "derived"
        return "function" if name in self.spec.functions else "network"

    def _reference(self, node: str, file: str, function: str) -> FunctionReference:
        """Returns where a function is, and the hash of its file; nothing of it is run."""
        if self.folder is None:
            return FunctionReference(file, function, None)
        if not (self.folder / file).is_file():
            raise ConfigError(f"expert_functions: node {node!r}: there is no file {str(self.folder / file)!r}")
        return FunctionReference(file, function, file_hash(self.folder / file))

    def _check_lists(self, nodes: dict[str, Node]) -> None:
        networks = [node.name for node in nodes.values() if node.role == "network"]
        produced = [node.name for node in nodes.values() if node.inputs]
        external = [node.name for node in nodes.values() if node.role == "external"]
        for name in networks:
            if not any(column.fit for column in nodes[name].columns):
                raise ConfigError(
                    f"columns: all columns of node {name!r} have fit: false, so nothing of it would be learned or "
                    "judged; let one count, or leave the node out of the graph"
                )
        for name in self.spec.metric_nodes or ():
            if name not in produced:
                raise ConfigError(f"metric_nodes: {name!r} is no produced node; {near(name, produced)}")
        for name in self.spec.tunable:
            if name not in external:
                wanted = near(name, external) if external else "this graph has no external factor"
                raise ConfigError(f"tunable: {name!r} is no external factor; {wanted}")
        for name, options in self.spec.options.items():
            if (options.freeze or options.step_input or options.traj_id or options.loss_type) and name not in networks:
                raise ConfigError(f"nodes: {name!r} is no network, which its entry is for; {near(name, networks)}")


def _frames(window: str, columns: tuple[Column, ...], frames: int) -> tuple[Column, ...]:
    """Returns the columns of a window, oldest frame first."""
    return tuple(
        dataclasses.replace(column, name=f"{column.name}[{frame}]", node=window)
        for frame in range(1 - frames, 1)
        for column in columns
    )
