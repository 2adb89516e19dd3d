"""`ParallelIterator`: streams of items in several Ray actors, worked on inside them and gathered here."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rlframe.execution.plan.context import SharedMetrics, _get_shared_metrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.plan.remote_sources import AsyncRequests, ShardEnd
from rlframe.execution.plan.shards import OpenShard, ParallelIteratorWorker, Shard, next_of_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rlframe.execution.plan.shards import Extension

T = TypeVar("T")
U = TypeVar("U")


class ParallelIterator(Generic[T]):
    """Several shards, each a stream of items made by one actor.

    Functions given to `for_each()` and the like run *inside* the actors, in the order of each shard; they are sent
    there, so they must be picklable. Nothing runs until the items are gathered. Every method returns a new iterator.

    Args:
        shards: The shards.
        name: Name in reports.
    """

    def __init__(self, shards: Sequence[Shard], name: str = "ParallelIterator") -> None:
        self._shards = tuple(shards)
        self.name = name

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}, {len(self._shards)} shards]"

    def __iter__(self) -> Iterator[T]:
        raise TypeError("A ParallelIterator cannot be iterated over; gather it first, e.g. with gather_sync()")

    # Operators that run inside the actors.

    def _with(self, extension: Extension, name: str) -> ParallelIterator[Any]:
        return ParallelIterator([shard.extended(extension) for shard in self._shards], f"{self.name}.{name}")

    def transform(self, fn: Callable[[Iterable[T]], Iterable[U]]) -> ParallelIterator[U]:
        """Passes each shard through a function from iterable to iterable."""
        return self._with(lambda it: it.transform(fn), "transform()")

    def for_each(
        self, fn: Callable[[T], U], max_concurrency: int = 1, resources: Mapping[str, Any] | None = None
    ) -> ParallelIterator[U]:
        """Calls `fn` on every item; see `LocalIterator.for_each`."""
        return self._with(lambda it: it.for_each(fn, max_concurrency, resources), "for_each()")

    def filter(self, fn: Callable[[T], Any]) -> ParallelIterator[T]:
        """Drops the items for which `fn` returns something false."""
        return self._with(lambda it: it.filter(fn), "filter()")

    def batch(self, n: int) -> ParallelIterator[list[T]]:
        """Collects every `n` items of a shard into a list."""
        return self._with(lambda it: it.batch(n), f"batch({n})")

    def flatten(self) -> ParallelIterator[Any]:
        """Hands on the elements of every item one by one."""
        return self._with(lambda it: it.flatten(), "flatten()")

    def combine(self, fn: Callable[[T], Iterable[U]]) -> ParallelIterator[U]:
        """Calls `fn` on every item and hands on the elements of the list that it returns."""
        return self._with(lambda it: it.combine(fn), "combine()")

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator[T]:
        """Shuffles each shard within a sliding window."""
        return self._with(lambda it: it.shuffle(shuffle_buffer_size, seed), f"local_shuffle({shuffle_buffer_size})")

    # Shards.

    def num_shards(self) -> int:
        """Returns the number of shards."""
        return len(self._shards)

    def shards(self) -> list[LocalIterator[T]]:
        """Returns one iterator per shard."""
        return [self.get_shard(i) for i in range(len(self._shards))]

    def get_shard(self, shard_index: int, batch_ms: float = 0, num_async: int = 1) -> LocalIterator[T]:
        """Returns the iterator over one shard; its items are fetched as by `gather_async()`."""
        if not 0 <= shard_index < len(self._shards):
            raise ValueError(f"Got shard_index={shard_index}, wanted 0 to {len(self._shards) - 1}")
        return self.select_shards([shard_index]).gather_async(batch_ms=batch_ms, num_async=num_async)

    def select_shards(self, shards_to_keep: Sequence[int]) -> ParallelIterator[T]:
        """Returns an iterator of some of the shards."""
        wrong = [i for i in shards_to_keep if not 0 <= i < len(self._shards)]
        if wrong or not shards_to_keep:
            raise ValueError(f"Got shards {list(shards_to_keep)}, wanted one or more of 0 to {len(self._shards) - 1}")
        return ParallelIterator([self._shards[i] for i in shards_to_keep], f"{self.name}.select_shards()")

    def union(self, other: ParallelIterator[Any]) -> ParallelIterator[Any]:
        """Returns an iterator of the shards of both."""
        if not isinstance(other, ParallelIterator):
            raise ValueError(f"Got a {type(other).__name__} to join, wanted a ParallelIterator")
        return ParallelIterator([*self._shards, *other._shards], f"ParallelUnion[{self.name}, {other.name}]")

    def repartition(self, num_partitions: int, batch_ms: float = 0) -> ParallelIterator[T]:
        """Deals the items of all shards out to `num_partitions` new actors, in turn.

        Args:
            num_partitions: Number of shards afterwards.
            batch_ms: Accepted because programs pass it; items are dealt one by one.
        """
        del batch_ms
        if num_partitions < 1:
            raise ValueError(f"Got repartition({num_partitions}), wanted 1 shard or more")
        sources = [OpenShard(shard, direct=False) for shard in self._shards]
        generators = [partial(_dealt, sources, num_partitions, i) for i in range(num_partitions)]
        return from_iterators(generators, name=f"{self.name}.repartition({num_partitions})")

    # Gathering.

    def batch_across_shards(self) -> LocalIterator[list[T]]:
        """Gives lists with one item of each shard, in their order; shards that have ended are left out."""
        return LocalIterator(partial(_ShardRounds, self._shards), SharedMetrics(), name=f"{self.name}.batches")

    def gather_sync(self) -> LocalIterator[T]:
        """Gives one item of each shard in turn. All shards make theirs at the same time; none runs ahead."""
        return LocalIterator(partial(_InTurn, self._shards), SharedMetrics(), name=f"{self.name}.gather_sync()")

    def gather_async(self, batch_ms: float = 0, num_async: int = 1) -> LocalIterator[T]:
        """Gives items as they come.

        Args:
            batch_ms: Milliseconds for which a shard collects items into one answer; 0 answers with each. Many small
                items travel cheaper in such groups.
            num_async: Requests in flight per shard.
        """
        if num_async < 1:
            raise ValueError(f"Got num_async={num_async}, wanted 1 or more requests in flight per shard")
        if batch_ms < 0:
            raise ValueError(f"Got batch_ms={batch_ms}, wanted 0 ms or more")
        source = partial(_as_they_come, self._shards, batch_ms, num_async)
        gathered: LocalIterator[Any] = LocalIterator(source, SharedMetrics(), name=f"{self.name}.gather_async()")
        return gathered.flatten() if batch_ms > 0 else gathered

    def take(self, n: int) -> list[T]:
        """Returns the first `n` items, gathered in turn."""
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        """Writes the first `n` items, gathered in turn, to standard output."""
        self.gather_sync().show(n)


class _ShardRounds:
    """Lists of one item of each shard."""

    def __init__(self, shards: Sequence[Shard], timeout_s: float | None) -> None:
        self._active = [OpenShard(shard) for shard in shards]
        self._asked: list[Any] = []
        self._timeout_s = timeout_s

    def __iter__(self) -> _ShardRounds:
        return self

    def __next__(self) -> Any:
        pairs = self.next_round()
        return pairs if isinstance(pairs, _NextValueNotReady) else [item for _, item in pairs]

    def next_round(self) -> Any:
        """Returns `[(actor, item), ...]` of all shards that still have items."""
        import ray

        while self._active:
            self._asked = self._asked or [shard.request() for shard in self._active]
            if self._timeout_s is not None:
                ready, _ = ray.wait(self._asked, num_returns=len(self._asked), timeout=self._timeout_s)
                if len(ready) < len(self._asked):
                    return _NextValueNotReady()
            asked, self._asked = self._asked, []
            pairs = list(zip(self._active, ray.get(asked), strict=True))
            pairs = [(shard, item) for shard, item in pairs if not isinstance(item, ShardEnd)]
            self._active = [shard for shard, _ in pairs]
            if pairs:
                return [(shard.actor, item) for shard, item in pairs]
        raise StopIteration


class _InTurn:
    """One item of each shard in turn, with its actor noted in the metrics context."""

    def __init__(self, shards: Sequence[Shard], timeout_s: float | None) -> None:
        self._rounds = _ShardRounds(shards, timeout_s)
        self._ready: list[tuple[Any, Any]] = []

    def __iter__(self) -> _InTurn:
        return self

    def __next__(self) -> Any:
        if not self._ready:
            ready = self._rounds.next_round()
            if isinstance(ready, _NextValueNotReady):
                return ready
            self._ready = ready
        actor, item = self._ready.pop(0)
        _get_shared_metrics().current_actor = actor
        return item


class _OpenSource:
    """Opened shards as what `AsyncRequests` asks; equal and hashed by identity, known by their actor."""

    def __init__(self, shards: Sequence[Shard], batch_ms: float) -> None:
        self.opened = [OpenShard(shard) for shard in shards]
        self._batch_ms = batch_ms

    def actors(self) -> list[OpenShard]:
        return self.opened

    def request(self, shard: OpenShard) -> Any:
        return shard.request_items(self._batch_ms) if self._batch_ms > 0 else shard.request()


class _AsTheyCome:
    """Items of all shards in the order in which they are finished."""

    def __init__(self, shards: Sequence[Shard], batch_ms: float, num_async: int, timeout_s: float | None) -> None:
        source = _OpenSource(shards, batch_ms)
        self._requests = AsyncRequests(source.actors, source.request, num_async, timeout_s)

    def __iter__(self) -> _AsTheyCome:
        return self

    def __next__(self) -> Any:
        item = next(self._requests)
        if not isinstance(item, _NextValueNotReady):
            metrics = _get_shared_metrics()
            metrics.current_actor = metrics.current_actor.actor  # the worker itself, not our view of it
        return item


def _as_they_come(shards: Sequence[Shard], batch_ms: float, num_async: int, timeout_s: float | None) -> _AsTheyCome:
    return _AsTheyCome(shards, batch_ms, num_async, timeout_s)


def _dealt(sources: Sequence[OpenShard], n: int, index: int) -> Iterator[Any]:
    """Yields, inside a new actor, every `n`-th item of each source, beginning with item `index`."""
    import ray

    active = list(sources)
    while active:
        answers = ray.get([source.actor.apply.remote(next_of_slice, source.name, n, index) for source in active])
        active = [source for source, item in zip(active, answers, strict=True) if not isinstance(item, ShardEnd)]
        yield from (item for item in answers if not isinstance(item, ShardEnd))


def from_actors(actors: Sequence[Any], name: str | None = None) -> ParallelIterator[Any]:
    """Returns the iterator over what Ray actors produce.

    Args:
        actors: Rollout workers (each item is what `sample()` returns), or actors of `ParallelIteratorWorker`. Others
            need `apply(fn, *args)`, which returns `fn(self, *args)`, and `items()` or `sample()`.
        name: Name in reports.
    """
    if not actors:
        raise ValueError("Got no actors, wanted at least one")
    return ParallelIterator([Shard(actor) for actor in actors], name or f"from_actors[shards={len(actors)}]")


def from_iterators(generators: Sequence[Any], repeat: bool = False, name: str | None = None) -> ParallelIterator[Any]:
    """Returns an iterator with one shard, in a new Ray actor, per iterable.

    Args:
        generators: Iterables that can be pickled, or functions without arguments that return iterables.
        repeat: Whether to begin again at the end.
        name: Name in reports.
    """
    import ray

    if not generators:
        raise ValueError("Got no iterators, wanted at least one")
    # Such an actor mostly waits; as it asks for no CPU, many of them fit on a small machine.
    make = ray.remote(ParallelIteratorWorker).options(num_cpus=0)
    actors = [make.remote(generator, repeat) for generator in generators]
    return from_actors(actors, name or f"from_iterators[shards={len(generators)}]")


def from_items(items: Sequence[T], num_shards: int = 2, repeat: bool = False) -> ParallelIterator[T]:
    """Returns an iterator over items dealt out in turn: shard `i` has items `i, i + num_shards, ...`."""
    if num_shards < 1:
        raise ValueError(f"Got num_shards={num_shards}, wanted 1 or more")
    shards = [list(items[i::num_shards]) for i in range(num_shards)]
    return from_iterators(shards, repeat, name=f"from_items[{len(items)}, shards={num_shards}]")


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator[int]:
    """Returns an iterator over `0, ..., n - 1`, with a run of neighbours in each shard."""
    if num_shards < 1:
        raise ValueError(f"Got num_shards={num_shards}, wanted 1 or more")
    cuts = [n * i // num_shards for i in range(num_shards + 1)]
    shards = [range(start, stop) for start, stop in pairwise(cuts)]
    return from_iterators(shards, repeat, name=f"from_range[{n}, shards={num_shards}]")
