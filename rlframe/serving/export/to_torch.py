"""A `Program` as TorchScript: one method, from the contract's inputs in order to its outputs in order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rlframe.serving.export.program import Program


def _slice(x: Tensor, starts: list[int], ends: list[int], axes: list[int]) -> Tensor:
    for start, end, axis in zip(starts, ends, axes, strict=True):
        x = x.narrow(axis, start, end - start)
    return x


def _one_hot(x: Tensor, depth: int, *_: Any, **__: Any) -> Tensor:
    """Gives zeros for what is no choice, as the zeros are that a graph is traced with where choices count from 1."""
    return (x[..., None] == torch.arange(depth)).to(torch.float32)


def _conv(x: Tensor, weight: Tensor, bias: Tensor, *, strides: list[int], pads: list[int]) -> Tensor:
    top, left, bottom, right = pads
    return functional.conv2d(functional.pad(x, (left, right, top, bottom)), weight, bias, strides)


#: See `exported_policy.OPERATIONS`; constants that are shapes, axes or bounds come as lists.
_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "Identity": lambda x: x.clone(),
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": torch.div,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Greater": torch.gt,
    "Where": torch.where,
    "MatMul": torch.matmul,
    "Exp": torch.exp,
    "Sqrt": torch.sqrt,
    "Tanh": torch.tanh,
    "Erf": torch.erf,
    "Relu": torch.relu,
    "LeakyRelu": lambda x, alpha: functional.leaky_relu(x, alpha),
    "Elu": functional.elu,
    "Selu": functional.selu,
    "Sigmoid": torch.sigmoid,
    "Softplus": functional.softplus,
    "Softsign": functional.softsign,
    "Softmax": lambda x, axis: torch.softmax(x, axis),
    "ReduceMean": lambda x, axes: x.mean(axes, keepdim=True),
    "ReduceSum": lambda x, axes: x.sum(axes, keepdim=True),
    "ArgMax": lambda x, axis, **_: x.argmax(axis),
    "OneHot": _one_hot,
    "Cast": lambda x, to: x.to(getattr(torch, to)),
    "Reshape": lambda x, shape: x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape)]),
    "Transpose": lambda x, perm: x.permute(perm),
    "Slice": _slice,
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Conv": _conv,
    "Part": lambda parts, index: parts[index],
}
#: Operations whose inputs behind the first are constants.
_BY_CONSTANTS = ("Reshape", "Slice", "ReduceMean", "ReduceSum", "OneHot")


class ProgramModule(nn.Module):
    """Runs a program."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program
        for name, array in program.constants.items():
            self.register_buffer(name, torch.from_numpy(np.array(array)))
        self.network = nn.ModuleList([] if program.network is None else program.network.parts)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns the outputs, `[B, ...]` each, for the inputs, `[B, ...]` each."""
        program = self._program
        values: dict[str, Any] = dict(zip((port.name for port in program.inputs), inputs, strict=True))
        for kind, names, output, attributes in program.nodes:
            fixed = names[1:] if kind in _BY_CONSTANTS else ()
            given = [
                values[name] if name in values else getattr(self, name) for name in names[: len(names) - len(fixed)]
            ]
            known = [program.constants[name].tolist() for name in fixed]
            if kind == "Network" and program.network is not None:
                values[output] = program.network.call(*given)
                continue
            values[output] = _OPERATIONS[kind](*given, *known, **attributes)
        return tuple(values[port.name] for port in program.outputs)


def write(program: Program, contract: dict[str, Any], path: Path) -> Any:
    """Writes the file, and returns how it runs."""
    del contract
    ports = program.inputs
    with torch.no_grad(), warnings.catch_warnings():
        # TorchScript is deprecated, and still what C++ programs load; what tracing fixes is found by verifying.
        warnings.simplefilter("ignore")
        traced: Any = torch.jit.trace(ProgramModule(program).eval(), examples(program), check_trace=False)
        traced.save(str(path))
        loaded: Any = torch.jit.load(str(path))

    def run(feeds: Any) -> dict[str, Any]:
        with torch.no_grad():
            made = loaded(*(torch.from_numpy(np.ascontiguousarray(feeds[port.name])) for port in ports))
        return {port.name: part.numpy() for port, part in zip(program.outputs, made, strict=True)}

    return run


def examples(program: Program) -> tuple[Tensor, ...]:
    """Returns zeros for each input, `[2, ...]`, for tracing."""
    return tuple(torch.zeros((2, *port.shape), dtype=getattr(torch, port.dtype)) for port in program.inputs)
