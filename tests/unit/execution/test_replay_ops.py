"""Operators that store and replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.execution.mixing_ops import MixInReplay, PoissonReplay, SimpleReplayBuffer, WaitUntilTimestepsElapsed
from rlframe.execution.plan.context import _get_shared_metrics, _NextValueNotReady
from rlframe.execution.train_ops import (
    Replay,
    StoreToReplayBuffer,
    TrainOneStep,
    UpdatePriorities,
)
from tests.helpers.fakes_execution import FakeBuffer, FakeWorkerSet, iterate, make_batch


def test_store_passes_batches_through() -> None:
    buffer = FakeBuffer()
    batches = [make_batch(2), make_batch(3)]
    assert list(iterate(batches).for_each(StoreToReplayBuffer(local_buffer=buffer))) == batches
    assert buffer.rows == 5


@pytest.mark.parametrize("make", [StoreToReplayBuffer, Replay])
@pytest.mark.parametrize("keys", [{}, {"local_buffer": FakeBuffer(), "actors": ["x"]}, {"actors": []}])
def test_store_and_replay_need_exactly_one_place(make: Any, keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        make(**keys)


def test_replay_gives_markers_until_the_buffer_begins() -> None:
    buffer = FakeBuffer(learning_starts=3)
    it = Replay(local_buffer=buffer)
    assert isinstance(next(it), _NextValueNotReady)
    buffer.add_batch(make_batch(3))
    assert next(it).count == 3


def test_update_priorities_feeds_td_errors_back() -> None:
    buffer = FakeBuffer()
    buffer.add_batch(make_batch(2))
    buffer.add_batch(make_batch(2, 2))
    plan = Replay(local_buffer=buffer).for_each(TrainOneStep(FakeWorkerSet())).for_each(UpdatePriorities(buffer))
    batch, info = plan.take(2)[1]
    assert batch.count == 2
    assert list(info) == ["default_policy"]
    assert buffer.updates[0] == {"default_policy": ([0, 1], pytest.approx([0.0, 0.1]))}
    assert buffer.updates[1] == {"default_policy": ([100, 101], pytest.approx([0.2, 0.3]))}


def test_update_priorities_switched_off_does_nothing() -> None:
    buffer = FakeBuffer()
    item = ("anything", {})
    assert UpdatePriorities(buffer, prioritized=False)(item) is item  # type: ignore[arg-type,comparison-overlap]


def test_update_priorities_without_td_error_keeps_priorities() -> None:
    buffer = FakeBuffer()
    buffer.add_batch(make_batch(2))
    UpdatePriorities(buffer)((buffer.replay(), {"default_policy": {"learner_stats": {}}}))  # type: ignore[arg-type]
    UpdatePriorities(buffer)((buffer.replay(), {}))  # type: ignore[arg-type]
    assert buffer.updates == []


def test_update_priorities_of_other_length_raise() -> None:
    buffer = FakeBuffer()
    buffer.add_batch(make_batch(2))
    with pytest.raises(ValueError, match="3 TD errors for 2 rows"):
        UpdatePriorities(buffer)((buffer.replay(), {"default_policy": {"td_error": np.ones(3)}}))  # type: ignore[arg-type]


def test_wait_until_timesteps_elapsed_passes_strictly_above() -> None:
    def advance(step: int) -> int:
        _get_shared_metrics().counters["num_steps_sampled"] = step
        return step

    assert list(iterate([4, 5, 6]).for_each(advance).filter(WaitUntilTimestepsElapsed(5))) == [6]


def test_simple_replay_buffer_keeps_the_last_ones() -> None:
    buffer = SimpleReplayBuffer(2, seed=0)
    assert buffer.replay() is None
    for start in range(3):
        buffer.add_batch(make_batch(1, start))
    drawn = {float(buffer.replay()["obs"][0, 0]) for _ in range(50)}  # type: ignore[index]
    assert drawn == {1.0, 2.0}


def test_mix_in_replay_whole_proportion_is_exact() -> None:
    got = list(iterate([make_batch(1, i) for i in range(10)]).combine(MixInReplay(5, 2.0, seed=0)))
    assert len(got) == 30
    assert [int(batch["obs"][0, 0]) for batch in got[::3]] == list(range(10))


def test_mix_in_replay_fraction_is_kept_on_average() -> None:
    got = list(iterate([make_batch(1)] * 2000).combine(MixInReplay(5, 0.5, seed=0)))
    assert abs(len(got) - 3000) < 100


def test_mix_in_replay_without_slots() -> None:
    assert len(list(iterate([make_batch(1)]).combine(MixInReplay(0, 0)))) == 1
    with pytest.raises(ValueError, match="num_slots=0"):
        MixInReplay(0, 1.0)
    with pytest.raises(ValueError, match="replay_proportion=-1"):
        MixInReplay(1, -1)


def test_mix_in_replay_state_draws_the_same() -> None:
    first, second = MixInReplay(4, 1.5, seed=1), MixInReplay(4, 1.5, seed=2)
    for start in range(6):
        first(make_batch(1, start))
    second.set_state(first.get_state())

    def drawn(op: MixInReplay) -> list[list[float]]:
        return [[float(b["obs"][0, 0]) for b in op(make_batch(1, n))] for n in range(10)]  # type: ignore[index]

    assert drawn(first) == drawn(second)


def test_poisson_replay_stores_each_batch_and_puts_old_ones_behind_it() -> None:
    buffer = FakeBuffer(learning_starts=3)
    op = PoissonReplay(buffer, 2.5, seed=0)
    assert [len(op(make_batch(1))) for _ in range(2)] == [1, 1]  # the buffer has too little to begin
    counts = np.array([len(op(make_batch(1))) - 1 for _ in range(2000)])
    assert buffer.rows == 2002
    assert abs(counts.mean() - 2.5) < 0.15
    assert abs(counts.var() - 2.5) < 0.3  # a Poisson distribution's is its mean
    new = make_batch(2, 7)
    assert op(new)[0] is new


def test_poisson_replay_state_draws_the_same() -> None:
    first, second = (PoissonReplay(FakeBuffer(), 3.0, seed=seed) for seed in (1, 2))
    first(make_batch(1))
    second.set_state(first.get_state())
    drawn = [[len(op(make_batch(1))) for _ in range(10)] for op in (first, second)]
    assert drawn[0] == drawn[1]
    with pytest.raises(ValueError, match="mean=-1"):
        PoissonReplay(FakeBuffer(), -1.0)
