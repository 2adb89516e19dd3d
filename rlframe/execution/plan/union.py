"""How `Concurrently` joins the branches of a plan: whose turn it is, and whose items are handed on."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlframe.execution.plan.context import _NextValueNotReady
from rlframe.execution.plan.nodes import IDLE_PAUSE_S, Node
from rlframe.utils.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Sequence

# How many items a branch with weight "*" may give in one turn, so that one that is always ready starves nobody.
DRAIN_LIMIT = 100


class UnionNode(Node):
    """Takes items from several branches in turn.

    Args:
        branches: The nodes to pull from.
        weights: Items per turn of each branch. A fraction is carried over, so that 0.25 means one item in every
            fourth turn; None ("*") means until the branch has nothing ready, at most `DRAIN_LIMIT`.
        outputs: Indexes of the branches whose items are handed on; the others run, and their items are dropped.
        blocking: Whether to wait until there is an item. Otherwise a round without one gives a not-ready marker.
        arguments: Text for reports.
    """

    __slots__ = ("_active", "_blocking", "_credits", "_idle", "_left", "_outputs", "_pulls", "_turn", "_weights")

    def __init__(
        self,
        branches: Sequence[Node],
        weights: Sequence[float | None],
        *,
        outputs: Sequence[int],
        blocking: bool,
        arguments: str,
    ) -> None:
        super().__init__("Concurrently", arguments, parents=branches)
        self._pulls = [branch.pull for branch in self.parents]
        self._weights = list(weights)
        self._outputs = frozenset(outputs)
        self._blocking = blocking
        self._active = [True] * len(self.parents)
        self._credits = [0.0] * len(self.parents)
        self._turn = -1  # the branch whose turn it is
        self._left = 0  # how many items it may still give
        self._idle = 0  # turns since the last item

    @property
    def outputs(self) -> frozenset[int]:
        """Indexes of the branches whose items are handed on."""
        return self._outputs

    @override
    def pull(self) -> Any:
        round_started = 0.0
        while True:
            if self._left <= 0:
                if not self._next_turn():
                    raise StopIteration
                if self._idle >= len(self.parents):
                    self._idle = 0
                    if not self._blocking:
                        return _NextValueNotReady()
                    if perf_counter() - round_started < IDLE_PAUSE_S:
                        sleep(IDLE_PAUSE_S)
                    round_started = perf_counter()
                continue
            turn = self._turn
            try:
                item = self._pulls[turn]()
            except StopIteration:
                self._active[turn] = False
                self._left = 0
                continue
            if isinstance(item, _NextValueNotReady):
                self._left = 0
                self._idle += 1
                continue
            self._left -= 1
            self._idle = 0
            if turn in self._outputs:
                self.items += 1
                return item

    def _next_turn(self) -> bool:
        """Moves on to the next branch that is not exhausted; returns False when all are."""
        if not any(self._active):
            return False
        turn = (self._turn + 1) % len(self._active)
        while not self._active[turn]:
            turn = (turn + 1) % len(self._active)
        self._turn = turn
        weight = self._weights[turn]
        if weight is None:
            self._left = DRAIN_LIMIT
            return True
        # The small number keeps rounding errors (0.1 ten times is 0.9999999999999999) from delaying an item.
        credit = self._credits[turn] + weight
        self._left = int(credit + 1e-9)
        self._credits[turn] = credit - self._left
        return True

    @override
    def get_state(self) -> Any:
        return {
            "active": list(self._active),
            "credits": list(self._credits),
            "turn": self._turn,
            "left": self._left,
            "idle": self._idle,
        }

    @override
    def set_state(self, state: Any) -> None:
        if len(state["active"]) != len(self.parents):
            raise CheckpointError(
                f"Got the state of a union of {len(state['active'])} branches, wanted {len(self.parents)}; "
                "restore it into the plan it was saved from"
            )
        self._active = [bool(flag) for flag in state["active"]]
        self._credits = [float(credit) for credit in state["credits"]]
        self._turn, self._left, self._idle = int(state["turn"]), int(state["left"]), int(state["idle"])


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
