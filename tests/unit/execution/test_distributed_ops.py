"""Rounds of workers that learn themselves, without Ray: what an interrupt leaves under way."""

import itertools

import pytest

from rlframe.execution import distributed_ops
from rlframe.execution.distributed_ops import SGDSettings, _DecentralizedLearner
from rlframe.execution.plan.context import SharedMetrics
from rlframe.execution.plan.local_iterator import LocalIterator
from tests.helpers.fakes_execution import FakeWorkerSet


class Apply:
    """Of a worker, `apply.remote(...)`: numbers the rounds that it is asked for."""

    def __init__(self):
        self._numbers = itertools.count(1)
        self.apply = self

    def remote(self, *arguments):
        return next(self._numbers)


@pytest.mark.parametrize(("interrupt", "asked"), [(KeyboardInterrupt, [1, 1]), (RuntimeError, [2, 2])])
def test_the_round_that_an_interrupt_leaves_is_counted_and_one_that_failed_is_not(monkeypatch, interrupt, asked):
    taken, outcomes = [], [interrupt(), None]

    def answers(calls):
        error = outcomes.pop(0)
        if error is not None:
            raise error
        taken.extend(calls)
        return [(4, 4, {}) for _ in calls]

    monkeypatch.setattr(distributed_ops, "_answers", answers)
    workers = FakeWorkerSet(remotes=[Apply(), Apply()])
    settings = SGDSettings(num_sgd_iter=1, sgd_minibatch_size=0)
    plan = LocalIterator(lambda: _DecentralizedLearner(workers, settings, False), SharedMetrics())
    with pytest.raises(interrupt):
        next(plan)
    assert next(plan) == (8, {})
    assert taken == asked
    assert plan.shared_metrics.get().counters["num_steps_trained"] == 8
