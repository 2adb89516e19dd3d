"""Learners: threads that learn from a queue, what stops them, and the one without a thread."""

import contextlib
import copy
import gc
import threading

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.execution.concurrency_ops import Concurrently, Dequeue, Enqueue
from rlframe.execution.learner import inline as inline_learner
from rlframe.execution.learner.inline import InlineLearner, LearnerResult
from rlframe.execution.learner.loader import MultiGPULearnerThread
from rlframe.execution.learner.thread import LearnerThread
from rlframe.execution.learner_ops import BroadcastLearned, FeedLearner, make_learner
from rlframe.execution.plan.context import SharedMetrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator
from tests.helpers.fakes_execution import FakeWorker, FakeWorkerSet, iterate, make_batch

KINDS = [LearnerThread, MultiGPULearnerThread]
WAIT_S = 20.0
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def learners():
    made = []

    def build(kind=LearnerThread, worker=None, **arguments):
        made.append(kind(worker or FakeWorker(), **arguments))
        return made[-1]

    yield build
    for learner in made:
        learner.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rlframe-")]


def rows(learner):
    return learner.local_worker.policy_map["default_policy"].seen


@every_kind
def test_a_thread_learns_each_batch_in_order_and_tells_of_it(learners, kind):
    learner = learners(kind, learner_queue_size=8)
    for start in range(0, 12, 4):
        learner.inqueue.put(make_batch(4, start))
    with learner:
        told = [learner.outqueue.get(timeout=WAIT_S) for _ in range(3)]
    assert rows(learner) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert [item.env_steps for item in told] == [4, 4, 4]
    assert told[0].infos["default_policy"]["learner_stats"]["max_q"] == 3


@every_kind
def test_passes_are_counted_once(learners, kind):
    learner = learners(kind, num_sgd_iter=3)
    learner.inqueue.put(make_batch(4))
    with learner:
        told = [learner.outqueue.get(timeout=WAIT_S) for _ in range(3)]
    assert [item.env_steps for item in told] == [0, 0, 4]
    assert rows(learner) == [[0, 1, 2, 3]] * 3


def test_policies_stay_until_the_step_is_done(monkeypatch):
    """The target update and the copy of the weights touch policies, which the other thread could send to the disk."""
    holds = []

    @contextlib.contextmanager
    def held(policies):
        holds.append(policies)
        yield
        holds.pop()

    monkeypatch.setattr(inline_learner, "held", held)
    worker, noted = FakeWorker(), []
    get_weights = worker.get_weights
    monkeypatch.setattr(worker, "get_weights", lambda *args: (noted.append(len(holds)), get_weights(*args))[1])
    learner = inline_learner.BatchLearner(worker, 1, after_step=lambda told: noted.append(len(holds)))
    assert learner.learn(make_batch(4)).weights is not None
    assert (noted, holds) == ([1, 1], [])


def test_each_policy_learns_from_its_own_rows(learners):
    learner = learners(worker=FakeWorker(policies=("a", "b")))
    learner.inqueue.put(MultiAgentBatch({"a": make_batch(4), "b": make_batch(2, 10)}, 5))
    with learner:
        told = learner.outqueue.get(timeout=WAIT_S)
    assert (told.env_steps, told.agent_steps) == (5, 6)
    assert told.infos["a"]["learner_stats"]["max_q"] == 3
    assert told.infos["b"]["learner_stats"]["max_q"] == 11


def test_nothing_is_learned_outside_of_the_context(learners):
    learner = learners()
    with learner:
        pass
    learner.inqueue.put(make_batch(4))
    while not learner.inqueue.empty():  # the thread takes the batch, and waits with it
        pass
    assert rows(learner) == []
    with learner:
        learner.outqueue.get(timeout=WAIT_S)
    assert len(rows(learner)) == 1


def test_leaving_the_context_waits_for_the_step_at_hand(learners):
    begun, go_on = threading.Event(), threading.Event()
    worker = FakeWorker()
    policy = worker.policy_map["default_policy"]
    learn = policy.learn_on_batch

    def slow(batch):
        begun.set()
        assert go_on.wait(WAIT_S)
        return learn(batch)

    policy.learn_on_batch = slow
    learner = learners(worker=worker)
    learner.inqueue.put(make_batch(4))
    left = threading.Event()

    def run():
        with learner:
            assert begun.wait(WAIT_S)
        left.set()

    driver = threading.Thread(target=run)
    driver.start()
    assert begun.wait(WAIT_S)
    assert not left.is_set()
    go_on.set()
    driver.join()
    assert len(policy.seen) == 1


@every_kind
def test_what_is_raised_in_the_thread_is_raised_in_the_plan_with_its_traceback(learners, kind):
    worker = FakeWorker()

    def broken(batch):
        raise ZeroDivisionError("loss of nothing")

    worker.policy_map["default_policy"].learn_on_batch = broken
    learner = learners(kind, worker)
    learner.inqueue.put(make_batch(4))
    plan = learner.results().skip_not_ready().within(learner)
    with pytest.raises(ZeroDivisionError, match="loss of nothing") as caught:
        next(plan)
    assert caught.traceback[-1].name == "broken"
    with pytest.raises(ZeroDivisionError):
        next(plan)


