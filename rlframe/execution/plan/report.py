"""Draws a plan, with the time that each of its operators took and the items that it gave."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rlframe.execution.plan.nodes import UnionNode
from rlframe.execution.plan.rare_nodes import TeeNode

if TYPE_CHECKING:
    from rlframe.execution.plan.local_iterator import LocalIterator
    from rlframe.execution.plan.nodes import Node

_NAME_WIDTH = 48


@dataclass(frozen=True)
class BranchReport:
    """One branch of operators that run side by side.

    Attributes:
        operators: From source to end.
        output: Whether the branch's items are given on, or dropped.
    """

    operators: tuple[OperatorReport, ...]
    output: bool


@dataclass(frozen=True)
class OperatorReport:
    """What one operator did since the plan was built.

    Attributes:
        name: Name of the operator.
        arguments: Its key arguments as text; empty when there are none.
        items: Items given on.
        items_per_s: The same per second of the plan's life.
        own_s: Seconds in this operator's own work, without the operators it pulls from.
        share: `own_s` as a share of the plan's life, in [0, 1].
        branches: What is run side by side, for `Concurrently`.
    """

    name: str
    arguments: str
    items: int
    items_per_s: float
    own_s: float
    share: float
    branches: tuple[BranchReport, ...] = ()


@dataclass(frozen=True)
class PlanReport:
    """A plan and where its time went.

    Attributes:
        elapsed_s: Seconds since the plan was built, including those in which nobody pulled from it.
        operators: From source to end.
    """

    elapsed_s: float
    operators: tuple[OperatorReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as nested dicts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        """Returns `to_text()`: `print(trainer.plan_report())` shows the table."""
        return self.to_text()

    def to_text(self) -> str:
        """Returns the report as a table, in the order in which items flow."""
        lines = [f"{'operator':<{_NAME_WIDTH}} {'items':>12} {'items/s':>10} {'own s':>10} {'share':>7}"]
        for operator in self.operators:
            lines += _lines(operator, "", "")
        covered = sum(_own_s(operator) for operator in self.operators)
        rest_s = max(0.0, self.elapsed_s - covered)
        share = rest_s / self.elapsed_s if self.elapsed_s else 0.0
        lines.append(f"{'outside of operators':<{_NAME_WIDTH}} {'':>12} {'':>10} {rest_s:>10.3f} {share:>7.1%}")
        return "\n".join(lines)


def _own_s(operator: OperatorReport) -> float:
    return operator.own_s + sum(_own_s(inner) for branch in operator.branches for inner in branch.operators)


def _lines(operator: OperatorReport, first: str, rest: str) -> list[str]:
    label = first + operator.name + (f" [{operator.arguments}]" if operator.arguments else "")
    lines = [
        f"{label:<{_NAME_WIDTH}} {operator.items:>12,} {operator.items_per_s:>10,.1f} "
        f"{operator.own_s:>10.3f} {operator.share:>7.1%}"
    ]
    inner: list[str] = []
    for number, branch in enumerate(operator.branches):
        last = number == len(operator.branches) - 1
        bar = rest + ("   " if last else "│  ")
        inner.append(f"{rest}{'└─' if last else '├─'} branch {number}{'' if branch.output else ' (items dropped)'}")
        for step in branch.operators:
            inner += _lines(step, bar + "  ", bar + "  ")
    return inner + lines  # items flow downwards: the branches end in the operator that joins them


def plan_report(iterator: LocalIterator[Any]) -> PlanReport:
    """Returns the tree of a plan's operators with their rates and shares of the time.

    Args:
        iterator: The plan, usually `trainer.train_exec_impl`. It is built if it was not yet.
    """
    node = iterator.build()
    elapsed_s = iterator.elapsed_s
    return PlanReport(elapsed_s, _chain(node, elapsed_s, set()))


def _chain(node: Node, elapsed_s: float, seen: set[int]) -> tuple[OperatorReport, ...]:
    """Returns the operators from the source to `node`; a stream that several consumers share is shown once."""
    operators: list[OperatorReport] = []
    current: Node | None = node
    while current is not None:
        branches: tuple[BranchReport, ...] = ()
        parent = current.parents[0] if current.parents else None
        if isinstance(current, UnionNode):
            branches = tuple(
                BranchReport(_chain(branch, elapsed_s, seen), index in current.outputs)
                for index, branch in enumerate(current.parents)
            )
            parent = None
        if isinstance(current, TeeNode) and parent is not None:
            parent = None if id(parent) in seen else parent
            seen.add(id(current.parents[0]))
        operators.append(_operator(current, elapsed_s, branches))
        current = parent
    return tuple(reversed(operators))


def _operator(node: Node, elapsed_s: float, branches: tuple[BranchReport, ...]) -> OperatorReport:
    return OperatorReport(
        name=node.name,
        arguments=node.arguments,
        items=node.items,
        items_per_s=node.items / elapsed_s if elapsed_s else 0.0,
        own_s=node.seconds,
        share=node.seconds / elapsed_s if elapsed_s else 0.0,
        branches=branches,
    )
