"""What runs inside remote actors: one chain of operators per shard of a `ParallelIterator`.

A chain lives in the actor object it pulls from, under a name, and is reached through the actor's `apply(fn, *args)`.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from rlframe.execution.plan.context import SharedMetrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.plan.remote_sources import ShardEnd

Extension = Callable[[LocalIterator[Any]], LocalIterator[Any]]

_ATTRIBUTE = "_rlframe_shards"


class ParallelIteratorWorker:
    """An object that items can be gathered from once it is a Ray actor.

    Args:
        item_generator: An iterable, or a function that returns one; or a function of no arguments that is called anew
            for every pass.
        repeat: Whether to begin again at the end.
    """

    def __init__(self, item_generator: Any, repeat: bool = False) -> None:
        self._make = item_generator if callable(item_generator) else lambda: item_generator
        self._repeat = repeat

    def items(self) -> Iterator[Any]:
        """Yields the items, pass after pass if they repeat."""
        yield from self._make()
        while self._repeat:
            yield from self._make()

    def apply(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Returns `fn(self, *args)`."""
        return fn(self, *args)


def _items_of(actor: Any) -> Iterator[Any]:
    """Yields what an actor produces: its `items()`, or batches of a rollout worker without end."""
    if hasattr(actor, "items"):
        yield from actor.items()
    while True:
        yield actor.sample()


@dataclass
class _Chain:
    """The running chain of one shard, and items that wait for the other consumers of a repartition."""

    iterator: Iterator[Any]
    waiting: list[deque[Any]] = field(default_factory=list)
    position: int = 0


def open_shard(actor: Any, name: str, extensions: Iterable[Extension]) -> None:
    """Makes the chain of a shard inside its actor."""
    iterator: LocalIterator[Any] = LocalIterator(lambda: _source(actor), SharedMetrics())
    for extend in extensions:
        iterator = extend(iterator)
    actor.__dict__.setdefault(_ATTRIBUTE, {})[name] = _Chain(iterator)


def _source(actor: Any) -> Iterator[Any]:
    if isinstance(actor, ParallelIteratorWorker):
        return actor.items()
    return _items_of(actor)


def _chain(actor: Any, name: str) -> _Chain:
    chains: dict[str, _Chain] = actor.__dict__.get(_ATTRIBUTE, {})
    if name not in chains:
        raise RuntimeError(
            f"Got a request for the items of shard {name}, which this actor does not have (was it restarted?); "
            "make the ParallelIterator anew from the actors that live now"
        )
    return chains[name]


def next_item(actor: Any, name: str) -> Any:
    """Returns the next item of a shard, or a `ShardEnd`."""
    for item in _chain(actor, name).iterator:
        if not isinstance(item, _NextValueNotReady):
            return item
    return ShardEnd()


def next_items(actor: Any, name: str, batch_ms: float) -> Any:
    """Returns the items that a shard gives within `batch_ms` milliseconds, at least one; or a `ShardEnd`."""
    until = perf_counter() + batch_ms / 1000
    items: list[Any] = []
    while not items or perf_counter() < until:
        item = next_item(actor, name)
        if isinstance(item, ShardEnd):
            return items or item
        items.append(item)
    return items


def next_of_slice(actor: Any, name: str, n: int, index: int) -> Any:
    """Returns the next item of a shard whose position modulo `n` is `index`, or a `ShardEnd`.

    Items for other positions wait until they are asked for, so that `n` consumers share one chain.
    """
    chain = _chain(actor, name)
    if len(chain.waiting) != n:
        chain.waiting = [deque() for _ in range(n)]
    while not chain.waiting[index]:
        item = next_item(actor, name)
        if isinstance(item, ShardEnd):
            return item
        chain.waiting[chain.position % n].append(item)
        chain.position += 1
    return chain.waiting[index].popleft()


@dataclass(frozen=True)
class Shard:
    """An actor, and the operators that are applied to its items inside it."""

    actor: Any
    extensions: tuple[Extension, ...] = ()

    def extended(self, extension: Extension) -> Shard:
        """Returns a shard with one more operator."""
        return Shard(self.actor, (*self.extensions, extension))


class OpenShard:
    """A shard that has been opened inside its actor; two opened from the same shard are at independent positions.

    Args:
        shard: The shard.
        direct: Whether a rollout worker without operators may be asked directly, which needs no chain inside it.
    """

    def __init__(self, shard: Shard, *, direct: bool = True) -> None:
        self.actor = shard.actor
        self.name = uuid.uuid4().hex
        self._direct = direct and not shard.extensions and hasattr(shard.actor, "sample")
        if not self._direct:
            self.actor.apply.remote(open_shard, self.name, shard.extensions)

    def request(self) -> Any:
        """Returns the reference of the next item."""
        return self.actor.sample.remote() if self._direct else self.actor.apply.remote(next_item, self.name)

    def request_items(self, batch_ms: float) -> Any:
        """Returns the reference of the list of items that come within `batch_ms` milliseconds."""
        if self._direct:
            raise ValueError("Got batch_ms above 0 for plain rollout workers, wanted 0: they sample one batch per call")
        return self.actor.apply.remote(next_items, self.name, batch_ms)
