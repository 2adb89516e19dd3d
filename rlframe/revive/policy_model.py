"""A trained policy as its users have it: arrays by node in, actions in the units of the graph file out; NumPy alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlframe.models.actor import ChainActor
from rlframe.revive.columns import as_numbers
from rlframe.revive.graph import DecisionGraph
from rlframe.utils.errors import CheckpointError, ConfigError, DataError
from rlframe.utils.seeding import make_rng
from rlframe.utils.state_files import read_state, write_state
from rlframe.version import __version__

Head = Literal["gaussian", "squashed", "deterministic"]
HEADS: tuple[Head, ...] = ("gaussian", "squashed", "deterministic")
_KIND = "revive policy"
#: Bounds of log standard deviations of a squashed Gaussian, as its losses have them.
_LOG_STD = (-20.0, 2.0)


@dataclass(frozen=True)
class PolicyNetwork:
    """A network from scaled inputs to a distribution over scaled actions.

    Attributes:
        spec: Its layers, see `rlframe.models.actor`.
        weights: Their arrays by name, float32.
        head: What its outputs are: means and log standard deviations of Gaussians; the same of Gaussians that tanh is
            applied to; actions.
    """

    spec: Mapping[str, Any]
    weights: Mapping[str, NDArray[np.float32]]
    head: Head

    def means(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the most likely actions `[B, A]` for inputs `[B, D]`."""
        outputs = ChainActor(self.spec, self.weights).forward(obs)
        if self.head == "deterministic":
            return outputs
        means = outputs[:, : outputs.shape[1] // 2]
        return np.tanh(means) if self.head == "squashed" else means

    def samples(self, obs: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Returns actions `[B, A]` drawn for inputs `[B, D]`."""
        if self.head == "deterministic":
            return self.means(obs)
        outputs = ChainActor(self.spec, self.weights).forward(obs)
        means, log_std = np.split(outputs, 2, axis=1)
        if self.head == "squashed":
            log_std = np.clip(log_std, *_LOG_STD)
        drawn = means + np.exp(log_std) * rng.standard_normal(means.shape, np.float32)
        return np.asarray(np.tanh(drawn) if self.head == "squashed" else drawn, np.float32)


class PolicyModel:
    """What decides one node of a graph.

    Args:
        graph: With ranges; the scalers of the node and its inputs are read.
        node: Which node it decides.
        network: What decides.
        about: How it came about, as JSON can hold it; saved with it.
        seed: Of samples.
    """

    def __init__(
        self, graph: DecisionGraph, node: str, network: PolicyNetwork, about: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.node = node
        self.inputs = policy_inputs(graph, node)
        self.network = network
        self.about = dict(about or {})
        self._rng = make_rng(seed, "revive policy")

    def infer(
        self, state: Mapping[str, ArrayLike], deterministic: bool = True, clip: bool = True, additional_info: Any = None
    ) -> NDArray[np.float32]:
        """Returns the node's values `[..., columns]` in the units of the graph file.

        Args:
            state: By node, arrays `[..., columns]` in these units, all with the same leading shape; further nodes are
                not looked at.
            deterministic: Whether the most likely action is taken; else one is drawn.
            clip: Whether numbers are kept within the columns' ranges; discrete ones always are on their grid.
            additional_info: Of Revive's signature; must be None.

        Raises:
            DataError: A node is missing, has another number of columns or another leading shape, or is not finite.
        """
        if additional_info is not None:
            raise DataError("infer: got additional_info; wanted everything that the policy sees in the state")
        obs = scaled_inputs(self.graph, self.node, state)
        rows = obs.reshape(-1, obs.shape[-1])
        actions = self.network.means(rows) if deterministic else self.network.samples(rows, self._rng)
        scaled = actions.reshape(*obs.shape[:-1], -1)
        return self.graph.scalers[self.node].unscale(scaled, clip=clip)

    def reset(self) -> None:
        """Does nothing: policies have no memory but the frames in their state; Revive's programs call it."""

    def to(self, device: Any) -> PolicyModel:
        """Returns itself: NumPy computes it, on the CPU.

        Raises:
            ConfigError: Another device is asked for.
        """
        check_is_cpu(device)
        return self

    # --- on disk ----------------------------------------------------------------------------------------------

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes arrays and JSON into a directory; an earlier policy there stays until the new one is whole."""
        meta = {
            "kind": _KIND, "version": __version__, "graph": self.graph.to_dict(), "node": self.node,
            "head": self.network.head, "network": _plain_spec(self.network.spec), "about": self.about,
        }  # fmt: skip
        write_state(directory, {"weights": dict(self.network.weights)}, json.loads(json.dumps(meta)))

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> PolicyModel:
        """Reads what `save` wrote; nothing in it is executed.

        Raises:
            CheckpointError: It is damaged, or no policy.
        """
        state, meta = read_state(directory)
        if meta.get("kind") != _KIND:
            raise CheckpointError(f"{Path(directory)}: got a {meta.get('kind')!r}; wanted a {_KIND!r}")
        try:
            graph = DecisionGraph.from_dict(meta["graph"], str(directory))
            if meta["head"] not in HEADS:
                raise ValueError(f"got the head {meta['head']!r}, wanted one of {', '.join(HEADS)}")
            network = PolicyNetwork(meta["network"], state["weights"], meta["head"])
            made = cls(graph, meta["node"], network, meta["about"])
            made._check_network()
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{Path(directory)} is damaged: {error}") from error
        return made

    def export2onnx(self, path: str | os.PathLike[str]) -> None:
        """Writes an ONNX file: node arrays `[B, columns]` in, the most likely action out, clipped, in these units.

        What it computes is compared with `infer` before the file is at its place.

        Raises:
            ConfigError: The package `onnx` is missing, or the file computes something else.
        """
        from rlframe.revive.policy_onnx import write_onnx

        write_onnx(self, Path(path))

    def _check_network(self) -> None:
        """Raises a ValueError where the network does not fit the nodes."""
        width = sum(self.graph.scalers[name].width for name in self.inputs)
        made = self.network.means(np.zeros((1, width), np.float32)).shape[1]
        wanted = self.graph.scalers[self.node].width
        if made != wanted:
            raise ValueError(f"the network gives {made} numbers; wanted {wanted} for node {self.node!r}")


def check_is_cpu(device: Any) -> None:
    """Raises a ConfigError where a device is none that NumPy computes on."""
    if str(device) != "cpu":
        raise ConfigError(
            f"to: got the device {str(device)!r}; wanted 'cpu': NumPy computes learned models, or use ONNX"
        )


def policy_inputs(graph: DecisionGraph, node: str) -> tuple[str, ...]:
    """Returns the nodes that a policy sees.

    Raises:
        ConfigError: The node is not decided by a network, or sees what a deployed policy cannot.
    """
    found = graph.nodes.get(node)
    if found is None or found.role != "network" or not found.inputs:
        networks = [name for name in graph.order if graph.nodes[name].role == "network"]
        raise ConfigError(f"target_policy_name: got {node!r}; wanted a node with a network: {', '.join(networks)}")
    if found.step_input or found.traj_id:
        option = "step_input" if found.step_input else "traj_id"
        raise ConfigError(
            f"node {node!r} has {option}, which nobody tells a deployed policy; leave it out for this node"
        )
    return found.inputs


def scaled_inputs(graph: DecisionGraph, node: str, state: Mapping[str, ArrayLike]) -> NDArray[np.float32]:
    """Returns what the policy of a node sees, `[..., D]`, of arrays by node in the user's units.

    Raises:
        DataError: A node is missing, has another number of columns or another leading shape, or is not finite.
    """
    parts = []
    for name in graph.nodes[node].inputs:
        scaler = graph.scalers[name]
        if name not in state:
            raise DataError(
                f"the policy of {node!r} sees {', '.join(graph.nodes[node].inputs)}; got no {name!r} but "
                f"{', '.join(sorted(state)) or 'nothing'}"
            )
        values = as_numbers(name, state[name])
        if values.shape[-1:] != (scaler.dim,):
            raise DataError(f"node {name!r}: got an array of shape {values.shape}; wanted [..., {scaler.dim}]")
        if not np.isfinite(values).all():
            row = np.argwhere(~np.isfinite(values))[0].tolist()
            column = scaler.columns[row[-1]].name
            raise DataError(
                f"node {name!r}, column {column!r}, row {row[:-1]}: got {values[tuple(row)]}; wanted a number"
            )
        parts.append(scaler.scale(values))
    if len({part.shape[:-1] for part in parts}) > 1:
        shapes = {name: part.shape[:-1] for name, part in zip(graph.nodes[node].inputs, parts, strict=True)}
        raise DataError(f"got leading shapes {shapes}; wanted one for all nodes")
    return np.concatenate(parts, axis=-1)


def _plain_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a network's layers as plain dicts."""

    def plain(layers: Any) -> Any:
        return [layer if isinstance(layer, Mapping) else layer.to_spec() for layer in layers]

    return {"outputs": plain(spec["outputs"]), "values": None, "shared": 0}
