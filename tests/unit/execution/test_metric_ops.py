"""When an iteration ends, and what its result says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlframe.evaluation.metrics import RolloutMetrics, get_learner_stats, summarize_episodes
from rlframe.execution import metric_ops
from rlframe.execution.concurrency_ops import Concurrently
from rlframe.execution.metric_ops import (
    CollectMetrics,
    OncePerTimeInterval,
    OncePerTimestepsElapsed,
    StandardMetricsReporting,
)
from rlframe.execution.plan.context import _get_shared_metrics
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.execution.plan.report import plan_report
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import Replay, StoreToReplayBuffer, TrainOneStep, UpdatePriorities, UpdateTargetNetwork
from tests.helpers.fakes_execution import FakeBuffer, FakeWorker, FakeWorkerSet, episode, iterate

CONFIG = {
    "timesteps_per_iteration": 0,
    "min_iter_time_s": 0,
    "metrics_smoothing_episodes": 3,
    "collect_metrics_timeout": 180,
}


def advancing(steps: list[int], counter: str = "num_steps_sampled") -> LocalIterator[int]:
    def advance(step: int) -> int:
        _get_shared_metrics().counters[counter] = step
        return step

    return iterate(steps).for_each(advance)


class Clock:
    """A clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(metric_ops, "monotonic", lambda: self.now)


class TestFilters:
    def test_timesteps_pass_once_per_interval(self) -> None:
        it = advancing([4, 8, 12, 16, 20, 24]).filter(OncePerTimestepsElapsed(10))
        assert list(it) == [12, 24]

    def test_timesteps_zero_passes_all(self) -> None:
        assert list(advancing([4, 8]).filter(OncePerTimestepsElapsed(0))) == [4, 8]

    def test_timesteps_by_steps_trained(self) -> None:
        it = advancing([4, 8, 12], "num_steps_trained").filter(OncePerTimestepsElapsed(8, by_steps_trained=True))
        assert list(it) == [8]

    def test_time_interval_first_item_passes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, op = Clock(monkeypatch), OncePerTimeInterval(5)
        passed = []
        for _ in range(5):
            passed.append(op("item"))
            clock.now += 2
        assert passed == [True, False, False, True, False]

    @pytest.mark.parametrize("delay", [0, None])
    def test_time_interval_none_passes_all(self, delay: Any) -> None:
        op = OncePerTimeInterval(delay)
        assert [op(1), op(2)] == [True, True]

    def test_time_interval_state_keeps_the_time_that_passed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock, op, other = Clock(monkeypatch), OncePerTimeInterval(5), OncePerTimeInterval(5)
        op(1)
        clock.now += 4
        state = op.get_state()
        clock.now = 0.0  # another process, another clock
        other.set_state(state)
        assert other(1) is False
        clock.now += 1.5
        assert other(1) is True


