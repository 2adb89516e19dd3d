"""The learned environment: a decision graph whose nodes are computed by learned networks, in NumPy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlframe.models.actor import ChainActor
from rlframe.revive.distributions import NodeDistribution, NodeLayout, concatenated
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.policy_model import check_is_cpu
from rlframe.utils.errors import CheckpointError, ConfigError, DataError
from rlframe.utils.state_files import read_state, write_state

if TYPE_CHECKING:
    from rlframe.revive.nodes import Node

__all__ = ["STEP", "TRAJECTORY", "NodeModel", "VirtualEnv", "code_width", "node_inputs", "place_codes"]

#: Keys of a state beside its nodes, for networks that see them: step of the trajectory, and its number, `[..., 1]`.
STEP, TRAJECTORY = "step", "traj_id"
_STEP_WIDTH, _TRAJECTORY_WIDTH = 8, 16
_FORMAT = 1

State = Mapping[str, NDArray[Any]]
Arrays = dict[str, NDArray[np.float32]]


class ActsOnState(Protocol):
    """What `replace_policy` takes: `PolicyModel`, or anything like it."""

    def infer(self, state: State, deterministic: bool = True, clip: bool = True) -> NDArray[Any]:
        """Returns the policy node's values in the user's units."""


def _step_features(steps: NDArray[Any]) -> NDArray[np.float32]:
    """Returns sines and cosines of a time step, `[..., 8]`; periods grow from 6 steps to some thousands."""
    angles = np.asarray(steps, np.float32) * (0.1 ** np.arange(_STEP_WIDTH // 2, dtype=np.float32))
    return np.concatenate([np.sin(angles), np.cos(angles)], -1)


def _trajectory_code(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Returns the binary digits of a trajectory's number as −1 and 1, `[..., 16]`."""
    digits = (np.asarray(numbers, np.int64) >> np.arange(_TRAJECTORY_WIDTH)) & 1
    return (2 * digits - 1).astype(np.float32)


def node_inputs(graph: DecisionGraph, node: Node, values: State) -> NDArray[np.float32]:
    """Returns what a node's network sees, in the learned space, `[..., D]`.

    Args:
        graph: Its scalers bring inputs into the learned space.
        node: Whose network it is.
        values: Of its inputs, in the user's units; and `STEP`, `TRAJECTORY` where it sees them, 0 if they are missing.

    Raises:
        DataError: An input is missing.
    """
    missing = [name for name in node.inputs if name not in values]
    if missing:
        raise DataError(f"node {node.name!r} is made of {missing[0]!r}, which the state lacks; got {sorted(values)}")
    parts = [graph.scalers[name].scale(values[name]) for name in node.inputs]
    return concatenated([*parts, *place_codes(node, values, parts[0].shape[:-1])])


def place_codes(node: Node, values: State, lead: tuple[int, ...]) -> list[NDArray[np.float32]]:
    """Returns what a node's network sees of where in a trajectory it is: codes `[..., n]` of step, and of trajectory.

    Args:
        node: Whose network it is.
        values: May have `STEP` and `TRAJECTORY`.
        lead: The leading dimensions.
    """
    wanted = ((node.step_input, STEP, _step_features), (node.traj_id, TRAJECTORY, _trajectory_code))
    return [
        code(np.broadcast_to(values.get(key, np.zeros(1)), (*lead, 1))) for is_wanted, key, code in wanted if is_wanted
    ]


def code_width(node: Node) -> int:
    """Returns how many numbers a node's network sees of where in a trajectory it is, behind all others."""
    return _STEP_WIDTH * node.step_input + _TRAJECTORY_WIDTH * node.traj_id


@dataclass
class NodeModel:
    """The network of a node, as NumPy computes it.

    Attributes:
        layout: What its outputs mean.
        layers: Specs of its layers, plain data.
        weights: Arrays by name; those of a policy that learns are followed.
    """

    layout: NodeLayout
    layers: list[dict[str, Any]]
    weights: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        self._actor = ChainActor({"outputs": self.layers, "values": None}, self.weights)

    def distribution(self, inputs: NDArray[np.float32], rng: np.random.Generator | None = None) -> NodeDistribution:
        """Returns the distribution of values for what the network sees, `[B, D]`, in the learned space."""
        return NodeDistribution(self._actor.forward(inputs), rng, layout=self.layout)


Member = Mapping[str, NodeModel]


