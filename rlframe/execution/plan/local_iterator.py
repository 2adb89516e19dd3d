"""`LocalIterator`: a lazily built chain of operators in this process."""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rlframe.execution.plan.context import (
    ACTIVE_CONTEXT,
    MetricsContext,
    SharedMetrics,
    _get_shared_metrics,
    _NextValueNotReady,
)
from rlframe.execution.plan.item_state import describe
from rlframe.execution.plan.nodes import (
    Chain,
    FilterNode,
    FlattenNode,
    ForEachNode,
    Node,
    ResultNode,
    SkipNotReadyNode,
    SourceNode,
    WithinNode,
    walk,
)
from rlframe.utils.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

T = TypeVar("T")
U = TypeVar("U")


def _rare() -> ModuleType:
    """Returns the module with operators that few plans have; it is loaded by those that have one."""
    from rlframe.execution.plan import rare_nodes

    return rare_nodes


@dataclass(frozen=True)
class _SourceFactory:
    """Makes the first node of a chain from a user's source function."""

    base_iterator: Callable[..., Iterable[Any]]
    name: str

    def __call__(self, timeout_s: float | None) -> Node:
        given_name = describe(self.base_iterator)[0]
        named = self.name or ("" if given_name in ("<lambda>", "partial") else given_name)
        return SourceNode(_call_source(self.base_iterator, timeout_s), named)


def _call_source(base_iterator: Callable[..., Iterable[Any]], timeout_s: float | None) -> Iterator[Any]:
    """Calls a user's source function with or without the timeout, as its signature wants it."""
    try:
        parameters = inspect.signature(base_iterator).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return iter(base_iterator())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes_one = any(
        (p.kind in positional and (p.default is p.empty or p.name.startswith("timeout"))) or p.kind == p.VAR_POSITIONAL
        for p in parameters
    )
    return iter(base_iterator(timeout_s) if takes_one else base_iterator())