class TestCollectMetrics:
    def results(self, batches_of_episodes: list[list[RolloutMetrics]], op: CollectMetrics, worker: Any) -> list[Any]:
        def finish(episodes: list[RolloutMetrics]) -> None:
            worker.episodes = list(episodes)

        return list(iterate(batches_of_episodes).for_each(finish).for_each(op))

    def test_window_fills_up_with_older_episodes(self) -> None:
        worker = FakeWorker()
        op = CollectMetrics(FakeWorkerSet(worker), min_history=3)
        made = self.results(
            [[], [episode(1.0), episode(2.0)], [episode(6.0), episode(7.0)], [episode(float(i)) for i in range(5)], []],
            op, worker,
        )  # fmt: skip
        assert math.isnan(made[0]["episode_reward_mean"])
        assert made[0]["episodes_this_iter"] == 0
        assert made[1]["hist_stats"]["episode_reward"] == [1.0, 2.0]
        assert made[2]["hist_stats"]["episode_reward"] == [2.0, 6.0, 7.0]
        assert made[2]["episode_reward_mean"] == 5.0
        assert made[2]["episodes_this_iter"] == 2
        assert made[3]["hist_stats"]["episode_reward"] == [0.0, 1.0, 2.0, 3.0, 4.0], "all new ones count"
        assert made[4]["hist_stats"]["episode_reward"] == [2.0, 3.0, 4.0]
        assert made[4]["episodes_this_iter"] == 0

    def test_custom_metrics_keep_their_columns(self) -> None:
        worker = FakeWorker()
        op = CollectMetrics(FakeWorkerSet(worker), min_history=1)
        made = self.results([[episode(0.0, x=2.0)], [episode(0.0)], []], op, worker)
        assert made[0]["custom_metrics"] == {"x_mean": 2.0, "x_min": 2.0, "x_max": 2.0}
        assert list(made[1]["custom_metrics"]) == ["x_mean", "x_min", "x_max"]
        assert all(math.isnan(value) for value in made[1]["custom_metrics"].values())

    def test_custom_metrics_are_kept_episode_by_episode(self) -> None:
        worker = FakeWorker()
        op = CollectMetrics(FakeWorkerSet(worker), min_history=1, keep_custom_metrics=True)
        made = self.results([[episode(0.0, x=2.0), episode(0.0, x=3.0)], [episode(0.0)]], op, worker)
        assert [result["custom_metrics"] for result in made] == [{"x": [2.0, 3.0]}, {"x": []}]

    def test_custom_metrics_of_operators_are_merged_once(self) -> None:
        op = CollectMetrics(FakeWorkerSet())

        def note(item: int) -> int:
            if item == 0:
                _get_shared_metrics().info["custom_metrics"] = {"mine": 4}
            return item

        first, second = iterate([0, 1]).for_each(note).for_each(op)
        assert first["custom_metrics"] == {"mine": 4}
        assert "custom_metrics" not in first["info"]
        assert math.isnan(second["custom_metrics"]["mine"])

    def test_steps_counters_timers_and_info(self) -> None:
        def work(item: int) -> int:
            metrics = _get_shared_metrics()
            metrics.counters["num_steps_sampled"] += 5
            metrics.counters["num_agent_steps_sampled"] += 7
            metrics.counters["num_steps_trained_this_iter"] += 3
            metrics.timers["learn"].push(0.5)
            metrics.timers["learn"].push_units_processed(10)
            metrics.timers["update"].push(0.25)
            metrics.info["queue"] = "short"
            return item

        first, second = iterate([0, 1]).for_each(work).for_each(CollectMetrics(FakeWorkerSet()))
        assert (first["timesteps_total"], first["timesteps_this_iter"], first["agent_timesteps_total"]) == (5, 5, 7)
        assert (second["timesteps_total"], second["timesteps_this_iter"]) == (10, 5)
        assert second["info"]["num_steps_trained_this_iter"] == 3
        assert second["info"]["queue"] == "short"
        assert second["info"]["learner"] == {}
        assert second["timers"] == {"learn_time_ms": 500.0, "learn_throughput": 20.0, "update_time_ms": 250.0}
        assert second["num_healthy_workers"] == 0
        assert second["off_policy_estimator"] == {}

    def test_state_window_and_columns_survive(self) -> None:
        worker, other = FakeWorker(), FakeWorker()
        first = CollectMetrics(FakeWorkerSet(worker), min_history=3)
        second = CollectMetrics(FakeWorkerSet(other), min_history=3)
        self.results([[episode(1.0, x=1.0), episode(2.0)]], first, worker)
        second.set_state(first.get_state())
        expected = self.results([[episode(5.0)]], first, worker)
        assert self.results([[episode(5.0)]], second, other) == expected


