"""One step of the Gated Transformer-XL as operations of a `Program`."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.models.attention_positions import sinusoids
from rlframe.serving.export.layers import Layers


class AttentionUnit:
    """A unit of `rlframe.models.torch.attention_net`, or TensorFlow's, for a single step.

    Args:
        layers: Has the weights, and where it is written.
        prefix: Stands before the weights' names.
        config: The policy's `model`: sizes of heads and memory.
    """

    def __init__(self, layers: Layers, prefix: str, config: Any) -> None:
        self._layers, self._made, self._prefix = layers, layers.program, prefix
        self._heads, self._head_size = int(config["attention_num_heads"]), int(config["attention_head_dim"])
        self._width, self._memory = int(config["attention_dim"]), int(config["attention_memory_inference"])

    def step(self, x: str, memory: str) -> tuple[str, str]:
        """Returns the unit's outputs `[B, D]` and its memory behind the step, for `x` `[B, D]`, `[B, M, D]` before."""
        made, size = self._made, self._memory
        steps = made.beside([memory, made.rows(x, 1, self._width)])
        after = made.columns(steps, 1, size + 1) if size else memory
        x = self._gate("gate_1", x, made.add("Relu", [self._attention(self._norm("norm_1", steps, 2))]))
        hidden = made.add("Relu", [self._linear("mlp_0", self._norm("norm_2", x, 1))])
        self._layers.noted(f"{self._prefix}mlp_0", "relu", hidden)
        return self._gate("gate_2", x, made.add("Relu", [self._linear("mlp_1", hidden)])), after

    def _attention(self, context: str) -> str:
        """Returns what the last step gathers from all, `[B, D]`, of `context` `[B, M + 1, D]`."""
        made, heads, size, total = self._made, self._heads, self._head_size, self._memory + 1
        now = made.rows(made.columns(context, total - 1, total), self._width)
        query = self._product("attention.query", now)
        by_head = [
            made.rows(made.math("Add", query, self._array(f"attention.{kind}_bias").reshape(-1)), heads, 1, size)
            for kind in ("content", "position")
        ]
        keys, values = (
            made.add(
                "Transpose", [made.rows(self._product(f"attention.{kind}", context), total, heads, size)], perm=perm
            )
            for kind, perm in (("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        positions = sinusoids(total, self._width) @ self._array("attention.position.weight").T
        # The first of the context lies farthest back.
        behind = positions.reshape(total, heads, size)[::-1].transpose(1, 2, 0)
        scores = made.add("Add", [made.add("MatMul", [by_head[0], keys]), made.math("MatMul", by_head[1], behind)])
        weights = made.add("Softmax", [made.math("Div", scores, size**0.5)], axis=3)
        gathered = made.rows(made.add("MatMul", [weights, values]), heads * size)
        return self._product("attention.project", gathered)

    def _gate(self, name: str, x: str, y: str) -> str:
        made = self._made
        reset, update, new = (self._product(f"{name}.w_{kind}", y) for kind in "rzg")
        reset = made.add("Sigmoid", [made.add("Add", [reset, self._product(f"{name}.u_r", x)])])
        update = made.add("Add", [update, self._product(f"{name}.u_z", x)])
        update = made.add("Sigmoid", [made.math("Sub", update, self._array(f"{name}.bias"))])
        kept = self._product(f"{name}.u_g", made.add("Mul", [reset, x]))
        new = made.add("Tanh", [made.add("Add", [new, kept])])
        return made.add("Add", [x, made.add("Mul", [update, made.add("Sub", [new, x])])])

    def _norm(self, name: str, x: str, axis: int) -> str:
        return self._layers.normalized(x, self._prefix + name, axis)

    def _linear(self, name: str, x: str) -> str:
        return self._layers.linear(x, f"{self._prefix}{name}.weight", f"{self._prefix}{name}.bias")

    def _product(self, name: str, x: str) -> str:
        return self._made.math("MatMul", x, self._array(f"{name}.weight").T)

    def _array(self, name: str) -> Any:
        return np.asarray(self._layers.weights[self._prefix + name])


__all__ = ["AttentionUnit"]
