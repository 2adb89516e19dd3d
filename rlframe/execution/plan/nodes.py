"""The chain of nodes that a plan is: each pulls from the node above it, works on the item, and hands it on.

A node is an object rather than a generator for three reasons: its position can be saved and restored, an exception
that passes through it does not end it, and pulling an item costs one method call.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import Self, override

from rlframe.execution.plan.context import ACTIVE_CONTEXT, SharedMetrics, StepsLimitReached, _NextValueNotReady
from rlframe.execution.plan.item_state import (
    close_operator,
    describe,
    has_actor,
    operator_state,
    pack_item,
    restore_operator,
    unpack_item,
)
from rlframe.utils.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")

# A round in which no branch had anything ready is followed by a pause of this many seconds, unless it took longer.
IDLE_PAUSE_S = 0.0005
# How many items a branch with weight "*" may give in one turn, so that one that is always ready starves nobody.
DRAIN_LIMIT = 100


class Node:
    """One step of a plan.

    Attributes:
        name: Name of the operator, as in reports and saved states.
        arguments: Key arguments as text; empty when there are none.
        parents: The nodes this one pulls from.
        items: Items handed on so far, not counting not-ready markers.
        seconds: Time spent in this node's own work, without the nodes above it.
    """

    __slots__ = ("arguments", "items", "name", "parents", "seconds")

    def __init__(self, name: str, arguments: str = "", parents: Sequence[Node] = ()) -> None:
        self.name = name
        self.arguments = arguments
        self.parents = tuple(parents)
        self.items = 0
        self.seconds = 0.0

    def pull(self) -> Any:
        """Returns the next item or a not-ready marker; raises StopIteration when there are no more."""
        raise NotImplementedError

    def get_state(self) -> Any:
        """Returns where this node stands, or None when it holds nothing."""
        return None

    def set_state(self, state: Any) -> None:
        """Goes back to where `get_state()` was called."""

    def close(self) -> None:
        """Ends what this node's operator holds; the node is not pulled from any more."""


def walk(node: Node) -> Iterator[Node]:
    """Yields all nodes in the order in which they were built: parents first."""
    for parent in node.parents:
        yield from walk(parent)
    yield node


class SourceNode(Node):
    """Pulls from a Python iterator, whose own `get_state`/`set_state` are used where it has them."""

    __slots__ = ("_iterator", "_next")

    def __init__(self, iterator: Iterator[Any], name: str) -> None:
        self._iterator = iterator
        self._next = iterator.__next__
        own_name, arguments = describe(iterator)
        super().__init__(name or own_name, arguments)

    @override
    def pull(self) -> Any:
        started = perf_counter()
        item = self._next()
        self.seconds += perf_counter() - started
        if not isinstance(item, _NextValueNotReady):
            self.items += 1
        return item

    @override
    def get_state(self) -> Any:
        return operator_state(self._iterator)

    @override
    def set_state(self, state: Any) -> None:
        restore_operator(self._iterator, state)

    @override
    def close(self) -> None:
        close_operator(self._iterator)


class ForEachNode(Node):
    """Calls a function on every item; while it answers with a not-ready marker, the same item is tried again."""

    __slots__ = ("_fetch_start", "_fn", "_pending", "_pull")

    def __init__(self, parent: Node, fn: Callable[[Any], Any]) -> None:
        super().__init__(*describe(fn), parents=(parent,))
        self._pull = parent.pull
        self._fn = fn
        self._pending: list[Any] = []
        self._fetch_start = getattr(fn, "_on_fetch_start", None)

    @override
    def pull(self) -> Any:
        if self._pending:
            item = self._pending[0]
        else:
            if self._fetch_start is not None:
                self._fetch_start()
            item = self._pull()
            if isinstance(item, _NextValueNotReady):
                return item
        started = perf_counter()
        try:
            result = self._fn(item)
        except StopIteration as error:  # else a fault in the function would look like the end of the stream
            raise RuntimeError(f"{self.name} raised StopIteration; return None or use filter() instead") from error
        self.seconds += perf_counter() - started
        if isinstance(result, _NextValueNotReady):
            self._pending = [item]
            return result
        if self._pending:
            self._pending = []
        self.items += 1
        return result

    @override
    def get_state(self) -> Any:
        held = [item for item in self._pending if not has_actor(item)]
        return {"operator": operator_state(self._fn), "pending": pack_item(held)}

    @override
    def set_state(self, state: Any) -> None:
        restore_operator(self._fn, state["operator"])
        self._pending = unpack_item(state["pending"])

    @override
    def close(self) -> None:
        close_operator(self._fn)


class FlattenNode(Node):
    """Hands on the elements of every item one by one. With a function, the elements of what it returns."""

    __slots__ = ("_fetch_start", "_fn", "_pull", "_ready")

    def __init__(self, parent: Node, fn: Callable[[Any], Iterable[Any]] | None = None) -> None:
        super().__init__(*(("flatten", "") if fn is None else describe(fn)), parents=(parent,))
        self._pull = parent.pull
        self._fn = fn
        self._ready: deque[Any] = deque()
        self._fetch_start = getattr(fn, "_on_fetch_start", None)

    @override
    def pull(self) -> Any:
        while not self._ready:
            if self._fetch_start is not None:
                self._fetch_start()
            item = self._pull()
            if isinstance(item, _NextValueNotReady):
                return item
            started = perf_counter()
            try:
                elements = item if self._fn is None else self._fn(item)
                if isinstance(elements, _NextValueNotReady):
                    return elements
                self._ready.extend(elements)
            except StopIteration as error:
                raise RuntimeError(f"{self.name} raised StopIteration; return an empty list instead") from error
            self.seconds += perf_counter() - started
        self.items += 1
        return self._ready.popleft()

    @override
    def get_state(self) -> Any:
        return {"operator": operator_state(self._fn), "ready": pack_item(list(self._ready))}

    @override
    def set_state(self, state: Any) -> None:
        restore_operator(self._fn, state["operator"])
        self._ready = deque(unpack_item(state["ready"]))

    @override
    def close(self) -> None:
        close_operator(self._fn)