class TestSummary:
    def test_numbers_by_hand(self) -> None:
        episodes = [
            RolloutMetrics(10, 3.0, {(0, "p"): 1.0, (1, "p"): 2.0}, {"c": 1.0}, {"mean_env_wait_ms": 2.0},
                           {"h": [1, 2]}, {"film": "a"}),
            RolloutMetrics(20, 5.0, {(0, "p"): 5.0}, {"c": math.nan}, {"mean_env_wait_ms": 4.0}, {"h": [3]}),
        ]  # fmt: skip
        summary = summarize_episodes(episodes, episodes[:1])
        assert summary["episode_reward_mean"] == 4.0
        assert (summary["episode_reward_min"], summary["episode_reward_max"]) == (3.0, 5.0)
        assert summary["episode_len_mean"] == 15.0
        assert summary["episodes_this_iter"] == 1
        assert summary["policy_reward_min"] == {"p": 1.0}
        assert summary["policy_reward_max"] == {"p": 5.0}
        assert summary["policy_reward_mean"] == {"p": pytest.approx(8 / 3)}
        assert summary["custom_metrics"] == {"c_mean": 1.0, "c_min": 1.0, "c_max": 1.0}
        assert summary["hist_stats"]["h"] == [1, 2, 3]
        assert summary["hist_stats"]["policy_p_reward"] == [1.0, 2.0, 5.0]
        assert summary["hist_stats"]["episode_lengths"] == [10, 20]
        assert summary["sampler_perf"] == {"mean_env_wait_ms": 3.0}
        assert summary["episode_media"] == {"film": ["a"]}

    def test_extremes_of_custom_metrics_that_are_arrays_are_those_of_their_elements(self) -> None:
        episodes = [
            RolloutMetrics(1, 1.0, {}, {"x": np.array([1.0, 2.0, 3.0]), "y": [1, 2]}),
            RolloutMetrics(1, 1.0, {}, {"x": np.array([4.0, 5.0, 6.0]), "y": [math.nan, 9]}),
        ]
        wanted = {"x_mean": 3.5, "x_min": 1.0, "x_max": 6.0, "y_mean": 1.5, "y_min": 1.0, "y_max": 2.0}
        assert summarize_episodes(episodes)["custom_metrics"] == wanted

    def test_rollout_metrics_read_as_the_tuple_that_they_are_in_rllib(self) -> None:
        length, reward, *others = RolloutMetrics(3, 1.5, hist_data={"h": [1]})
        assert (length, reward, others) == (3, 1.5, [{}, {}, {}, {"h": [1]}, {}])
        metrics = RolloutMetrics()
        assert (len(metrics), metrics[1], metrics[:2]) == (7, 0.0, (0, 0.0))
        changed = metrics._replace(episode_reward=2.0)
        assert list(changed._asdict()) == list(RolloutMetrics._fields)
        assert (changed.episode_reward, metrics.episode_reward) == (2.0, 0.0)

    def test_default_policy_is_left_out_of_policy_rewards(self) -> None:
        assert summarize_episodes([episode(1.0)])["policy_reward_mean"] == {}

    def test_rollout_metrics_state_round_trip_without_media(self) -> None:
        metrics = RolloutMetrics(3, 1.5, {("a", "p"): 1.5}, {"c": 2}, {"ms": 0.5}, {"h": [1.0]}, {"film": object()})
        restored = RolloutMetrics.from_state(metrics.to_state())
        metrics.media = {}
        assert restored == metrics

    def test_learner_stats_of_one_and_of_several_policies(self) -> None:
        assert get_learner_stats({"learner_stats": {"a": 1}}) == {"a": 1}
        of_one = get_learner_stats({"default_policy": {"learner_stats": {"a": 1}}})
        assert of_one == {"default_policy": {"a": 1}}
        assert (of_one["a"], of_one.get("a"), of_one.get("b", 2)) == (1, 1, 2)  # as up to RLlib 1.8
        with pytest.raises(KeyError, match="b"):
            of_one["b"]
        assert get_learner_stats({"p": {"learner_stats": 1}, "q": {"learner_stats": 2}}) == {"p": 1, "q": 2}
        assert get_learner_stats({"loss": 1.0}) == {}


def dqn_plan(workers: Any, buffer: Any, **keys: Any) -> LocalIterator[dict[str, Any]]:
    rollouts: Any = ParallelRollouts(workers, mode="bulk_sync")
    store = rollouts.for_each(StoreToReplayBuffer(local_buffer=buffer))
    learn = (
        Replay(local_buffer=buffer)
        .for_each(TrainOneStep(workers))
        .for_each(UpdatePriorities(buffer))
        .for_each(UpdateTargetNetwork(workers, 10))
    )
    train = Concurrently([store, learn], mode="round_robin", output_indexes=[1], round_robin_weights=[1, 1.5])
    return StandardMetricsReporting(train, workers, {**CONFIG, **keys})