def test_a_batch_that_cannot_be_unpacked_is_raised_as_well(learners):
    learner = learners(MultiGPULearnerThread)
    learner.inqueue.put("no batch")
    with pytest.raises(AttributeError, match="decompress_if_needed"):
        next(learner.results().skip_not_ready().within(learner))


def test_a_learner_that_gets_nothing_gives_up_but_not_while_it_is_held(learners):
    learner = learners(learner_queue_timeout=0.2)
    with learner:
        pass
    assert learner.check()
    with pytest.raises(TimeoutError, match="Raise learner_queue_timeout"):
        next(learner.results().skip_not_ready().within(learner))


@every_kind
def test_queues_are_bounded_on_both_sides(learners, kind):
    learner = learners(kind, learner_queue_size=2)
    enqueue = Enqueue(learner.inqueue)
    accepted = 0
    with learner:
        # Nobody takes results: 2 in the way out, 1 in hand, 2 in the way in, and what is loaded ahead.
        refused = 0
        while refused < 200:
            item = enqueue(make_batch(4))
            refused = refused + 1 if isinstance(item, _NextValueNotReady) else 0
            accepted += refused == 0
    assert accepted <= (5 if kind is LearnerThread else 8)
    assert len(rows(learner)) <= 4


def test_one_batch_at_most_waits_for_the_first_step_and_the_queue_opens_behind_it(learners):
    learner = learners(learner_queue_size=3)
    feed, batch = FeedLearner(learner), make_batch(4)
    assert feed(batch) is batch
    assert isinstance(feed(batch), _NextValueNotReady)
    with learner:
        learner.outqueue.get(timeout=WAIT_S)
    assert [feed(batch) is batch for _ in range(3)] == [True, True, True]


def test_a_thread_can_be_stopped_before_it_began_and_while_its_results_pile_up(learners):
    never = learners()
    never.stop()
    with never:
        assert not never.is_alive()
    full = learners(learner_queue_size=1)
    full.inqueue.put(make_batch(4))
    with full:
        while not full.outqueue.full():
            pass
        full.inqueue.put(make_batch(4))
    full.close()
    assert not full.is_alive()


def test_metrics_of_the_thread_are_reported(learners):
    learner = learners(after_step=lambda item: None)
    learner.inqueue.put(make_batch(4))
    with learner:
        learner.outqueue.get(timeout=WAIT_S)
        result = learner.add_learner_metrics({"info": {}})
    assert set(result["info"]["learner_queue"]) == {"size_count", "size_mean", "size_std", "size_quantiles"}
    assert set(result["info"]["timing_breakdown"]) == {
        *("learner_grad_time_ms", "learner_load_time_ms", "learner_load_wait_time_ms", "learner_dequeue_time_ms")
    }


def test_weights_are_copied_every_few_batches(learners):
    learner = learners(snapshot_every=2, learner_queue_size=8)
    for start in range(0, 16, 4):
        learner.inqueue.put(make_batch(4, start))
    with learner:
        told = [learner.outqueue.get(timeout=WAIT_S) for _ in range(4)]
    assert [item.weights is not None for item in told] == [False, True, False, True]


def test_what_follows_a_step_runs_in_the_thread_with_counters_of_its_own(learners):
    seen = []

    def after(item):
        LocalIterator.get_metrics().counters["num_target_updates"] += 1
        seen.append((item[0], threading.current_thread().name))

    learner = learners(after_step=after, num_sgd_iter=2)
    learner.inqueue.put(make_batch(4))
    with learner:
        for _ in range(2):
            learner.outqueue.get(timeout=WAIT_S)
    assert seen == [(0, "rlframe-learner"), (4, "rlframe-learner")]
    assert learner.add_learner_metrics({"info": {}})["info"]["num_target_updates"] == 2
    other = learners()
    other.set_state(learner.get_state())
    assert other.metrics.counters["num_target_updates"] == 2


def test_told_steps_reach_the_policies_before_the_next_step(learners):
    learner = learners()
    learner.set_global_vars({"timestep": 40})
    learner.inqueue.put(make_batch(4))
    with learner:
        learner.outqueue.get(timeout=WAIT_S)
    assert learner.local_worker.global_vars == {"timestep": 40}