class LocalIterator(Chain[T]):
    """A stream of items made by a source and a chain of operators, built at the first `next()`.

    Every method that adds an operator returns a new iterator; the old one stays what it was.

    Args:
        base_iterator: Called once to make the stream, with one argument (seconds to wait for an item: None is for ever,
            0 means to yield `_NextValueNotReady()` instead of waiting) or with none, as its signature wants it.
        shared_metrics: Where the context with counters and timers is held.
        local_transforms: Functions from iterable to iterable that are applied in this order.
        timeout: Seconds to wait for an item, given to `base_iterator`.
        name: Name of the source in reports; that of the function when None.
    """

    def __init__(
        self,
        base_iterator: Callable[..., Iterable[Any]],
        shared_metrics: SharedMetrics,
        local_transforms: Sequence[Callable[[Iterable[Any]], Iterable[Any]]] = (),
        timeout: float | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(shared_metrics, SharedMetrics):
            raise ValueError(f"Got shared_metrics of type {type(shared_metrics).__name__}, wanted SharedMetrics()")
        self.shared_metrics = shared_metrics
        self.timeout = timeout
        self.name = name or "LocalIterator"
        self._source = _SourceFactory(base_iterator, name or "")
        self._stages = tuple(partial(_rare().TransformNode, fn=transform) for transform in local_transforms)

    @staticmethod
    def get_metrics() -> MetricsContext:
        """Returns the context of the plan that is running in this thread; ValueError when none is."""
        return _get_shared_metrics()

    # Pulling items.

    def take(self, n: int) -> list[T]:
        """Returns the next `n` items, or fewer when the stream ends."""
        items = []
        for item in self if n > 0 else ():
            items.append(item)
            if len(items) >= n:
                break
        return items

    def show(self, n: int = 20) -> None:
        """Writes the next `n` items to standard output, one per line."""
        for item in self.take(n):
            sys.stdout.write(f"{item}\n")

    # Building and inspecting.

    def get_state(self) -> dict[str, Any]:
        """Returns counters and the position of every operator, in the order in which they were built.

        Taken after an item was emitted, and given to an equal plan, the plan goes on as if it had never stopped. What
        Python generators (sources and transforms of the user) hold is not included.
        """
        nodes = [{"name": node.name, "state": node.get_state()} for node in walk(self.build())]
        return {"metrics": self.shared_metrics.get().get_state(), "nodes": nodes}

    def set_state(self, state: Mapping[str, Any], *, counters_only: bool = False) -> None:
        """Takes back what `get_state()` returned.

        Args:
            state: The counters, and the position of every operator.
            counters_only: Leave out the positions, which a plan of other operators cannot take.

        Raises:
            CheckpointError: If the state belongs to a plan of other operators.
        """
        nodes = list(walk(self.build()))
        if not counters_only and not self.has_operators_of(state):
            got, wanted = [saved["name"] for saved in state["nodes"]], [node.name for node in nodes]
            raise CheckpointError(
                f"Got the state of a plan of other operators: {' > '.join(got)}; wanted {' > '.join(wanted)}. "
                "Restore it with the algorithm and the settings it was saved with"
            )
        self.shared_metrics.get().set_state(state["metrics"])
        if counters_only:
            return
        for node, saved in zip(nodes, state["nodes"], strict=True):
            if saved["state"] is not None:
                node.set_state(saved["state"])

    def has_operators_of(self, state: Mapping[str, Any]) -> bool:
        """Returns whether a state is of a plan of these operators, so that all of it can be taken."""
        return [saved["name"] for saved in state["nodes"]] == [node.name for node in walk(self.build())]

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"

    # Adding operators.

    def _with(self, stage: Callable[[Node], Node], name: str) -> LocalIterator[Any]:
        return self._derive(self._source, (*self._stages, stage), f"{self.name}.{name}")

    def _derive(
        self, source: Callable[[float | None], Node], stages: tuple[Callable[[Node], Node], ...], name: str
    ) -> LocalIterator[Any]:
        derived: LocalIterator[Any] = LocalIterator.__new__(LocalIterator)
        derived.shared_metrics = self.shared_metrics
        derived.timeout = self.timeout
        derived.name = name
        derived._source = source
        derived._stages = stages
        return derived

    def transform(self, fn: Callable[[Iterable[T]], Iterable[U]]) -> LocalIterator[U]:
        """Passes the stream through a function from iterable to iterable, usually a generator function."""
        return self._with(partial(_rare().TransformNode, fn=fn), "transform()")

    def for_each(
        self, fn: Callable[[T], U], max_concurrency: int = 1, resources: Mapping[str, Any] | None = None
    ) -> LocalIterator[U]:
        """Calls `fn` on every item and hands on what it returns.

        Args:
            fn: The function. Where it returns a `_NextValueNotReady`, that is handed on and the same item is tried
                again at the next pull. A method `_on_fetch_start` is called before an item is pulled.
            max_concurrency: How many calls run at a time. Above 1 they run as Ray tasks, and results keep their order.
            resources: Options of the Ray tasks, such as `{"num_cpus": 2}`.
        """
        if max_concurrency == 1:
            return self._with(partial(ForEachNode, fn=fn), "for_each()")
        if max_concurrency < 1:
            raise ValueError(f"Got max_concurrency={max_concurrency}, wanted 1 or more")
        return self.transform(_rare().RemoteForEach(fn, max_concurrency, resources or {}))

    def filter(self, fn: Callable[[T], Any]) -> LocalIterator[T]:
        """Drops the items for which `fn` returns something false."""
        return self._with(partial(FilterNode, fn=fn), "filter()")

    def batch(self, n: int) -> LocalIterator[list[T]]:
        """Collects every `n` items into a list; the last one may be shorter."""
        if n < 1:
            raise ValueError(f"Got batch({n}), wanted 1 item or more")
        return self._with(partial(_rare().BatchNode, n=n), f"batch({n})")

    def flatten(self) -> LocalIterator[Any]:
        """Hands on the elements of every item one by one."""
        return self._with(FlattenNode, "flatten()")

    def combine(self, fn: Callable[[T], Iterable[U]]) -> LocalIterator[U]:
        """Calls `fn` on every item and hands on the elements of the list that it returns one by one."""
        return self._with(partial(FlattenNode, fn=fn), "combine()")

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator[T]:
        """Hands on random items out of a sliding window of `shuffle_buffer_size`."""
        if shuffle_buffer_size < 1:
            raise ValueError(f"Got shuffle({shuffle_buffer_size}), wanted a window of 1 item or more")
        return self._with(
            partial(_rare().ShuffleNode, size=shuffle_buffer_size, seed=seed), f"shuffle({shuffle_buffer_size})"
        )

    def zip_with_source_actor(self) -> LocalIterator[tuple[Any, T]]:
        """Turns every item into `(actor, item)`, with the remote actor that produced it."""
        return self._with(partial(ForEachNode, fn=_rare().zip_with_source), "zip_with_source_actor()")

    def skip_not_ready(self) -> LocalIterator[T]:
        """Waits until an item is ready instead of handing on not-ready markers."""
        return self._with(SkipNotReadyNode, "skip_not_ready()")

    def finish_at_limit(self, finish: Callable[[Any], Any]) -> LocalIterator[T]:
        """Waits until an item is ready; gives `finish(None)` where sources have reached the limit of env steps."""
        return self._with(partial(ResultNode, finish=finish), "skip_not_ready()")

    def within(self, context: Any) -> LocalIterator[T]:
        """Pulls every item inside a context manager, which is left also where pulling raises."""
        return self._with(partial(WithinNode, context=context), "within()")

    def duplicate(self, n: int) -> list[LocalIterator[T]]:
        """Returns `n` iterators that each see every item. Items wait, without bound, for the slowest of them."""
        if n < 2:
            raise ValueError(f"Got duplicate({n}), wanted 2 copies or more")
        tee = _rare().Tee(self.make_node, n)
        return [self._derive(partial(_rare().TeeNode, tee, i), (), f"{self.name}.duplicate[{i}]") for i in range(n)]

    def union(
        self,
        *others: Any,
        deterministic: bool = False,
        round_robin_weights: Sequence[float | str] | None = None,
        output_indexes: Sequence[int] | None = None,
    ) -> LocalIterator[Any]:
        """Joins this iterator and `others` into one stream; all then share one metrics context.

        Args:
            *others: The iterators to join with, of any kind.
            deterministic: Whether to wait for each iterator in its turn; otherwise one that has nothing ready is
                passed over.
            round_robin_weights: Items per turn of each iterator. Fractions are kept exactly over the turns; "*" means
                all that are ready. Only with `deterministic=True`.
            output_indexes: Which iterators' items to hand on (all when None). The others run, their items are dropped.
        """
        iterators = (self, *map(as_local_iterator, others))
        if round_robin_weights is not None and not deterministic:
            raise ValueError("round_robin_weights need deterministic=True: without it no turns are waited for")
        from rlframe.execution.plan.union import UnionFactory, check_outputs, check_weights

        factory = UnionFactory(
            iterators,
            weights=check_weights(round_robin_weights, len(iterators)),
            outputs=check_outputs(output_indexes, len(iterators)),
            deterministic=deterministic,
        )
        joined = self._derive(factory, (), f"LocalUnion[{', '.join(it.name for it in iterators)}]")
        joined.shared_metrics = SharedMetrics(parents=[it.shared_metrics for it in iterators])
        joined.timeout = None
        return joined


def as_local_iterator(given: Any) -> LocalIterator[Any]:
    """Returns any iterator as a plan, or as a branch of one; a `LocalIterator` itself.

    Args:
        given: A generator, an iterator, or a `LocalIterator` of `ray.util.iter`, whose operators then count in the
            plan's own counters.

    Raises:
        ValueError: If it is no iterator.
    """
    if isinstance(given, LocalIterator):
        return given
    if not hasattr(given, "__next__"):
        raise ValueError(
            f"Got an item of type {type(given).__name__}, wanted a LocalIterator, another iterator or a generator"
        )
    return LocalIterator(lambda: _items_of(given), SharedMetrics(), name=getattr(given, "name", type(given).__name__))


def _items_of(given: Iterable[Any]) -> Iterator[Any]:
    """Yields what another library's iterator gives, its operators having the plan's context.

    Ray's not-ready markers are handed to the plan's end and out of it, where RLlib's plans had them: a program that
    feeds the source of one trainer by another's steps would wait for itself.
    """
    ray_iterators = sys.modules.get("ray.util.iter")
    if ray_iterators is None or not isinstance(given, ray_iterators.LocalIterator):
        yield from given
        return
    given.shared_metrics.set(_get_shared_metrics())
    marker = type("_RayNotReady", (_NextValueNotReady, ray_iterators._NextValueNotReady), {"ends_waiting": True})
    for item in given:
        yield marker() if isinstance(item, ray_iterators._NextValueNotReady) else item


@contextmanager
def in_context_of(trainer: Any) -> Iterator[None]:
    """Lets code find a trainer's counters where no plan is running: methods called by hand, users' functions."""
    before, plan = ACTIVE_CONTEXT.metrics, trainer.train_exec_impl
    if before is None and plan is not None:
        ACTIVE_CONTEXT.metrics = plan.shared_metrics.get()
    try:
        yield
    finally:
        ACTIVE_CONTEXT.metrics = before