class TestWholePlan:
    def test_dqn_counts_are_true(self) -> None:
        workers, buffer = FakeWorkerSet(), FakeBuffer(learning_starts=8)
        plan = dqn_plan(workers, buffer, timesteps_per_iteration=20)
        result = next(plan)
        assert result["timesteps_total"] == 20
        assert result["timesteps_this_iter"] == 20
        # The turn after the first store finds the buffer not ready. Those after the other four give 2, 1, 2 and 1 train
        # steps, for a weight of 1.5; with the last one the iteration is over.
        assert result["info"]["num_steps_trained"] == 4 * (2 + 1 + 2 + 1)
        assert result["info"]["num_target_updates"] == 1
        assert next(plan)["timesteps_this_iter"] == 20

    def test_dqn_resumed_plan_continues_exactly(self) -> None:
        def make() -> tuple[FakeWorkerSet, FakeBuffer, LocalIterator[Any]]:
            workers, buffer = FakeWorkerSet(), FakeBuffer(learning_starts=8)
            return workers, buffer, dqn_plan(workers, buffer, timesteps_per_iteration=7)

        workers, buffer, plan = make()
        plan.take(5)
        other_workers, other_buffer, resumed = make()
        resumed.set_state(plan.get_state())
        # What trainers restore besides the plan: the buffer, and the worker's place.
        other_buffer.batches, other_buffer.rows = list(buffer.batches), buffer.rows
        other_buffer.replayed = buffer.replayed
        other_workers.local.position = workers.local.position
        seen = len(workers.local.policy_map["default_policy"].seen)
        for _ in range(5):
            counts, other_counts = next(plan), next(resumed)
            assert {k: v for k, v in counts["info"].items() if k != "learner"} == {
                k: v for k, v in other_counts["info"].items() if k != "learner"
            }
        assert (
            workers.local.policy_map["default_policy"].seen[seen:]
            == other_workers.local.policy_map["default_policy"].seen
        )

    def test_min_iter_time_filters_after_timesteps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = Clock(monkeypatch)
        workers, buffer = FakeWorkerSet(), FakeBuffer()
        plan = dqn_plan(workers, buffer, timesteps_per_iteration=8, min_iter_time_s=5)
        assert next(plan)["timesteps_total"] == 8, "the first passes at once"

        def sample() -> Any:
            clock.now += 1
            return FakeWorker.sample(workers.local)

        workers.local.sample = sample  # type: ignore[method-assign]
        assert next(plan)["timesteps_total"] == 32, "after 6 s and at a multiple of 8"

    @pytest.mark.parametrize("remote", [False, True])
    def test_no_clock_ends_iterations_of_synchronous_plans_unless_it_was_asked_for(
        self, monkeypatch: pytest.MonkeyPatch, remote: bool
    ) -> None:
        clock, workers = Clock(monkeypatch), FakeWorkerSet()
        more: dict[str, Any] = {}
        if remote:
            workers.remote_workers = lambda: [workers.local]  # type: ignore[method-assign]
            monkeypatch.setattr(metric_ops, "collect_episodes", lambda *_: ([], []))
            more = {"asynchronous_iter_time_s": None}

        def tick(item: int) -> int:
            clock.now += 100
            return item

        for steps, wanted in ((0, metric_ops.SYNCHRONOUS_ITER_STEPS), (1200, 1200)):
            config = {**CONFIG, "min_iter_time_s": None, "timesteps_per_iteration": steps}
            source = advancing(list(range(100, 10_000, 100))).for_each(tick)
            plan = StandardMetricsReporting(source, workers, config, **more)
            assert [next(plan)["timesteps_this_iter"] for _ in range(2)] == [wanted, wanted]

    @pytest.mark.parametrize(("seconds", "rounds"), [({}, 11), ({"asynchronous_iter_time_s": 5}, 6)])
    def test_iterations_of_remote_workers_that_sample_on_their_own_last_seconds(
        self, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], rounds: int
    ) -> None:
        clock = Clock(monkeypatch)
        workers = FakeWorkerSet()
        source: LocalIterator[int] = advancing(list(range(1, 100)))

        def tick(item: int) -> int:
            clock.now += 1
            return item

        workers.remote_workers = lambda: [workers.local]  # type: ignore[method-assign]
        monkeypatch.setattr(metric_ops, "collect_episodes", lambda *_: ([], []))
        plan = StandardMetricsReporting(source.for_each(tick), workers, {**CONFIG, "min_iter_time_s": None}, **seconds)
        assert next(plan)["timesteps_this_iter"] == 1
        assert next(plan)["timesteps_this_iter"] == rounds

    def test_plan_report_shows_the_tree(self) -> None:
        plan = dqn_plan(FakeWorkerSet(), FakeBuffer(), timesteps_per_iteration=40)
        plan.take(2)
        report = plan_report(plan)
        assert [operator.name for operator in report.operators] == [
            "Concurrently", "OncePerTimestepsElapsed", "OncePerTimeInterval", "CollectMetrics", "skip_not_ready",
        ]  # fmt: skip
        union = report.operators[0]
        assert [[operator.name for operator in branch.operators] for branch in union.branches] == [
            ["ParallelRollouts", "StoreToReplayBuffer"],
            ["Replay", "TrainOneStep", "UpdatePriorities", "UpdateTargetNetwork"],
        ]
        assert [branch.output for branch in union.branches] == [False, True]
        assert union.branches[0].operators[0].items == 20
        assert report.operators[1].arguments == "40 steps sampled"
        shares = [operator.share for branch in union.branches for operator in branch.operators]
        assert 0 < sum(shares) <= 1
        text = report.to_text()
        assert "UpdateTargetNetwork [10 steps sampled]" in text
        assert "branch 0 (items dropped)" in text
        assert report.to_dict()["operators"][0]["branches"][1]["operators"][1]["name"] == "TrainOneStep"
