"""Rounds of remote workers, without Ray: what is under way when a plan is saved, or built anew behind a failure."""

import numpy as np
import pytest
import ray

from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.rollout_ops import ParallelRollouts
from tests.helpers.fakes_execution import FakeWorker, FakeWorkerSet


class Reference:
    """What a call of an actor returns; it runs at once."""

    def __init__(self, call):
        try:
            self.answer, self.error = call(), None
        except Exception as error:
            self.answer, self.error = None, ray.exceptions.RayTaskError("sample", str(error), error)


class Actor(FakeWorker):
    """A worker of which `sample.remote()` may be called."""

    @property
    def sample(self):
        actor = super()

        class Method:
            remote = staticmethod(lambda: Reference(actor.sample))

        return Method


class Actors(FakeWorkerSet):
    def __init__(self, *remotes, samples_ahead=False):
        super().__init__(remotes=remotes)
        self.samples_ahead = samples_ahead

    def remote_indexes(self):
        return list(range(1, len(self.remotes) + 1))


@pytest.fixture(autouse=True)
def without_ray(monkeypatch):
    def get(asked):
        if not isinstance(asked, Reference):
            return [get(one) for one in asked]
        if asked.error is not None:
            raise asked.error
        return asked.answer

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "wait", lambda asked, **_: (list(asked), []))


def plan_of(workers, state=None) -> LocalIterator:
    plan = ParallelRollouts(workers)
    plan.build()
    if state is not None:
        plan.set_state(state)
    return plan


def first_of(batch):
    return np.asarray(batch["obs"])[:, 0].tolist()


def test_what_healthy_workers_sampled_is_not_lost_with_one_that_failed():
    workers = Actors(Actor(rows=1, fail_on=[1]), Actor(rows=1, start=50))
    failed = plan_of(workers)
    with pytest.raises(ray.exceptions.RayTaskError):
        next(failed)
    rebuilt = plan_of(workers, failed.get_state())
    assert [first_of(next(rebuilt)) for _ in range(2)] == [[0, 50], [1, 51]]
    assert rebuilt.shared_metrics.get().counters["num_steps_sampled"] == 4


def test_a_round_that_is_sampled_ahead_is_in_checkpoints():
    workers = Actors(Actor(rows=1), Actor(rows=1, start=50), samples_ahead=True)
    plan = plan_of(workers)
    assert first_of(next(plan)) == [0, 50]
    state = plan.get_state()
    resumed = Actors(*[Actor(rows=1, start=worker.position) for worker in workers.remotes], samples_ahead=True)
    goes_on = plan_of(resumed, state)
    assert [first_of(next(goes_on)) for _ in range(2)] == [[1, 51], [2, 52]]
    assert first_of(next(plan)) == [1, 51]


def test_a_fragment_that_no_checkpoint_can_hold_is_left_out_with_a_word(caplog):
    workers = Actors(Actor(rows=1), samples_ahead=True)
    plan = plan_of(workers)
    next(plan)
    next(iter(plan.build()._iterator._round._open.values())).answer["infos"] = np.array([{"map": object()}])
    assert plan.get_state()["nodes"][0]["state"] is None
    assert "what worker 1 had sampled last is not kept" in caplog.text
