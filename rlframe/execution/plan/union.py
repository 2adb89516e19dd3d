"""How branches of a plan are joined: what is asked for, checked, and the node that is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlframe.execution.plan.nodes import Node, UnionNode

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class UnionFactory:
    """Makes the node of a union and new copies of its branches, which are `LocalIterator`s."""

    iterators: tuple[Any, ...]
    weights: tuple[float | None, ...]
    outputs: tuple[int, ...]
    deterministic: bool

    def __call__(self, timeout_s: float | None) -> Node:
        """Returns the node; its branches wait so many seconds for an item, for ever where that is None."""
        branches = [
            # A branch that is drained ("*") must not wait when it has nothing more, nor one of an asynchronous union.
            iterator.make_node(timeout_s if self.deterministic and weight is not None else 0.0)
            for iterator, weight in zip(self.iterators, self.weights, strict=True)
        ]
        return UnionNode(
            branches, self.weights, outputs=self.outputs, blocking=timeout_s is None, arguments=self._arguments()
        )

    def _arguments(self) -> str:
        if not self.deterministic:
            return "async"
        weights = ":".join("*" if weight is None else f"{weight:g}" for weight in self.weights)
        return f"round_robin {weights}"


def check_weights(weights: Sequence[float | str] | None, n: int) -> tuple[float | None, ...]:
    """Returns one number, or None for "*", per branch."""
    if weights is None:
        return (1.0,) * n
    if len(weights) != n:
        raise ValueError(f"Got {len(weights)} round_robin_weights for {n} iterators, wanted one each")
    checked: list[float | None] = []
    for weight in weights:
        if isinstance(weight, str):
            if weight != "*":
                raise ValueError(f"Got round robin weight {weight!r}, wanted a number above 0 or '*'")
            checked.append(None)
        elif weight > 0:
            checked.append(float(weight))
        else:
            raise ValueError(f"Got round robin weight {weight!r}, wanted a number above 0 or '*'")
    return tuple(checked)


def check_outputs(outputs: Sequence[int] | None, n: int) -> tuple[int, ...]:
    """Returns the indexes of the branches whose items are handed on; all for None."""
    if outputs is None:
        return tuple(range(n))
    wrong = [index for index in outputs if not 0 <= index < n]
    if wrong or not outputs:
        raise ValueError(f"Got output_indexes {list(outputs)}, wanted at least one index from 0 to {n - 1}")
    return tuple(outputs)
