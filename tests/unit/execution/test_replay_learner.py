"""The learner thread of replay shards, and what stands around it: results, targets, weights, pace."""

import queue
from types import SimpleNamespace

import numpy as np
import pytest

from rlframe.agents.families.distributed_replay import UpdateTargets, UpdateWorkerWeights, _AllReady, _Pace, _Paced
from rlframe.data.sample_batch import MultiAgentBatch
from rlframe.execution.learner.replay import ReplayLearnerThread
from rlframe.execution.plan.context import _NextValueNotReady
from rlframe.execution.train_ops import td_errors_by_policy
from rlframe.utils.errors import NonFiniteError
from tests.helpers.fakes_execution import FakeWorker, iterate, make_batch


def drawn(rows, start=0):
    batch = make_batch(rows, start)
    batch["batch_indexes"] = np.arange(start, start + rows)
    return batch


def test_results_say_which_shard_and_which_rows():
    worker, told = FakeWorker(rows=4), []
    thread = ReplayLearnerThread(worker, after_step=told.append)
    thread.start()
    thread.inqueue.put(("shard 1", drawn(4, 10)))
    learned = thread.outqueue.get(timeout=10)
    thread.stop()
    source, priorities, count = learned  # as RLlib's plans take it apart
    assert (source, count, learned.agent_steps) == ("shard 1", 4, 4)
    indexes, td_errors = priorities["default_policy"]
    np.testing.assert_array_equal(indexes, [10, 11, 12, 13])
    np.testing.assert_allclose(td_errors, [1.0, 1.1, 1.2, 1.3])
    assert thread.weights_updated
    assert thread.learner_info is learned.infos
    assert thread.stats == {"default_policy": learned.infos["default_policy"]["learner_stats"]}
    assert [count for count, _ in told] == [4]
    assert thread.overall_timer.count == 1


def test_nothing_is_learned_while_the_thread_stands_still():
    thread = ReplayLearnerThread(FakeWorker(rows=4))
    thread.start()
    with thread.standing_still():
        thread.inqueue.put(("shard", drawn(4)))
        with pytest.raises(queue.Empty):
            thread.outqueue.get(timeout=0.05)
    assert thread.outqueue.get(timeout=10).env_steps == 4
    thread.stop()


def test_td_errors_are_those_of_rows_with_indexes_and_must_be_finite():
    info = {"a": {"td_error": np.ones(3)}, "b": {"td_error": np.ones(2)}}
    batch = MultiAgentBatch({"a": drawn(3), "b": make_batch(2), "c": drawn(1)}, 3)
    assert list(td_errors_by_policy(batch, info)) == ["a"]
    info["a"]["td_error"][1] = np.nan
    with pytest.raises(NonFiniteError, match="TD errors of policy 'a' that are NaN or infinite, which cannot be prior"):
        td_errors_by_policy(batch, info)


def test_targets_are_updated_by_steps_learned_from():
    worker = FakeWorker(rows=4)
    workers = SimpleNamespace(local_worker=lambda: worker)
    policy = worker.policy_map["default_policy"]
    plan = iterate([(4, {})] * 6).for_each(UpdateTargets(workers, 8))
    plan.take(6)
    counters = plan.shared_metrics.get().counters
    assert policy.target_updates == counters["num_target_updates"] == 2  # at 12 and 24: more than 8 since the last
    assert counters["last_target_update_ts"] == 24
    iterate([(4, {})] * 6).for_each(UpdateTargets(workers, 0)).take(6)
    assert policy.target_updates == 2 + 6


class Workers:
    def __init__(self):
        self.sent = []
        self.local = SimpleNamespace(policies_to_train=["p"], get_weights=lambda ids: dict.fromkeys(ids, "weights"))

    def local_worker(self):
        return self.local

    def weights_changed(self, policies, global_vars, weights):
        self.sent.append((policies, weights))


def test_weights_are_sent_when_a_worker_has_sampled_enough_and_there_are_new_ones():
    workers, learner = Workers(), SimpleNamespace(weights_updated=False)
    operator = UpdateWorkerWeights(learner, workers, max_weight_sync_delay=8)
    items = [("a", make_batch(4)), ("b", make_batch(4)), ("a", make_batch(4)), ("b", make_batch(4))]
    plan = iterate(items * 3).for_each(operator)
    assert plan.take(4) == items
    assert workers.sent == []  # nothing was learned so far
    learner.weights_updated = True
    plan.take(1)
    assert workers.sent == [(["p"], {"p": "weights"})]
    assert learner.weights_updated is False
    learner.weights_updated = True
    plan.take(3)  # b has 8 steps again, and sends for both
    assert len(workers.sent) == plan.shared_metrics.get().counters["num_weight_syncs"] == 2


@pytest.mark.parametrize(
    ("sampled", "trained", "queued", "samples", "learns"),
    [
        (10, 0, 0, True, False),  # before learning starts
        (110, 0, 0, True, True),  # 40 rows are owed, but there is nothing to learn from, as after a restore
        (110, 0, 1, False, True),  # more than the queue of two batches of 8 takes: who samples waits for who learns
        (110, 24, 1, True, True),
        (110, 32, 1, True, False),
    ],
)
def test_training_intensity_says_whose_turn_it_is(sampled, trained, queued, samples, learns):
    inqueue = queue.Queue(maxsize=2)
    for _ in range(queued):
        inqueue.put("batch")
    learner = SimpleNamespace(inqueue=inqueue, outqueue=queue.Queue())
    pace = _Pace({"training_intensity": 4.0, "learning_starts": 100, "train_batch_size": 8}, learner)
    asked = iterate([0]).for_each(lambda _: (pace.may_sample(), pace.may_learn()))
    asked.shared_metrics.get().counters.update(num_steps_sampled=sampled, num_steps_trained=trained)
    assert asked.take(1) == [(samples, learns)]


def test_a_branch_waits_for_its_turn_and_then_does_all_it_can():
    turn = [False]
    marker = _NextValueNotReady()
    plan = iterate([1, 2, 3, marker, 4, 5, marker]).transform(_Paced(lambda: turn[0])).transform(_AllReady())
    assert isinstance(next(plan), _NextValueNotReady)
    turn[0] = True
    assert next(plan) == 3
    assert next(plan) == 5
