"""Operators that sample and regroup, with the local worker only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.gradient_ops import AsyncGradients
from rlframe.execution.rollout_ops import (
    ConcatBatches,
    ParallelRollouts,
    SelectExperiences,
    StandardizeFields,
    unpack,
)
from tests.helpers.fakes_execution import FakeWorker, FakeWorkerSet, iterate, make_batch


def two_policies(rows: int = 2) -> MultiAgentBatch:
    return MultiAgentBatch({"a": make_batch(rows), "b": make_batch(rows, 10)}, rows)


@pytest.mark.parametrize("columns", [("obs",), ("new_obs",), ("obs", "new_obs"), ()])
@pytest.mark.parametrize("bulk", [False, True])
def test_compressed_observations_are_unpacked_whichever_they_are(columns: tuple[str, ...], bulk: bool) -> None:
    plain = np.arange(12, dtype=np.float32).reshape(4, 3)
    batch = SampleBatch({"obs": plain.copy(), "new_obs": plain + 1.0})
    batch.compress(bulk, columns)
    for given in (batch, batch.copy().as_multi_agent()):
        made = unpack(given)
        rows = made.policy_batches["default_policy"]
        np.testing.assert_array_equal(rows["obs"], plain)
        np.testing.assert_array_equal(rows["new_obs"], plain + 1.0)


class TestParallelRollouts:
    @pytest.mark.parametrize("mode", ["bulk_sync", "async", "raw"])
    def test_no_remote_workers_local_worker_samples(self, mode: str) -> None:
        workers = FakeWorkerSet(FakeWorker(rows=3))
        it: Any = ParallelRollouts(workers, mode=mode)
        batches = it.take(2)
        assert [batch["obs"][:, 0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5]]
        assert workers.syncs == []

    def test_counters_env_and_agent_steps(self) -> None:
        it: Any = ParallelRollouts(FakeWorkerSet(FakeWorker(rows=3, policies=("a", "b"))))
        it.take(2)
        counters = it.shared_metrics.get().counters
        assert (counters["num_steps_sampled"], counters["num_agent_steps_sampled"]) == (6, 12)

    def test_sampling_error_reaches_the_caller_and_the_next_pull_goes_on(self) -> None:
        it: Any = ParallelRollouts(FakeWorkerSet(FakeWorker(fail_on=[2])))
        next(it)
        with pytest.raises(RuntimeError, match="environment broke"):
            next(it)
        assert next(it)["obs"][0, 0] == 4
        assert it.shared_metrics.get().counters["num_steps_sampled"] == 8

    @pytest.mark.parametrize("mode", ["sync", "", None])
    def test_unknown_mode_raises(self, mode: Any) -> None:
        with pytest.raises(ValueError, match="'bulk_sync', 'async' or 'raw'"):
            ParallelRollouts(FakeWorkerSet(), mode=mode)


class TestAsyncGradients:
    def test_no_remote_workers_local_gradients_and_learner_info(self) -> None:
        it = AsyncGradients(FakeWorkerSet(FakeWorker(rows=2)))
        gradients, count = next(it)
        assert gradients[0].tolist() == [1.0]
        assert count == 2
        metrics = it.shared_metrics.get()
        assert metrics.info["learner"] == {"default_policy": {"learner_stats": {"loss": 1.0}}}
        for name in ("num_steps_sampled", "num_agent_steps_sampled", "num_agent_steps_trained"):
            assert metrics.counters[name] == 2
        assert metrics.timers["grad_wait"].count == 1


class TestConcatBatches:
    def test_batches_are_joined_once_large_enough(self) -> None:
        it = iterate([make_batch(2, 2 * i) for i in range(5)]).combine(ConcatBatches(4))
        joined = list(it)
        assert [batch["obs"][:, 0].tolist() for batch in joined] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert it.shared_metrics.get().timers["sample"].mean_units_processed == 4

    def test_empty_batches_are_ignored(self) -> None:
        joined = list(iterate([SampleBatch(), make_batch(1), SampleBatch()]).combine(ConcatBatches(1)))
        assert [batch.count for batch in joined] == [1]

    def test_agent_steps_count_rows_of_all_policies(self) -> None:
        by_agent = list(iterate([two_policies() for _ in range(4)]).combine(ConcatBatches(4, "agent_steps")))
        by_env = list(iterate([two_policies() for _ in range(4)]).combine(ConcatBatches(4)))
        assert [batch.env_steps() for batch in by_agent] == [2, 2, 2, 2]
        assert [batch.env_steps() for batch in by_env] == [4, 4]

    def test_half_filled_state_goes_on(self) -> None:
        first, second = ConcatBatches(4), ConcatBatches(4)
        list(iterate([make_batch(3)]).combine(first))
        second.set_state(first.get_state())
        joined = list(iterate([make_batch(1, 3)]).combine(second))
        assert joined[0]["obs"][:, 0].tolist() == [0, 1, 2, 3]

    def test_unknown_unit_raises(self) -> None:
        with pytest.raises(ValueError, match="'env_steps' or 'agent_steps'"):
            ConcatBatches(4, "steps")

    def test_item_of_wrong_type_raises(self) -> None:
        with pytest.raises(ValueError, match="type dict, wanted a SampleBatch"):
            next(iterate([{}]).combine(ConcatBatches(4)))


class TestSelectExperiences:
    def test_other_policies_are_dropped(self) -> None:
        batch = SelectExperiences(["b"])(two_policies())
        assert isinstance(batch, MultiAgentBatch)
        assert list(batch.policy_batches) == ["b"]
        assert batch.env_steps() == 2

    def test_plain_batch_passes(self) -> None:
        batch = make_batch(2)
        assert SelectExperiences(["b"])(batch) is batch

    def test_keeps_the_policies_that_a_worker_trains(self):
        worker = SimpleNamespace(policies_to_train=["a"])
        select = SelectExperiences(local_worker=worker)
        assert list(select(two_policies()).policy_batches) == ["a"]
        worker.policies_to_train = ["b"]
        assert list(select(two_policies()).policy_batches) == ["b"]

    def test_policy_ids_not_in_a_list_raise(self) -> None:
        with pytest.raises(AssertionError, match="list or tuple"):
            SelectExperiences("b")


class TestStandardizeFields:
    def test_column_by_hand(self) -> None:
        batch = SampleBatch({"advantages": np.array([1.0, 3.0], np.float32)})
        StandardizeFields(["advantages"])(batch)  # mean 2, standard deviation 1
        assert batch["advantages"].tolist() == [-1.0, 1.0]
        assert batch["advantages"].dtype == np.float32

    def test_constant_column_becomes_zero(self) -> None:
        batch = SampleBatch({"advantages": np.full(3, 7.0, np.float32)})
        assert StandardizeFields(["advantages"])(batch)["advantages"].tolist() == [0.0, 0.0, 0.0]

    def test_each_policy_on_its_own(self) -> None:
        batch = StandardizeFields(["obs"])(two_policies())
        assert isinstance(batch, MultiAgentBatch)
        for rows in batch.policy_batches.values():
            assert rows["obs"][:, 0].tolist() == [-1.0, 1.0]

    def test_missing_column_raises_naming_it(self) -> None:
        with pytest.raises(KeyError, match=r"'advantages'.*'default_policy'"):
            StandardizeFields(["advantages"])(make_batch(2))
