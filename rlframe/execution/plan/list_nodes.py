"""Nodes between items and lists of them: elements one by one, and several items as one."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlframe.execution.plan.context import _NextValueNotReady
from rlframe.execution.plan.item_state import (
    close_operator,
    describe,
    operator_state,
    pack_item,
    restore_operator,
    unpack_item,
)
from rlframe.execution.plan.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def fill(items: list[Any], size: int, pull: Callable[[], Any]) -> _NextValueNotReady | None:
    """Pulls items into a list until there are `size`, or until no more come.

    Args:
        items: Is filled; it keeps what came before one that was not ready.
        size: How many.
        pull: Gives the next.

    Returns:
        None, or the marker of an item that is not ready.

    Raises:
        StopIteration: If no more come, and the list is empty.
    """
    while len(items) < size:
        try:
            item = pull()
        except StopIteration:
            if not items:
                raise
            return None
        if isinstance(item, _NextValueNotReady):
            return item
        items.append(item)
    return None


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


class BatchNode(Node):
    """Collects `n` items into a list; the last list may be shorter."""

    __slots__ = ("_collected", "_n", "_pull")

    def __init__(self, parent: Node, n: int) -> None:
        super().__init__("batch", str(n), parents=(parent,))
        self._pull = parent.pull
        self._n = n
        self._collected: list[Any] = []

    @override
    def pull(self) -> Any:
        waits = fill(self._collected, self._n, self._pull)
        if waits is not None:
            return waits
        collected, self._collected = self._collected, []
        self.items += 1
        return collected

    @override
    def get_state(self) -> Any:
        return pack_item(self._collected)

    @override
    def set_state(self, state: Any) -> None:
        self._collected = unpack_item(state)
