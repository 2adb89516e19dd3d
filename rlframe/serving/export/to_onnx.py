"""A `Program` as an ONNX file, with the program's own names for inputs and outputs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from rlframe.serving.export.program import OPSET, Port, Program

_IR = 9


def write(program: Program, contract: dict[str, Any], path: Path) -> Any:
    """Writes the file, and returns how ONNX Runtime runs it."""
    if program.network is None:
        _write_graph(program, contract, path)
    else:
        importlib.import_module("rlframe.serving.export.onnx_of_torch").write_onnx(program, path, OPSET)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    needed = {given.name for given in session.get_inputs()}
    names = [port.name for port in program.outputs]

    def run(feeds: Any) -> dict[str, Any]:
        made = session.run(names, {name: feed for name, feed in feeds.items() if name in needed})
        return dict(zip(names, made, strict=True))

    return run


def _write_graph(program: Program, contract: dict[str, Any], path: Path) -> None:
    helper = onnx.helper
    nodes: list[Any] = []
    for kind, taken, output, attributes in program.nodes:
        given = {**attributes, "to": _kind(attributes["to"])} if kind == "Cast" else attributes
        nodes.append(helper.make_node(kind, taken, [output], **given))
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in program.constants.items()]
    inputs: list[Any] = [_value(port) for port in program.inputs]
    outputs: list[Any] = [_value(port) for port in program.outputs]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR, producer_name="rlframe",
        producer_version=contract["rlframe"],
    )  # fmt: skip
    onnx.checker.check_model(made)
    onnx.save(made, str(path))


def _kind(dtype: str) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _value(port: Port) -> Any:
    return onnx.helper.make_tensor_value_info(port.name, _kind(port.dtype), ["batch", *port.shape])