class VirtualEnv:
    """An environment learned along a decision graph: one model of each node, or several (an ensemble).

    Inputs and outputs are dicts node → array in the user's units, with any leading dimensions. Nodes that are in the
    dict are not computed, so one call says what the logged controller does, or what follows from another action.

    Args:
        graph: With ranges.
        members: Models by node, of each member; the first one answers, all together say how sure it is.
        seed: Of the draws where answers are no modes.

    Attributes:
        graph: The same.
        members: The same.
        target_policy_name: The node that `replace_policy` replaces.
    """

    def __init__(self, graph: DecisionGraph, members: Sequence[Member], seed: int = 0) -> None:
        self.graph = graph
        self.members = list(members)
        self._networks = tuple(name for name in graph.order if graph.nodes[name].role == "network")
        for place, member in enumerate(self.members):
            lacking = [name for name in self._networks if name not in member]
            if lacking:
                raise ConfigError(f"member {place} has no model of node {lacking[0]!r}; got {sorted(member)}")
        if not self.members:
            raise ConfigError("got no members; wanted models by node, of one member at least")
        self._seed = seed
        self._policy: ActsOnState | None = None
        self.target_policy_name: str | None = None
        self.reset()

    @property
    def env_list(self) -> list[VirtualEnv]:
        """Each member as an environment of its own."""
        return [VirtualEnv(self.graph, [member], self._seed) for member in self.members]

    def reset(self, seed: int | None = None) -> None:
        """Begins the draws anew."""
        self._rng = np.random.default_rng(self._seed if seed is None else seed)

    def to(self, device: Any) -> VirtualEnv:
        """Returns itself: NumPy computes it, on the CPU.

        Raises:
            ConfigError: Another device is asked for.
        """
        check_is_cpu(device)
        return self

    def set_target_policy_name(self, name: str | None = None) -> None:
        """Says which node `replace_policy` replaces; None is the graph's first one."""
        self.target_policy_name = self.graph.policy_node(name)

    def replace_policy(self, policy: ActsOnState | None) -> None:
        """Has a policy compute the target node; None gives it back to its own model."""
        if policy is not None and not callable(getattr(policy, "infer", None)):
            raise ConfigError(f"replace_policy: got {type(policy).__name__}; wanted an object with infer(state)")
        if self.target_policy_name is None:
            self.set_target_policy_name()
        self._policy = policy

    # --- inference --------------------------------------------------------------------------------------------

    def node_dist(self, node: str, state: State, member: int = 0) -> NodeDistribution:
        """Returns the distribution of a node's values, in the learned space, of flat rows `[B, width]`."""
        inputs = node_inputs(self.graph, self.graph.nodes[node], state)
        return self.members[member][node].distribution(inputs.reshape(-1, inputs.shape[-1]), self._rng)

    def node_infer(
        self, node: str, state: State, deterministic: bool = True, clip: bool = True, member: int = 0
    ) -> NDArray[np.float32]:
        """Returns a node's values, float32 `[..., columns]`, in the user's units.

        Args:
            node: A produced node.
            state: Values of its inputs.
            deterministic: The most likely value; else a draw.
            clip: Whether values are kept within the columns' ranges.
            member: Whose model answers.

        Raises:
            ConfigError: There is no such node, or nothing computes it.
        """
        described = self.graph.nodes.get(node)
        if described is None or described.role in {"leaf", "external"}:
            raise ConfigError(f"node {node!r} is not produced by the graph; wanted one of {list(self.graph.order)}")
        if node == self.target_policy_name and self._policy is not None:
            return np.asarray(self._policy.infer(state, deterministic, clip), np.float32)
        if described.role != "network":
            values = self.graph.derive(node, state)
            if clip and described.derivation is not None and described.derivation.kind == "add":
                return self.graph.scalers[node].within(values)
            return values
        inputs = node_inputs(self.graph, described, state)
        rows = inputs.reshape(-1, inputs.shape[-1])
        found = self.members[member][node].distribution(rows, self._rng)
        values = found.deterministic_sample() if deterministic else found.sample()
        return self.graph.scalers[node].unscale(values, clip).reshape(*inputs.shape[:-1], -1)

    def infer_one_step(
        self, state: State, deterministic: bool = True, clip: bool = True, member: int = 0
    ) -> dict[str, NDArray[Any]]:
        """Returns the values of all nodes: those of `state`, and the others computed from them."""
        values = {name: np.asarray(value) for name, value in state.items()}
        for node in self.graph.order:
            if node not in values:
                values[node] = self.node_infer(node, values, deterministic, clip, member)
        return values

    def next_state(self, values: State) -> dict[str, NDArray[Any]]:
        """Returns the leaves of the next step that transitions carry on, of what `infer_one_step` returned."""
        return {base: values[following] for following, base in self.graph.transitions.items()}

    def infer_k_steps(
        self,
        states: State | Sequence[State],
        k: int | None = None,
        deterministic: bool = True,
        clip: bool = True,
        member: int = 0,
    ) -> list[dict[str, NDArray[Any]]]:
        """Returns `k` steps, each as `infer_one_step` does.

        Args:
            states: The first state; or one for each step, of which later ones give what the graph does not carry on:
                external factors, and nodes that shall not be computed.
            k: How many steps; None takes as many as there are states.
            deterministic: Most likely values; else draws.
            clip: Whether values are kept within the columns' ranges.
            member: Whose models answer.

        Raises:
            DataError: External factors end before `k` steps.
        """
        given = [states] if isinstance(states, Mapping) else list(states)
        count = len(given) if k is None else k
        if count > len(given) and self.graph.external:
            raise DataError(
                f"{count} steps need the external factors {list(self.graph.external)} of each; got {len(given)} states"
            )
        made: list[dict[str, NDArray[Any]]] = []
        carried: dict[str, NDArray[Any]] = {}
        for step in range(count):
            now = {**(given[step] if step < len(given) else {}), **carried}
            if any(self.graph.nodes[node].step_input for node in self._networks):
                now.setdefault(STEP, np.array([step], np.float32))
            made.append(self.infer_one_step(now, deterministic, clip, member))
            carried = self.next_state(made[-1])
        return made

    def uncertainty(self, values: State, nodes: Sequence[str] | None = None) -> NDArray[np.float32]:
        """Returns how far the members are apart, `[...]`: the largest standard deviation of a node's mean column.

        Args:
            values: Of all inputs of the nodes.
            nodes: Which; None takes all networks but the target node.

        Returns:
            In the learned space, where ranges have the length 2; 0 with one member.
        """
        asked = [name for name in self._networks if name != self.target_policy_name] if nodes is None else nodes
        spreads = []
        for node in asked:
            inputs = node_inputs(self.graph, self.graph.nodes[node], values)
            rows = inputs.reshape(-1, inputs.shape[-1])
            modes = [member[node].distribution(rows).deterministic_sample() for member in self.members]
            spreads.append(np.std(modes, 0).mean(-1).reshape(inputs.shape[:-1]))
        return np.asarray(np.max(spreads, 0), np.float32)

    # --- files ------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> None:
        """Writes the environment as arrays and JSON; what stood there stays until all of it is written."""
        described = [
            {node: {"layout": model.layout.to_dict(), "layers": model.layers} for node, model in member.items()}
            for member in self.members
        ]
        folder = None if self.graph.folder is None else str(self.graph.folder.resolve())
        meta = {
            "format": _FORMAT, "graph": self.graph.to_dict(), "fingerprint": self.graph.fingerprint,
            "functions_folder": folder, "members": described, "seed": self._seed,
        }  # fmt: skip
        arrays = [
            {node: {name: np.asarray(weight) for name, weight in model.weights.items()} for node, model in one.items()}
            for one in self.members
        ]
        write_state(directory, {"members": arrays}, json.loads(json.dumps(meta)))

    @classmethod
    def load(cls, directory: str | Path, trust: bool = False, functions: str | Path | None = None) -> VirtualEnv:
        """Reads what `save` wrote; nothing is executed unless the expert functions are trusted.

        Args:
            directory: Where it is.
            trust: Whether the graph's expert functions are loaded, which runs their files; they must be unchanged.
            functions: Folder of these files; None is where they were.

        Raises:
            CheckpointError: What is there is no learned environment, or damaged.
            ConfigError: An expert function is missing, or changed since.
        """
        state, meta = read_state(directory)
        if meta.get("format") != _FORMAT or "members" not in state:
            raise CheckpointError(f"{directory} holds no learned environment of format {_FORMAT}; got {sorted(meta)}")
        graph = DecisionGraph.from_dict(meta["graph"], str(directory))
        folder = functions or meta["functions_folder"]
        graph.folder = None if folder is None else Path(folder)  # saved again, it still says where its functions are
        if trust and any(node.function is not None for node in graph.nodes.values()):
            graph.load_functions()
        members = [
            {
                node: NodeModel(NodeLayout.from_dict(said["layout"]), said["layers"], arrays[node])
                for node, said in described.items()
            }
            for described, arrays in zip(meta["members"], state["members"], strict=True)
        ]
        return cls(graph, members, meta["seed"])
