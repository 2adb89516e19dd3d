"""Operators that few plans have: lists of items, shuffles, copies of a stream, calls as Ray tasks."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlframe.execution.plan.context import _get_shared_metrics, _NextValueNotReady
from rlframe.execution.plan.item_state import (
    describe,
    operator_state,
    pack_item,
    restore_operator,
    unpack_item,
)
from rlframe.execution.plan.nodes import Node
from rlframe.utils.seeding import entropy_seed, make_rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


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


class ShuffleNode(Node):
    """Hands on a random one of a window of items, and refills the window."""

    __slots__ = ("_pull", "_rng", "_size", "_window")

    def __init__(self, parent: Node, size: int, seed: int | None) -> None:
        super().__init__("shuffle", str(size), parents=(parent,))
        self._pull = parent.pull
        self._size = size
        self._rng = make_rng(entropy_seed() if seed is None else seed, "shuffle")
        self._window: list[Any] = []

    @override
    def pull(self) -> Any:
        waits = fill(self._window, self._size, self._pull)
        if waits is not None:
            return waits
        self.items += 1
        return self._window.pop(int(self._rng.integers(len(self._window))))

    @override
    def get_state(self) -> Any:
        return {"window": pack_item(self._window), "rng": self._rng.bit_generator.state}

    @override
    def set_state(self, state: Any) -> None:
        self._window = unpack_item(state["window"])
        self._rng.bit_generator.state = state["rng"]


class _Upstream:
    """A node seen as a Python iterator; keeps the time spent in it, so that a transform is charged for its own only."""

    def __init__(self, node: Node) -> None:
        self._pull = node.pull
        self.seconds = 0.0

    def __iter__(self) -> _Upstream:
        return self

    def __next__(self) -> Any:
        started = perf_counter()
        try:
            return self._pull()
        finally:
            self.seconds += perf_counter() - started


class TransformNode(Node):
    """Pulls through a user's function from iterator to iterator. What such a generator holds cannot be saved."""

    __slots__ = ("_fn", "_iterator", "_next", "_upstream")

    def __init__(self, parent: Node, fn: Callable[[Iterable[Any]], Iterable[Any]], name: str = "") -> None:
        own_name, arguments = describe(fn)
        super().__init__(name or own_name, arguments, parents=(parent,))
        self._fn = fn
        self._upstream = _Upstream(parent)
        self._iterator = iter(fn(self._upstream))
        self._next = self._iterator.__next__

    @override
    def pull(self) -> Any:
        started, above = perf_counter(), self._upstream.seconds
        item = self._next()
        self.seconds += perf_counter() - started - (self._upstream.seconds - above)
        if not isinstance(item, _NextValueNotReady):
            self.items += 1
        return item

    @override
    def get_state(self) -> Any:
        return {"operator": operator_state(self._fn), "iterator": operator_state(self._iterator)}

    @override
    def set_state(self, state: Any) -> None:
        restore_operator(self._fn, state["operator"])
        restore_operator(self._iterator, state["iterator"])


class Tee:
    """One stream handed to several consumers; items wait, without bound, for the slowest of them.

    Args:
        build: Builds the node of the stream; called at the first pull.
        n: Number of consumers.
    """

    def __init__(self, build: Callable[[float | None], Node], n: int) -> None:
        self._build = build
        self._node: Node | None = None
        self.waiting: list[deque[Any]] = [deque() for _ in range(n)]

    def node(self, timeout_s: float | None) -> Node:
        """Returns the node of the stream; all consumers get the same one."""
        if self._node is None:
            self._node = self._build(timeout_s)
        return self._node


class TeeNode(Node):
    """One consumer of a `Tee`."""

    __slots__ = ("_index", "_tee")

    def __init__(self, tee: Tee, index: int, timeout_s: float | None) -> None:
        super().__init__("duplicate", f"{index + 1} of {len(tee.waiting)}", parents=(tee.node(timeout_s),))
        self._tee = tee
        self._index = index

    @override
    def pull(self) -> Any:
        mine = self._tee.waiting[self._index]
        if not mine:
            item = self.parents[0].pull()
            if isinstance(item, _NextValueNotReady):
                return item
            for queue in self._tee.waiting:
                queue.append(item)
        self.items += 1
        return mine.popleft()

    @override
    def get_state(self) -> Any:
        return pack_item(list(self._tee.waiting[self._index]))

    @override
    def set_state(self, state: Any) -> None:
        self._tee.waiting[self._index] = deque(unpack_item(state))


class RemoteForEach:
    """Runs a function on items as Ray tasks, a bounded number at a time, and gives the results in order."""

    def __init__(self, fn: Callable[[Any], Any], max_concurrency: int, resources: Mapping[str, Any]) -> None:
        self._fn = fn
        self._max_concurrency = max_concurrency
        self._resources = dict(resources)
        self.plan_name = getattr(fn, "__name__", type(fn).__name__)

    def plan_args(self) -> str:
        """Returns how many calls run at a time."""
        return f"{self._max_concurrency} at a time"

    def __call__(self, items: Iterable[Any]) -> Iterable[Any]:
        """Yields what the function returns for each item."""
        import ray

        task = ray.remote(self._fn).options(**self._resources) if self._resources else ray.remote(self._fn)
        running: list[Any] = []
        for item in items:
            if isinstance(item, _NextValueNotReady):
                yield item
                continue
            running.append(task.remote(item))
            if len(running) >= self._max_concurrency:
                yield ray.get(running.pop(0))
        while running:
            yield ray.get(running.pop(0))


def zip_with_source(item: Any) -> tuple[Any, Any]:
    """Returns `(actor, item)` for an item, with the remote actor that produced it.

    Raises:
        ValueError: If none did.
    """
    actor = _get_shared_metrics().current_actor
    if actor is None:
        raise ValueError(
            "Got an item that no remote actor produced, wanted one gathered from actors; use zip_with_source_actor() "
            "right after gather_async(), gather_sync() or Replay(actors=...)"
        )
    return actor, item


zip_with_source.plan_name = "zip_with_source_actor"  # type: ignore[attr-defined]
