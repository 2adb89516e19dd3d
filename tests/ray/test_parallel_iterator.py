"""ParallelIterator and rollouts over real Ray actors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from rlframe.evaluation.metrics import collect_episodes
from rlframe.execution.gradient_ops import AsyncGradients
from rlframe.execution.iterators import ParallelIterator, from_actors, from_items, from_iterators, from_range
from rlframe.execution.plan.context import _get_shared_metrics, _NextValueNotReady
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer
from rlframe.utils.errors import WorkerError
from tests.helpers.fakes_execution import FakeBuffer, FakeWorker, FakeWorkerSet, episode, iterate

pytestmark = pytest.mark.ray

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="module", autouse=True)
def runtime() -> Iterator[None]:
    """A small Ray runtime, unless the session has one already."""
    started = not ray.is_initialized()
    if started:
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": _ROOT, "OMP_NUM_THREADS": "1"}},
        )
    yield
    if started:
        ray.shutdown()


@pytest.fixture(scope="module")
def numbers(runtime: None) -> ParallelIterator[int]:
    """0 to 4 in one actor, 5 to 9 in another; every gathering of them starts anew."""
    return from_range(10, num_shards=2)


@pytest.fixture(scope="module")
def shared_workers(runtime: None) -> list[Any]:
    return make_workers(0, 100)


@pytest.fixture
def remotes(shared_workers: list[Any]) -> list[Any]:
    """Two workers, set back to rows 0 and 100: starting a Ray process for each test would take most of the time."""
    ray.get([worker.apply.remote(_reset, start) for worker, start in zip(shared_workers, (0, 100), strict=True)])
    return list(shared_workers)


def kill_and_wait(actor: Any) -> None:
    """Kills an actor and returns once it is dead: `ray.kill` only asks for it, and a call may still be answered."""
    ray.kill(actor)
    with contextlib.suppress(ray.exceptions.RayActorError):
        while True:
            ray.get(actor.apply.remote(_reset, 0))


def make_workers(*starts: int) -> list[Any]:
    """Returns Ray actors of FakeWorker, each starting at a row number."""
    actor = ray.remote(FakeWorker).options(num_cpus=0)
    return [actor.remote(rows=2, start=start) for start in starts]


def _reset(worker: FakeWorker, start: int, fail_on: tuple[int, ...] = ()) -> None:
    worker.__init__(rows=2, start=start, fail_on=fail_on)  # type: ignore[misc]


def first_rows(batches: Any) -> list[int]:
    return [int(batch["obs"][0, 0]) for batch in batches]


class TestSources:
    def test_from_items_dealt_out_in_turn_gather_in_order(self) -> None:
        it = from_items([1, 2, 3, 4, 5], num_shards=2)
        assert list(it.gather_sync()) == [1, 2, 3, 4, 5]
        assert list(it.gather_sync()) == [1, 2, 3, 4, 5], "gathering again starts anew"

    def test_from_range_shards_hold_neighbours(self, numbers: ParallelIterator[int]) -> None:
        assert [list(shard) for shard in numbers.shards()] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    def test_repeat_begins_again(self) -> None:
        assert from_items([1, 2], num_shards=1, repeat=True).take(5) == [1, 2, 1, 2, 1]

    def test_from_iterators_uneven_shards_go_on_without_the_ended(self) -> None:
        def two() -> Any:
            yield from (1, 2)

        it = from_iterators([two, [3]])
        assert list(it.gather_sync()) == [1, 3, 2]
        assert list(it.batch_across_shards()) == [[1, 3], [2]]


class TestOperatorsInActors:
    def test_functions_run_in_the_actors_in_order(self, numbers: ParallelIterator[int]) -> None:
        it = numbers.for_each(lambda x: (os.getpid(), x * 10)).filter(lambda pair: pair[1] != 20)
        pairs = list(it.gather_sync())
        assert [x for _, x in pairs] == [0, 50, 10, 60, 30, 70, 40, 80, 90]
        assert os.getpid() not in {pid for pid, _ in pairs}

    def test_stateful_operators_keep_their_place_in_the_actor(self, numbers: ParallelIterator[int]) -> None:
        assert list(numbers.batch(3).gather_sync()) == [[0, 1, 2], [5, 6, 7], [3, 4], [8, 9]]
        assert numbers.combine(lambda x: [x, x]).take(6) == [0, 5, 0, 5, 1, 6]
        assert numbers.batch(3).flatten().take(4) == [0, 5, 1, 6]
        assert sorted(numbers.local_shuffle(2, seed=0).gather_sync()) == list(range(10))
        assert numbers.transform(lambda items: (2 * item for item in items)).take(3) == [0, 10, 2]

    def test_metrics_context_inside_actors_is_their_own(self, numbers: ParallelIterator[int]) -> None:
        def count(_: int) -> int:
            _get_shared_metrics().counters["n"] += 1
            return _get_shared_metrics().counters["n"]

        assert numbers.for_each(count).take(4) == [1, 1, 2, 2]

    def test_union_and_select_shards(self, numbers: ParallelIterator[int]) -> None:
        it = numbers.union(numbers.select_shards([1]).for_each(lambda x: -x))
        assert it.num_shards() == 3
        assert it.take(6) == [0, 5, -5, 1, 6, -6]
        assert it.select_shards([2]).take(2) == [-5, -6]

    def test_repartition_deals_every_item_once(self, numbers: ParallelIterator[int]) -> None:
        it = numbers.for_each(lambda x: x * 10).repartition(3)
        assert it.num_shards() == 3
        assert sorted(it.gather_async()) == [10 * i for i in range(10)]

    def test_gather_async_groups_lose_nothing(self, numbers: ParallelIterator[int]) -> None:
        assert sorted(numbers.gather_async(num_async=3)) == list(range(10))
        assert sorted(numbers.gather_async(batch_ms=20, num_async=2)) == list(range(10))
        assert list(numbers.get_shard(1)) == [5, 6, 7, 8, 9], "the order within a shard is kept"

    def test_error_in_an_actor_is_raised_here(self, numbers: ParallelIterator[int]) -> None:
        with pytest.raises(ZeroDivisionError):
            list(numbers.for_each(lambda x: 1 / (x - 1)).gather_sync())

    def test_source_actor_is_known(self, numbers: ParallelIterator[int]) -> None:
        actors = [shard.actor for shard in numbers._shards]
        for gathered in (numbers.gather_sync(), numbers.gather_async()):
            for actor, item in gathered.zip_with_source_actor():
                assert actor == actors[item // 5]

    @pytest.mark.parametrize("call", [
        lambda it: it.gather_async(num_async=0), lambda it: it.gather_async(batch_ms=-1), lambda it: it.get_shard(9),
        lambda it: it.select_shards([]), lambda it: it.repartition(0), lambda it: it.union([1]),
        lambda _: from_items([1], num_shards=0), lambda _: from_range(1, num_shards=0), lambda _: from_actors([]),
        lambda _: from_iterators([]),
    ])  # fmt: skip
    def test_wrong_arguments_raise(self, numbers: ParallelIterator[int], call: Any) -> None:
        with pytest.raises(ValueError, match="wanted"):
            call(numbers)

    def test_iterating_without_gathering_raises(self, numbers: ParallelIterator[int]) -> None:
        with pytest.raises(TypeError, match="gather"):
            iter(numbers)


class TestLocalForEachOnTasks:
    def test_results_keep_their_order(self) -> None:
        it = iterate(range(6)).for_each(lambda x: x * 2, max_concurrency=2, resources={"num_cpus": 1})
        assert list(it) == [0, 2, 4, 6, 8, 10]


class TestRollouts:
    def test_bulk_sync_joins_in_worker_order(self, remotes: list[Any]) -> None:
        workers = FakeWorkerSet(remotes=remotes)
        it: Any = ParallelRollouts(workers, mode="bulk_sync")
        assert workers.syncs == [{"policies": None, "global_vars": None}]
        assert next(it)["obs"][:, 0].tolist() == [0, 1, 100, 101]
        assert next(it)["obs"][:, 0].tolist() == [2, 3, 102, 103]
        assert it.shared_metrics.get().counters["num_steps_sampled"] == 8
        assert workers.local.samples_taken == 0

    def test_bulk_sync_failure_loses_only_what_failed(self, remotes: list[Any]) -> None:
        ray.get(remotes[0].apply.remote(_reset, 0, (2,)))
        it: Any = ParallelRollouts(FakeWorkerSet(remotes=remotes))
        next(it)
        with pytest.raises(RuntimeError, match="environment broke"):
            next(it)
        assert next(it)["obs"][:, 0].tolist() == [2, 3, 102, 103]

    def test_bulk_sync_dead_worker_can_be_replaced(self, remotes: list[Any]) -> None:
        doomed, new = make_workers(300, 500)
        workers = FakeWorkerSet(remotes=[doomed, remotes[1]])
        it: Any = ParallelRollouts(workers)
        next(it)
        ray.kill(doomed)
        _wait_until_dead(doomed)
        with pytest.raises(ray.exceptions.RayActorError):
            next(it)
        workers.remotes = [remotes[1], new]
        assert next(it)["obs"][:, 0].tolist() == [102, 103, 500, 501]
        workers.remotes = []
        with pytest.raises(WorkerError, match="no remote workers"):
            next(it)

    def test_async_items_of_all_workers_with_their_source(self, remotes: list[Any]) -> None:
        it: Any = ParallelRollouts(FakeWorkerSet(remotes=remotes), mode="async", num_async=2)
        batches = it.take(8)
        for name in (0, 1):
            rows = [row for row in first_rows(batches) if row // 100 == name]
            assert rows == sorted(set(rows)), "each worker's batches come once and in order"
        metrics = it.shared_metrics.get()
        assert metrics.current_actor in remotes
        assert metrics.counters["num_steps_sampled"] == 16

    def test_async_failed_worker_is_asked_again_and_a_removed_one_is_not(self, remotes: list[Any]) -> None:
        ray.get(remotes[0].apply.remote(_reset, 0, (2,)))
        workers = FakeWorkerSet(remotes=remotes[:1])
        it: Any = ParallelRollouts(workers, mode="async")
        assert first_rows([next(it)]) == [0]
        with pytest.raises(RuntimeError, match="environment broke"):
            next(it)
        assert first_rows([next(it)]) == [2]
        workers.remotes = remotes[1:]
        assert first_rows(it.take(3)) == [100, 102, 104]
        workers.remotes = []
        with pytest.raises(WorkerError, match="no actors"):
            next(it)

    def test_raw_gives_the_parallel_iterator(self, remotes: list[Any]) -> None:
        it = ParallelRollouts(FakeWorkerSet(remotes=remotes), mode="raw")
        assert isinstance(it, ParallelIterator)
        counted = it.for_each(lambda batch: int(batch["obs"][0, 0]))
        assert counted.gather_sync().take(4) == [0, 100, 2, 102]
        assert first_rows(it.gather_sync().take(2)) == [4, 104]

    def test_async_gradients_are_made_by_workers(self, remotes: list[Any]) -> None:
        it = AsyncGradients(FakeWorkerSet(remotes=remotes))
        gradients, count = next(it)
        assert gradients[0].tolist() in ([1.0], [201.0])
        assert count == 2
        assert it.shared_metrics.get().info["learner"] == {"default_policy": {"learner_stats": {"loss": 1.0}}}


@pytest.mark.slow
class TestReplayActors:
    def test_store_and_replay_over_actors(self) -> None:
        actors = [ray.remote(FakeBuffer).options(num_cpus=0).remote() for _ in range(2)]
        worker_set = FakeWorkerSet(FakeWorker(rows=2))
        replayed = Replay(actors=actors, num_async=2)
        assert isinstance(next(replayed), _NextValueNotReady)
        rollouts: Any = ParallelRollouts(worker_set)
        rollouts.for_each(StoreToReplayBuffer(actors=actors, seed=0)).take(8)
        actor, batch = next(replayed.skip_not_ready().zip_with_source_actor())
        assert actor in actors
        assert batch.count == 2


class TestNonBlocking:
    def test_asynchronous_union_does_not_wait_for_a_slow_worker(self, remotes: list[Any]) -> None:
        remotes[0].apply.remote(_sleep, 5.0)
        for mode in ("bulk_sync", "async"):
            slow: Any = ParallelRollouts(FakeWorkerSet(remotes=remotes[:1]), mode=mode)
            assert slow.union(iterate([0, 1, 2])).take(3) == [0, 1, 2]


class TestMetrics:
    def test_episodes_of_all_workers_in_order_and_a_dead_one_costs_its_own(self, remotes: list[Any]) -> None:
        (doomed,) = make_workers(300)
        asked = [remotes[0], doomed, remotes[1]]
        for number, worker in enumerate(asked):
            ray.get(worker.apply.remote(_finish_episode, float(number)))
        local = FakeWorker()
        local.episodes = [episode(9.0)]
        kill_and_wait(doomed)
        episodes, late = collect_episodes(local, asked, (), 60)
        assert [e.episode_reward for e in episodes] == [0.0, 2.0, 9.0]
        assert late == []

    def test_late_episodes_are_carried_over(self, remotes: list[Any]) -> None:
        worker = remotes[0]
        ray.get(worker.apply.remote(_finish_episode, 5.0))
        worker.apply.remote(_sleep, 1.0)
        episodes, late = collect_episodes(None, [worker], (), 0.05)
        assert (episodes, len(late)) == ([], 1)
        episodes, late = collect_episodes(None, [], late, 60)
        assert [e.episode_reward for e in episodes] == [5.0]
        assert late == []


def _wait_until_dead(actor: Any) -> None:
    """Returns when an actor that was killed answers no more: it may for a while after the call."""
    while True:
        try:
            ray.get(actor.apply.remote(_nothing))
        except ray.exceptions.RayActorError:
            return


def _nothing(_: FakeWorker) -> None:
    pass


def _finish_episode(worker: FakeWorker, reward: float) -> None:
    worker.episodes.append(episode(reward))


def _sleep(_: FakeWorker, seconds: float) -> None:
    import time

    time.sleep(seconds)