def test_a_thread_that_the_program_started_ends_with_the_plan_and_raises_in_it(learners):
    """RLlib's own plans say `check=learner.is_alive`; the thread of a plan that is built anew would learn on."""
    worker = FakeWorker()

    def broken(batch):
        raise ZeroDivisionError("loss of nothing")

    worker.policy_map["default_policy"].learn_on_batch = broken
    failing, living = learners(worker=worker), learners()
    failing.inqueue.put(make_batch(4))
    failing.start()
    with pytest.raises(ZeroDivisionError, match="loss of nothing"):
        next(Dequeue(failing.outqueue, check=failing.is_alive).skip_not_ready())
    living.start()
    plan = Dequeue(living.outqueue, check=living.is_alive)
    next(plan)
    plan.close()
    assert not living.is_alive()


# --- without a thread -------------------------------------------------------------------------------------------------


def inline(**arguments):
    learner = InlineLearner(FakeWorker(), **arguments)
    return learner, learner.results()


def test_without_a_thread_pulling_learns():
    learner, results = inline(num_sgd_iter=2)
    assert isinstance(next(results), _NextValueNotReady)
    learner.inqueue.put(make_batch(4))
    told = next(results)
    assert isinstance(told, LearnerResult)
    assert copy.deepcopy(told).agent_steps == told.agent_steps == 4
    count, infos = told
    assert (count, infos) == (told[0], told[1]) == (told.env_steps, told.infos) == (4, infos)
    assert told.infos["default_policy"]["learner_stats"]["loss"] == 1.5  # the mean of 1 and 2
    assert rows(learner) == [[0, 1, 2, 3]] * 2
    assert isinstance(next(results), _NextValueNotReady)


def test_without_a_thread_several_batches_are_learned_from_in_turn():
    learner, results = inline(num_sgd_iter=2, minibatch_buffer_size=2)
    for start in range(0, 40, 10):
        learner.inqueue.put(make_batch(1, start))
        next(results)
    assert [first for (first,) in rows(learner)] == [0, 10, 20, 10, 20, 30]


@pytest.mark.parametrize("remotes", [0, 1])
@pytest.mark.parametrize("stacks", [1, 2])
def test_the_learner_that_a_config_asks_for(remotes, stacks):
    config = {
        "after_train_step": None, "minibatch_buffer_size": 1, "num_sgd_iter": 1, "learner_queue_size": 3,
        "learner_queue_timeout": 1, "num_multi_gpu_tower_stacks": stacks, "broadcast_interval": 1,
    }  # fmt: skip
    learner = make_learner(FakeWorkerSet(remotes=[object()] * remotes), config)
    assert type(learner) is ((LearnerThread, MultiGPULearnerThread)[stacks - 1] if remotes else InlineLearner)


def test_a_plan_counts_what_was_learned_and_sends_the_newest_weights(learners):
    learner = learners(snapshot_every=1)
    workers = FakeWorkerSet(learner.local_worker)
    sent = []
    workers.weights_changed = lambda policies, global_vars, weights: sent.append((policies, global_vars, weights))
    store = iterate([make_batch(4, start) for start in range(0, 20, 4)]).for_each(Enqueue(learner.inqueue))
    learned = learner.results().for_each(BroadcastLearned(workers, learner))
    plan = Concurrently([store, learned], mode="async", output_indexes=[1]).skip_not_ready().within(learner)
    for _ in range(5):
        next(plan)
    counters = plan.shared_metrics.get().counters
    assert counters["num_steps_trained"] == counters["num_agent_steps_trained"] == 20
    assert [policies for policies, _, _ in sent] == [["default_policy"]] * 5
    plan.close()
    assert not learner.is_alive()


def test_closing_a_plan_reaches_sources_operators_and_contexts():
    closed = []

    class Closing:
        def __init__(self, name):
            self.name = name

        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def __call__(self, item):
            return [item]

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def close(self):
            closed.append(self.name)

    def plan():
        source = LocalIterator(lambda: Closing("source"), SharedMetrics())
        return source.for_each(Closing("for_each")).combine(Closing("combine")).within(Closing("within"))

    plan().close()
    assert closed == []  # never built: it holds nothing
    built = plan()
    next(built)
    built.close()
    assert closed == ["within", "combine", "for_each", "source"]


def test_a_learner_nobody_holds_does_no_harm():
    learner = LearnerThread(FakeWorker())
    del learner
    gc.collect()


def test_leaving_a_context_also_when_pulling_raises():
    left = []

    class Context:
        def __enter__(self):
            return self

        def __exit__(self, kind, *rest):
            left.append(kind)

    def broken():
        yield 1
        raise KeyError("gone")

    plan = LocalIterator(broken, SharedMetrics()).within(Context())
    assert next(plan) == 1
    with pytest.raises(KeyError):
        next(plan)
    assert left == [None, KeyError]


def test_snapshots_are_no_views():
    worker = FakeWorker()
    weights = {"w": np.zeros(3)}
    worker.get_weights = lambda policies=None: {"default_policy": {name: w.copy() for name, w in weights.items()}}
    learner = LearnerThread(worker, snapshot_every=1)
    told = learner.learner.learn(make_batch(4))
    weights["w"] += 1
    assert told.weights["default_policy"]["w"].tolist() == [0, 0, 0]
