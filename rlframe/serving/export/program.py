"""How a policy acts as plain data: a graph of array operations, each with the name and the meaning that ONNX gives it.

NumPy (`exported_policy`), ONNX Runtime, PyTorch and TensorFlow each run the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What nodes are written for: operations whose meaning has not changed since.
OPSET = 18


@dataclass(frozen=True)
class Port:
    """An input or output of the graph.

    Attributes:
        name: Its name.
        dtype: Of its numbers.
        shape: Of one row; the graph takes and gives `[B, *shape]`.
        path: Keys that lead to it in a nested observation or action.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    path: tuple[Any, ...] = ()


@dataclass(frozen=True)
class State:
    """What the graph wants to see again at the next step: its output is the next step's input.

    Attributes:
        given: The input.
        made: Name of the output.
        initial: What an episode begins with.
    """

    given: Port
    made: str
    initial: NDArray[Any]


@dataclass(frozen=True)
class TracedNetwork:
    """A network that is written by running it: a model or a distribution of the user's own.

    Attributes:
        framework: "torch" or "tf"; what it calls for.
        call: From tensors `[B, ...]` to a list of them.
        parts: What has its weights, for the framework to find: PyTorch's modules, or TensorFlow's variables.
    """

    framework: str
    call: Callable[..., list[Any]]
    parts: list[Any]


@dataclass
class Program:
    """A graph from observations, memory and rewards to actions and memory.

    Attributes:
        observations: Parts of an observation.
        actions: Parts of an action.
        states: Memory.
        reward: The last action's reward; None where it is not seen.
        nodes: (operation, names of its inputs, name of its output, attributes), in an order in which they can run.
        constants: Arrays by name.
        layers: (name, activation, name of what it gives) of each layer with units, for who looks at them: dense layers
            `[B, units]`, convolutions `[B, channels, H, W]`, memories `[B, units]` with the activation "memory".
        network: What the operation "Network" calls, where one of the user's own is traced; else None. It takes and
            gives tensors of its framework, `[B, ...]`; "Part" picks one of what it gave.
    """

    observations: list[Port] = field(default_factory=list)
    actions: list[Port] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    reward: Port | None = None
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    layers: list[tuple[str, str, str]] = field(default_factory=list)
    network: TracedNetwork | None = None

    @property
    def inputs(self) -> list[Port]:
        """All inputs, in order."""
        seen = [] if self.reward is None else [self.reward]
        return [*self.observations, *(state.given for state in self.states), *seen]

    @property
    def outputs(self) -> list[Port]:
        """All outputs, in order."""
        return [*self.actions, *(Port(state.made, state.given.dtype, state.given.shape) for state in self.states)]

    # --- putting it together -----------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Keeps an array, and returns its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(value, dtype).reshape(np.shape(value))
        return name

    def add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Adds an operation, and returns the name of what it gives."""
        name = f"t{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), name, attributes))
        return name

    def name_last(self, made: str, name: str) -> None:
        """Gives `made` out under another name."""
        self.nodes.append(("Identity", [made], name, {}))

    def cast(self, x: str, dtype: Any) -> str:
        """Returns the numbers as `dtype`."""
        return self.add("Cast", [x], to=np.dtype(dtype).name)

    def math(self, kind: str, x: str, value: Any, dtype: Any = np.float32) -> str:
        """Returns `x` and an array, joined by an operation such as "Add"."""
        return self.add(kind, [x, self.constant(value, dtype)])

    def rows(self, x: str, *shape: int) -> str:
        """Returns `x` as `[B, *shape]`."""
        return self.add("Reshape", [x, self.constant([-1, *shape], np.int64)])

    def columns(self, x: str, start: int, stop: int) -> str:
        """Returns `[B, stop - start, ...]` of `[B, D, ...]`."""
        bounds = [self.constant([number], np.int64) for number in (start, stop, 1)]
        return self.add("Slice", [x, *bounds])

    def beside(self, parts: Sequence[str]) -> str:
        """Returns rows `[B, n, ...]` side by side."""
        return parts[0] if len(parts) == 1 else self.add("Concat", parts, axis=1)

    def clip(self, x: str, low: Any, high: Any, dtype: Any = np.float32) -> str:
        """Returns `x` with arrays or numbers as bounds; of integers, too, where ONNX Runtime has Max and Min."""
        return self.math("Min", self.math("Max", x, low, dtype), high, dtype)

    def one_hot(self, x: str, depth: int) -> str:
        """Returns integers `[B]` as float32 rows `[B, depth]`."""
        return self.add("OneHot", [x, self.constant(depth, np.int64), self.constant([0.0, 1.0])], axis=-1)
