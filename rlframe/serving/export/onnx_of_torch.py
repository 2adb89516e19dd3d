"""A `Program` with a PyTorch network in it as an ONNX file: PyTorch translates the network."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from rlframe.serving.export.program import Program
from rlframe.serving.export.to_torch import ProgramModule, examples


def write_onnx(program: Program, path: Path, opset: int) -> None:
    """Writes the file, with the program's own names for inputs and outputs."""
    inputs, outputs = ([port.name for port in ports] for ports in (program.inputs, program.outputs))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            ProgramModule(program).eval(),
            examples(program),
            str(path),
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in (*inputs, *outputs)},
            opset_version=opset,
            dynamo=False,  # the newer exporter wants a package of its own, onnxscript
        )