class FilterNode(Node):
    """Drops the items for which a predicate is false."""

    __slots__ = ("_fn", "_pull")

    def __init__(self, parent: Node, fn: Callable[[Any], Any]) -> None:
        super().__init__(*describe(fn), parents=(parent,))
        self._pull = parent.pull
        self._fn = fn

    @override
    def pull(self) -> Any:
        while True:
            item = self._pull()
            if isinstance(item, _NextValueNotReady):
                return item
            started = perf_counter()
            try:
                wanted = self._fn(item)
            except StopIteration as error:
                raise RuntimeError(f"{self.name} raised StopIteration; return True or False") from error
            self.seconds += perf_counter() - started
            if wanted:
                self.items += 1
                return item

    @override
    def get_state(self) -> Any:
        return {"operator": operator_state(self._fn)}

    @override
    def set_state(self, state: Any) -> None:
        restore_operator(self._fn, state["operator"])


class WithinNode(Node):
    """Pulls every item inside a context manager, such as a learner thread that works only meanwhile."""

    __slots__ = ("_context", "_pull")

    def __init__(self, parent: Node, context: Any) -> None:
        super().__init__(*describe(context), parents=(parent,))
        self._pull = parent.pull
        self._context = context

    @override
    def pull(self) -> Any:
        with self._context:
            item = self._pull()
        if not isinstance(item, _NextValueNotReady):
            self.items += 1
        return item

    @override
    def get_state(self) -> Any:
        return operator_state(self._context)

    @override
    def set_state(self, state: Any) -> None:
        restore_operator(self._context, state)

    @override
    def close(self) -> None:
        close_operator(self._context)


class SkipNotReadyNode(Node):
    """Waits until there is an item: whoever pulls from it meets no not-ready marker but those that end waiting."""

    __slots__ = ("_pull",)

    def __init__(self, parent: Node) -> None:
        super().__init__("skip_not_ready", parents=(parent,))
        self._pull = parent.pull

    @override
    def pull(self) -> Any:
        while True:
            started = perf_counter()
            item = self._pull()
            if not isinstance(item, _NextValueNotReady) or item.ends_waiting:
                self.items += 1
                return item
            if perf_counter() - started < IDLE_PAUSE_S:
                sleep(IDLE_PAUSE_S)


class ResultNode(SkipNotReadyNode):
    """Waits for a result; where the limit of env steps is reached before, makes one of what there is.

    Args:
        parent: Gives results and not-ready markers.
        finish: Makes a result, of an item that it does not look at.
    """

    __slots__ = ("_finish",)

    def __init__(self, parent: Node, finish: Callable[[Any], Any]) -> None:
        super().__init__(parent)
        self._finish = finish

    @override
    def pull(self) -> Any:
        try:
            return super().pull()
        except StepsLimitReached:
            self.items += 1
            return self._finish(None)


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


class Chain(Generic[T]):
    """A source and the operators behind it: what pulls an item through all of them.

    Attributes:
        shared_metrics: Where the context with counters and timers is held.
        timeout: Seconds to wait for an item.
    """

    shared_metrics: SharedMetrics
    timeout: float | None
    _source: Callable[[float | None], Node]
    _stages: tuple[Callable[[Node], Node], ...]
    _node: Node | None = None
    _started_s: float | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        node = self._node or self.build()
        active = ACTIVE_CONTEXT
        previous = active.metrics
        active.metrics = self.shared_metrics.get()
        try:
            item: T = node.pull()
            return item
        finally:
            active.metrics = previous

    def build(self) -> Node:
        """Builds the chain if it is not built yet, and returns its last node."""
        if self._node is None:
            previous = ACTIVE_CONTEXT.metrics
            ACTIVE_CONTEXT.metrics = self.shared_metrics.get()  # a transform may want the context already here
            try:
                self._node = self.make_node(self.timeout)
            finally:
                ACTIVE_CONTEXT.metrics = previous
            self._started_s = perf_counter()
        return self._node

    def make_node(self, timeout_s: float | None) -> Node:
        """Returns the last node of a new copy of this chain."""
        node = self._source(timeout_s)
        for stage in self._stages:
            node = stage(node)
        return node

    @property
    def elapsed_s(self) -> float:
        """Seconds since the chain was built; 0 before."""
        return 0.0 if self._started_s is None else perf_counter() - self._started_s

    def close(self) -> None:
        """Ends what the operators of this chain hold (threads, actors); nothing can be pulled from it any more.

        What was never built holds nothing.
        """
        with ExitStack() as ends:  # from the end on, and the others also where one raises
            for node in () if self._node is None else walk(self._node):
                ends.callback(node.close)
