"""Concurrently, and queues between a plan and a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rlframe.execution.concurrency_ops import Concurrently, Dequeue, Enqueue
from rlframe.execution.plan.context import _get_shared_metrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import as_local_iterator
from tests.helpers.fakes_execution import iterate


def test_concurrently_round_robin_outputs_one_branch() -> None:
    seen: list[int] = []
    store = iterate([1, 2, 3]).for_each(lambda x: seen.append(x))
    train = iterate("abc")
    assert "".join(Concurrently([store, train], mode="round_robin", output_indexes=[1])) == "abc"
    assert seen == [1, 2, 3]


def test_concurrently_async_gives_all() -> None:
    assert sorted(Concurrently([iterate("ac"), iterate("bd")], mode="async")) == ["a", "b", "c", "d"]


def test_concurrently_takes_any_iterator() -> None:
    def generator() -> Iterator[str]:
        yield from "ab"

    assert "".join(Concurrently([generator(), iterate("12"), iter("xy")])) == "a1xb2y"
    with pytest.raises(ValueError, match="int, wanted a LocalIterator"):
        Concurrently([iterate("a"), 3])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ray.util.annotations.RayDeprecationWarning")
def test_iterators_of_ray_count_in_the_plan() -> None:
    from ray.util.iter import LocalIterator
    from ray.util.iter import _NextValueNotReady as NotReadyOfRay
    from ray.util.iter_metrics import SharedMetrics

    def source(timeout: float | None) -> Iterator[Any]:
        yield 1
        yield NotReadyOfRay()
        yield 2

    def count_in_rays(item: int) -> int:
        LocalIterator.get_metrics().counters["seen"] += item
        return item

    def count_here(item: int) -> int:
        _get_shared_metrics().counters["seen"] += 10 * item
        return item

    rays = LocalIterator(source, SharedMetrics()).for_each(count_in_rays).for_each(count_here)
    plan = Concurrently([rays, iterate([3, 4]).for_each(count_in_rays)], mode="round_robin")
    assert [item for item in plan if not isinstance(item, _NextValueNotReady)] == [1, 3, 4, 2]
    assert plan.shared_metrics.get().counters["seen"] == 1 + 2 + 10 + 20 + 3 + 4

    plan = as_local_iterator(LocalIterator(source, SharedMetrics())).for_each(count_here).skip_not_ready()
    assert [isinstance(item, NotReadyOfRay) for item in plan] == [False, True, False]


@pytest.mark.parametrize(
    ("n", "keys", "message"),
    [(1, {}, "2 or more"), (2, {"mode": "parallel"}, "'parallel'"),
     (2, {"mode": "async", "round_robin_weights": [1, 1]}, "mode='async'"),
     (2, {"round_robin_weights": [1]}, "1 round_robin_weights for 2"), (2, {"output_indexes": [5]}, "0 to 1")],
)  # fmt: skip
def test_concurrently_wrong_arguments_raise(n: int, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Concurrently([iterate("a") for _ in range(n)], **keys)


def test_enqueue_and_dequeue_items_pass_in_order() -> None:
    q: queue.Queue[int] = queue.Queue(10)
    assert list(iterate([1, 2, 3]).for_each(Enqueue(q))) == [1, 2, 3]
    assert Dequeue(q).take(3) == [1, 2, 3]


def test_enqueue_full_queue_gives_marker_and_keeps_the_item() -> None:
    q: queue.Queue[int] = queue.Queue(1)
    it = iterate([1, 2]).for_each(Enqueue(q))
    assert next(it) == 1
    assert isinstance(next(it), _NextValueNotReady)
    assert isinstance(next(it), _NextValueNotReady)
    assert q.get() == 1
    assert next(it) == 2
    assert q.get() == 2


def test_dequeue_empty_queue_gives_marker() -> None:
    assert isinstance(next(Dequeue(queue.Queue())), _NextValueNotReady)


def test_dequeue_dead_thread_raises_once_the_queue_is_empty() -> None:
    q: queue.Queue[int] = queue.Queue()
    q.put(1)
    it = Dequeue(q, check=lambda: False)
    assert next(it) == 1
    with pytest.raises(RuntimeError, match="filling thread alive"):
        next(it)


def test_dequeue_takes_what_a_thread_put_before_it_ended() -> None:
    q: queue.Queue[int] = queue.Queue()

    def ends() -> bool:  # between the look into the queue and that at the thread
        q.put(1)
        return False

    it = Dequeue(q, check=ends)
    assert isinstance(next(it), _NextValueNotReady)
    assert next(it) == 1


@pytest.mark.parametrize("make", [Enqueue, Dequeue])
def test_something_else_than_a_queue_raises(make: Any) -> None:
    with pytest.raises(ValueError, match=r"wanted a queue\.Queue"):
        make([])


def test_back_pressure_other_branches_run_and_nothing_is_lost() -> None:
    inqueue: queue.Queue[int | None] = queue.Queue(1)
    outqueue: queue.Queue[int] = queue.Queue()

    def work() -> None:
        while (item := inqueue.get()) is not None:
            outqueue.put(item * 10)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    feed = iterate(range(50)).for_each(Enqueue(inqueue))
    plan = Concurrently([feed, Dequeue(outqueue, thread.is_alive)], mode="async", output_indexes=[1])
    assert plan.take(50) == [10 * i for i in range(50)]
    inqueue.put(None)
    thread.join()
