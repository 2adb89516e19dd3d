"""Operators that learn, average and apply gradients, and update targets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.gradient_ops import ApplyGradients, AverageGradients, ComputeGradients
from rlframe.execution.plan.context import MetricsContext, _get_shared_metrics
from rlframe.execution.train_ops import (
    MultiGPUTrainOneStep,
    TrainOneStep,
    UpdateTargetNetwork,
    merge_learner_infos,
)
from tests.helpers.fakes_execution import FakeWorker, FakeWorkerSet, iterate, make_batch


def run(op: Any, items: list[Any], **counters: int) -> tuple[list[Any], MetricsContext]:
    it = iterate(items).for_each(op)
    metrics = it.shared_metrics.get()
    metrics.counters.update(counters)
    return list(it), metrics


class TestTrainOneStep:
    def test_whole_batch_is_learned_once(self) -> None:
        workers = FakeWorkerSet()
        results, metrics = run(TrainOneStep(workers), [make_batch(3), make_batch(2)], num_steps_sampled=7)
        batch, info = results[0]
        assert batch.count == 3
        assert info["default_policy"]["learner_stats"] == {"loss": 1.0, "min_q": 0.0, "max_q": 2.0}
        assert workers.local.policy_map["default_policy"].seen == [[0, 1, 2], [0, 1]]
        assert metrics.info["learner"] is results[1][1]
        assert metrics.counters["num_steps_trained"] == 5
        assert metrics.counters["num_steps_trained_this_iter"] == 5
        assert metrics.counters["num_agent_steps_trained"] == 5
        assert metrics.timers["learn"].mean_units_processed == 2.5
        assert "update" not in metrics.timers
        assert workers.local.global_vars == {"timestep": 7}

    def test_remote_workers_get_weights_and_global_vars(self) -> None:
        workers = FakeWorkerSet(remotes=["handle"])
        _, metrics = run(TrainOneStep(workers), [make_batch(1)], num_steps_sampled=4)
        assert workers.syncs == [{"policies": ["default_policy"], "global_vars": {"timestep": 4}}]
        assert metrics.timers["update"].count == 1

    def test_multi_agent_batch_trains_its_policies(self) -> None:
        worker = FakeWorker(policies=("a", "b", "c"))
        worker.policies_to_train = ["a", "c"]
        batch = MultiAgentBatch({"a": make_batch(2), "b": make_batch(2), "c": SampleBatch()}, 2)
        results, metrics = run(TrainOneStep(FakeWorkerSet(worker)), [batch])
        assert list(results[0][1]) == ["a"]
        assert worker.policy_map["b"].seen == []
        assert metrics.counters["num_steps_trained"] == 2
        assert metrics.counters["num_agent_steps_trained"] == 4

    def test_named_policies_only_those_are_trained(self) -> None:
        worker = FakeWorker(policies=("a", "b"))
        batch = MultiAgentBatch({"a": make_batch(2), "b": make_batch(2)}, 2)
        results, _ = run(TrainOneStep(FakeWorkerSet(worker), policies=["b"]), [batch])
        assert list(results[0][1]) == ["b"]

    def test_plain_batch_and_one_named_policy_it_is_trained(self) -> None:
        worker = FakeWorker(policies=("mine",))
        results, _ = run(TrainOneStep(FakeWorkerSet(worker)), [make_batch(2)])
        assert list(results[0][1]) == ["mine"]

    def test_plain_batch_and_several_named_policies_raise(self) -> None:
        with pytest.raises(ValueError, match="wanted a MultiAgentBatch"):
            run(TrainOneStep(FakeWorkerSet(FakeWorker(policies=("a", "b")))), [make_batch(2)])

    def test_minibatches_every_row_once_per_pass_in_new_order(self) -> None:
        workers = FakeWorkerSet()
        op = TrainOneStep(workers, num_sgd_iter=2, sgd_minibatch_size=4)
        results, metrics = run(op, [make_batch(10)])
        seen = workers.local.policy_map["default_policy"].seen
        assert [len(rows) for rows in seen] == [4, 4, 2, 4, 4, 2]
        first, second = ([row for rows in seen[i : i + 3] for row in rows] for i in (0, 3))
        assert sorted(first) == sorted(second) == list(range(10))
        assert first != second
        assert metrics.counters["num_steps_trained"] == 10
        told = results[0][1]["default_policy"]
        assert told["learner_stats"]["loss"] == 3.5
        assert "loss" in told, "UpdateKL of RLlib 1.0, and copies of it, look for kl there"
        assert told["loss"] == 3.5
        assert results[0][0]["obs"][:, 0].tolist() == list(range(10)), "the batch itself keeps its order"

    def test_minibatch_order_follows_the_seed(self) -> None:
        def order(seed: int) -> list[list[float]]:
            workers = FakeWorkerSet(FakeWorker(seed=seed))
            run(TrainOneStep(workers, sgd_minibatch_size=4), [make_batch(8)])
            return workers.local.policy_map["default_policy"].seen

        assert order(1) == order(1)
        assert order(1) != order(2)

    def test_state_next_order_is_the_same(self) -> None:
        orders = []
        saved: Any = None
        for restore in (False, True):
            workers = FakeWorkerSet(FakeWorker(seed=None))
            op = TrainOneStep(workers, sgd_minibatch_size=4)
            if restore:
                op.set_state(saved)
            else:
                run(op, [make_batch(8)])
                saved = op.get_state()
            run(op, [make_batch(8)])
            orders.append(workers.local.policy_map["default_policy"].seen[-2:])
        assert orders[0] == orders[1]

    def test_sequences_are_not_torn(self) -> None:
        workers = FakeWorkerSet()
        batch = make_batch(6)
        batch["seq_lens"] = np.array([2, 3, 1], np.int32)
        run(TrainOneStep(workers, sgd_minibatch_size=2), [batch])
        # Sequences lie one after the other, padded with zeros to the longest of their minibatch.
        sequences = {(0, 1), (2, 3, 4), (5,)}
        seen = workers.local.policy_map["default_policy"].seen
        whole = sorted(part for rows in seen for part in sequences if set(part) <= set(rows) and part != (0,))
        assert whole == sorted(sequences)
        assert sum(len([row for row in rows if row]) for rows in seen) == 5

    def test_minibatches_of_as_many_rows_as_a_division_gives(self) -> None:
        workers = FakeWorkerSet()
        run(TrainOneStep(workers, sgd_minibatch_size=8 / 4), [make_batch(8)])
        assert [len(rows) for rows in workers.local.policy_map["default_policy"].seen] == [2, 2, 2, 2]

    @pytest.mark.parametrize("keys", [{"num_sgd_iter": 0}, {"sgd_minibatch_size": -1}])
    def test_sizes_too_small_raise(self, keys: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="wanted 1 pass or more"):
            TrainOneStep(FakeWorkerSet(), **keys)  # type: ignore[arg-type]

    def test_item_of_wrong_type_raises(self) -> None:
        with pytest.raises(ValueError, match="type list, wanted a SampleBatch"):
            run(TrainOneStep(FakeWorkerSet()), [[1]])


class TestMultiGPUTrainOneStep:
    def make(self, workers: Any, **keys: Any) -> MultiGPUTrainOneStep:
        return MultiGPUTrainOneStep(workers=workers, sgd_minibatch_size=4, num_sgd_iter=2, **keys)

    def test_arguments_of_older_releases_are_taken_and_others_refused(self) -> None:
        of_batches = {"rollout_fragment_length": 5, "num_envs_per_worker": 1, "train_batch_size": 8}
        old = MultiGPUTrainOneStep(FakeWorkerSet(), sgd_minibatch_size=4, num_sgd_iter=2, **of_batches)
        assert (old.sgd_minibatch_size, old.num_sgd_iter) == (4, 2)
        with pytest.raises(TypeError, match="minibatch_sise"):
            self.make(FakeWorkerSet(), minibatch_sise=4)

    def test_short_last_minibatch_is_left_out(self) -> None:
        workers = FakeWorkerSet()
        run(self.make(workers), [make_batch(10)])
        assert [len(rows) for rows in workers.local.policy_map["default_policy"].seen] == [4, 4, 4, 4]

    def test_batch_smaller_than_a_minibatch_is_learned_whole(self) -> None:
        workers = FakeWorkerSet()
        run(self.make(workers), [make_batch(3)])
        assert [len(rows) for rows in workers.local.policy_map["default_policy"].seen] == [3, 3]

    def test_without_shuffling_rows_keep_their_order(self) -> None:
        workers = FakeWorkerSet()
        run(self.make(workers, shuffle_sequences=False, framework="torch", _fake_gpus=False), [make_batch(8)])
        assert workers.local.policy_map["default_policy"].seen == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2


class TestMergeLearnerInfos:
    def test_reductions_by_name(self) -> None:
        merged = merge_learner_infos([
            {"learner_stats": {"loss": 1.0, "min_q": -1.0, "max_q": 2.0, "kl": math.nan}, "td_error": np.array([1.0])},
            {"learner_stats": {"loss": 3.0, "min_q": -4.0, "max_q": 1.0, "kl": 5.0}, "td_error": np.array([2.0, 3.0])},
        ])  # fmt: skip
        assert merged["learner_stats"] == {"loss": 2.0, "min_q": -4.0, "max_q": 2.0, "kl": 5.0}
        assert merged["td_error"].tolist() == [1.0, 2.0, 3.0]

    def test_single_info_is_as_it_was(self) -> None:
        assert merge_learner_infos([{"a": "text"}]) == {"a": "text"}

    def test_what_is_no_number_keeps_the_last(self) -> None:
        merged = merge_learner_infos([{"a": None, "b": np.arange(2)}, {"a": "x", "b": np.arange(2) + 1}])
        assert merged["a"] == "x"
        assert merged["b"].tolist() == [1, 2]

    def test_all_nan_stays_nan(self) -> None:
        assert math.isnan(merge_learner_infos([{"a": math.nan}, {"a": math.nan}])["a"])

    def test_names_missing_in_some_are_averaged_over_the_others(self) -> None:
        assert merge_learner_infos([{"a": 1.0}, {"b": 4.0}, {"a": 3.0}]) == {"a": 2.0, "b": 4.0}


class TestGradients:
    def test_compute_gradients_and_count(self) -> None:
        results, metrics = run(ComputeGradients(FakeWorkerSet()), [make_batch(3)])
        gradients, count = results[0]
        assert (gradients[0].tolist(), count) == ([3.0], 3)
        assert metrics.info["learner"] == {"default_policy": {"learner_stats": {"loss": 1.0}}}
        assert metrics.timers["compute_grads"].count == 1
        assert metrics.counters["num_agent_steps_trained"] == 3

    def test_average_divides_by_the_number(self) -> None:
        pairs = [([np.array([1.0]), None, None], 2), ([np.array([3.0]), np.array([4.0]), None], 5)]
        gradients, count = AverageGradients()(pairs)
        assert gradients[0].tolist() == [2.0]
        assert gradients[1].tolist() == [2.0]
        assert gradients[2] is None
        assert count == 7

    def test_average_by_policy(self) -> None:
        gradients, _ = AverageGradients()([({"a": [2.0]}, 1), ({"a": [4.0], "b": [1.0]}, 1)])
        assert gradients == {"a": [3.0], "b": [1.0]}

    def test_average_of_nothing_raises(self) -> None:
        with pytest.raises(ValueError, match="empty list"):
            AverageGradients()([])

    def test_apply_counts_and_sends_weights_to_all(self) -> None:
        workers = FakeWorkerSet(remotes=["handle"])
        results, metrics = run(ApplyGradients(workers), [("grads", 5)], num_steps_sampled=9)
        assert results == [("grads", 5)]
        assert workers.local.applied == ["grads"]
        assert workers.local.global_vars == {"timestep": 9}
        assert workers.syncs == [{"policies": ["default_policy"], "global_vars": {"timestep": 9}}]
        assert metrics.counters["num_steps_trained"] == 5
        assert metrics.timers["apply_grad"].mean_units_processed == 5

    def test_apply_to_the_source_only(self) -> None:
        class Handle:
            received: Any = None

            class set_weights:  # noqa: N801 - stands for a Ray method
                @staticmethod
                def remote(weights: Any, global_vars: Any) -> None:
                    Handle.received = (weights, global_vars)

        workers = FakeWorkerSet(remotes=[Handle])

        def from_handle(item: Any) -> Any:
            _get_shared_metrics().current_actor = Handle
            return item

        list(iterate([("grads", 5)]).for_each(from_handle).for_each(ApplyGradients(workers, update_all=False)))
        assert Handle.received == ({"default_policy": 0}, {"timestep": 0})
        assert workers.syncs == []

    def test_apply_to_an_unknown_source_raises(self) -> None:
        with pytest.raises(ValueError, match="no remote worker produced"):
            run(ApplyGradients(FakeWorkerSet(remotes=["handle"]), update_all=False), [("grads", 5)])

    def test_apply_item_of_wrong_form_raises(self) -> None:
        with pytest.raises(ValueError, match="wanted a tuple"):
            run(ApplyGradients(FakeWorkerSet()), ["grads"])


class TestUpdateTargetNetwork:
    def updates(self, op: Any, workers: Any, counter: str, steps: list[int]) -> list[int]:
        """Returns the counts at which the target was updated."""
        policy = workers.local.policy_map["default_policy"]
        at = []

        def advance(step: int) -> int:
            _get_shared_metrics().counters[counter] = step
            return step

        before = 0
        for step in iterate(steps).for_each(advance).for_each(op):
            if policy.target_updates > before:
                at.append(step)
            before = policy.target_updates
        return at

    def test_updates_when_strictly_more_steps_have_passed(self) -> None:
        workers = FakeWorkerSet()
        op = UpdateTargetNetwork(workers, 10)
        assert self.updates(op, workers, "num_steps_sampled", [4, 8, 10, 11, 12, 21, 22]) == [11, 22]

    def test_frequency_zero_updates_at_every_item(self) -> None:
        workers = FakeWorkerSet()
        op = UpdateTargetNetwork(workers, 0)
        self.updates(op, workers, "num_steps_sampled", [4, 4, 4])
        assert workers.local.policy_map["default_policy"].target_updates == 3

    def test_by_steps_trained_reads_the_other_counter(self) -> None:
        workers = FakeWorkerSet()
        op = UpdateTargetNetwork(workers, 10, by_steps_trained=True)
        assert self.updates(op, workers, "num_steps_trained", [8, 16, 24]) == [16]

    def test_counters_and_named_policies(self) -> None:
        worker = FakeWorker(policies=("a", "b"))
        op = UpdateTargetNetwork(FakeWorkerSet(worker), 1, policies=["b"])
        _, metrics = run(op, ["item"], num_steps_sampled=5)
        assert (worker.policy_map["a"].target_updates, worker.policy_map["b"].target_updates) == (0, 1)
        assert (metrics.counters["num_target_updates"], metrics.counters["last_target_update_ts"]) == (1, 5)
