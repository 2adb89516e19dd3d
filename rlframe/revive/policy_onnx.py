"""A policy as an ONNX file: node arrays in the user's units in, actions in the user's units out."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlframe.revive.columns import Block, NodeScaler
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import make_rng

_OPSET, _IR = 18, 9
_ROWS, _CLOSE = 64, 1e-4
_ACTIVATIONS = {
    "tanh": "Tanh", "relu": "Relu", "elu": "Elu", "sigmoid": "Sigmoid", "selu": "Selu", "softplus": "Softplus",
    "softsign": "Softsign",
}  # fmt: skip


class ExportedPolicy(Protocol):
    """What of a policy is written: its graph, its node, the nodes it sees, its network, and what it does.

    `policy_model`, which has such a policy, calls this module, so it cannot be named here.
    """

    graph: Any
    node: str
    inputs: tuple[str, ...]
    network: Any

    def infer(self, state: Mapping[str, ArrayLike]) -> NDArray[np.float32]:
        """Returns the most likely action of each row, clipped, in the user's units."""


def write_onnx(model: ExportedPolicy, path: Path) -> None:
    """Writes a policy as ONNX, and compares what the file computes with `infer` before it is at its place.

    Args:
        model: The policy; its most likely action, clipped, is what the file computes.
        path: The file.

    Raises:
        ConfigError: The package `onnx` is missing, the network has layers that are not written, or the file computes
            something else.
    """
    try:
        import onnx
    except ImportError as error:
        raise ConfigError("export2onnx: the package onnx is not installed; pip install 'rlframe[onnx]'") from error
    made = _Writer(model, onnx).model()
    onnx.checker.check_model(made)
    _compare(model, made, path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.write_bytes(made.SerializeToString())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _compare(model: ExportedPolicy, made: Any, path: Path) -> None:
    """Raises a ConfigError where the file and the policy disagree on random rows of the columns' ranges."""
    from onnx.reference import ReferenceEvaluator

    rng = make_rng(0, "onnx")
    scalers = {name: model.graph.scalers[name] for name in model.inputs}
    rows = {name: scaler.unscale(rng.uniform(-1, 1, (_ROWS, scaler.width))) for name, scaler in scalers.items()}
    wanted, (got,) = model.infer(rows), ReferenceEvaluator(made).run(None, rows)
    target = model.graph.scalers[model.node]
    off = np.abs(np.asarray(got) - wanted) / np.maximum(target.half, 1e-6)
    # What lies between two values of a grid may be rounded to either.
    wrong = off.max(axis=1) > _CLOSE
    continuous = all(column.kind == "continuous" for column in target.columns)
    if wrong.any() and (continuous or wrong.mean() > 1 / _ROWS):
        raise ConfigError(
            f"{path}: the ONNX file computes actions up to {off.max():.3g} from the policy's; not written"
        )


class _Writer:
    """Puts a policy's computation together, node by node."""

    def __init__(self, policy: ExportedPolicy, onnx: Any) -> None:
        self.policy, self.onnx, self.helper = policy, onnx, onnx.helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def model(self) -> Any:
        """Returns the whole as an ONNX model."""
        policy, tensor = self.policy, self.onnx.TensorProto
        scalers = policy.graph.scalers
        inputs = [
            self.helper.make_tensor_value_info(name, tensor.FLOAT, ["rows", scalers[name].dim])
            for name in policy.inputs
        ]
        made = self._add("Concat", [self._scaled(name, scalers[name]) for name in policy.inputs], axis=1)
        made = self._unscaled(self._means(made), scalers[policy.node])
        self.nodes.append(self.helper.make_node("Identity", [made], [f"{policy.node}_action"]))
        dim = scalers[policy.node].dim
        outputs = [self.helper.make_tensor_value_info(f"{policy.node}_action", tensor.FLOAT, ["rows", dim])]
        graph = self.helper.make_graph(self.nodes, "policy", inputs, outputs, self.constants)
        opset = self.helper.make_opsetid("", _OPSET)
        return self.helper.make_model(graph, opset_imports=[opset], ir_version=_IR, producer_name="rlframe")

    def _add(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def _columns(self, source: str, columns: list[int]) -> str:
        return self._add("Gather", [source, self._constant(columns, np.int64)], axis=1)

    def _scaled(self, source: str, scaler: NodeScaler) -> str:
        """Brings a node's array into the learned space, as `NodeScaler.scale`."""
        parts = [self._scaled_block(source, scaler, block) for block in scaler.blocks]
        return parts[0] if len(parts) == 1 else self._add("Concat", parts, axis=1)

    def _scaled_block(self, source: str, scaler: NodeScaler, block: Block) -> str:
        columns = list(block.columns)
        taken = self._columns(source, columns)
        if block.kind != "category":
            shifted = self._add("Sub", [taken, self._constant(scaler.middle[columns])])
            return self._add("Div", [shifted, self._constant(scaler.half[columns])])
        known = self._constant(scaler.columns[columns[0]].values)
        away = self._add("Abs", [self._add("Sub", [taken, known])])
        nearest = self._add("ArgMin", [away], axis=1, keepdims=0)
        depth = self._constant(block.num, np.int64)
        return self._add("OneHot", [nearest, depth, self._constant([0.0, 1.0])], axis=-1)

    def _means(self, made: str) -> str:
        """Adds the network: the most likely action in the learned space."""
        network = self.policy.network
        width = self.policy.graph.scalers[self.policy.node].width
        for layer in network.spec["outputs"]:
            made = self._layer(made, layer, network.weights)
        if network.head != "deterministic":
            made = self._columns(made, list(range(width)))
        return self._add("Tanh", [made]) if network.head == "squashed" else made

    def _layer(self, made: str, layer: Any, weights: Mapping[str, NDArray[np.float32]]) -> str:
        said = layer if isinstance(layer, Mapping) else layer.to_spec()
        kind, name, activation = said["kind"], said["name"], said.get("activation", "linear")
        if kind == "append_bias":  # log standard deviations, which the most likely action does not need
            return made
        if kind != "dense" or (activation != "linear" and activation not in _ACTIVATIONS):
            raise ConfigError(f"export2onnx: a {kind!r} layer with {activation!r} is not written; wanted dense layers")
        arrays = [self._constant(weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        made = self._add("Gemm", [made, *arrays], transB=1)
        return made if activation == "linear" else self._add(_ACTIVATIONS[activation], [made])

    def _unscaled(self, made: str, scaler: NodeScaler) -> str:
        """Brings actions back into the user's units, clipped, as `NodeScaler.unscale`."""
        parts = [self._unscaled_block(made, scaler, block) for block in scaler.blocks]
        joined = parts[0] if len(parts) == 1 else self._add("Concat", parts, axis=1)
        order = [column for block in scaler.blocks for column in block.columns]
        return self._columns(joined, [order.index(column) for column in range(scaler.dim)])

    def _unscaled_block(self, made: str, scaler: NodeScaler, block: Block) -> str:
        columns = list(block.columns)
        taken = self._columns(made, list(range(block.where.start, block.where.stop)))
        if block.kind == "category":
            chosen = self._add("ArgMax", [taken], axis=1, keepdims=1)
            return self._add("Gather", [self._constant(scaler.columns[columns[0]].values), chosen], axis=0)
        taken = self._add("Clip", [taken, self._constant(-1.0), self._constant(1.0)])
        if block.kind == "discrete":
            steps = self._constant(max(block.num - 1, 1) / 2)
            one = self._constant(1.0)
            place = self._add("Round", [self._add("Mul", [self._add("Add", [taken, one]), steps])])
            taken = self._add("Sub", [self._add("Div", [place, steps]), one])
        # Half of the range, which is 0 where there is one value alone: `unscale` clips to that.
        half = (scaler.high - scaler.low)[columns] / 2
        stretched = self._add("Mul", [taken, self._constant(half)])
        return self._add("Add", [stretched, self._constant(scaler.middle[columns])])
