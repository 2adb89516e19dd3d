"""Trainers that override `training_iteration` or `training_step`: what trains, what is counted, what is saved."""

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import ray

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.trainer_template import build_trainer
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts, standardize_fields, synchronous_parallel_sample
from rlframe.execution.train_ops import multi_gpu_train_one_step, train_one_step
from rlframe.trainer.iterating import training_method
from rlframe.utils.errors import ConfigError
from rlframe.utils.metrics import (
    LAST_TARGET_UPDATE_TS,
    LEARNER_STATS_KEY,
    NUM_AGENT_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED,
    NUM_TARGET_UPDATES,
    SYNCH_WORKER_WEIGHTS_TIMER,
)
from rlframe.utils.replay_buffers.utils import sample_min_n_steps_from_buffer, update_priorities_in_replay_buffer

SMALL: dict[str, Any] = {
    "seed": 3, "num_workers": 0, "train_batch_size": 60, "rollout_fragment_length": 20, "log_sys_usage": False,
    "model": {"fcnet_hiddens": [8]},
}  # fmt: skip
PPO: dict[str, Any] = {**SMALL, "sgd_minibatch_size": 16, "num_sgd_iter": 2, "normalize_values": False}
DQN: dict[str, Any] = {
    **SMALL, "train_batch_size": 16, "rollout_fragment_length": 4, "learning_starts": 20, "hiddens": [8],
    "timesteps_per_iteration": 48, "target_network_update_freq": 20,
}  # fmt: skip


def sample(trainer: Any, **limits: int) -> Any:
    batch = synchronous_parallel_sample(worker_set=trainer.workers, **limits).as_multi_agent()
    trainer._counters[NUM_ENV_STEPS_SAMPLED] += batch.env_steps()
    trainer._counters[NUM_AGENT_STEPS_SAMPLED] += batch.agent_steps()
    return batch


class MyPG(PGTrainer):
    def training_iteration(self) -> dict[str, Any]:
        return train_one_step(self, sample(self, max_env_steps=self.config["train_batch_size"]))


class MyPPO(PPOTrainer):
    def training_step(self) -> dict[str, Any]:
        batch = standardize_fields(sample(self, max_agent_steps=self.config["train_batch_size"]), ["advantages"])
        results = multi_gpu_train_one_step(self, batch)
        with self._timers[SYNCH_WORKER_WEIGHTS_TIMER]:
            self.workers.sync_weights(
                policies=list(results), global_vars={"timestep": self._counters[NUM_AGENT_STEPS_SAMPLED]}
            )
        for policy_id, info in results.items():
            self.get_policy(policy_id).update_kl(info[LEARNER_STATS_KEY]["kl"])
        return results


class MyDQN(DQNTrainer):
    """As Ray 1.13 has it, but that the learner steps begin with the round in which there are enough steps."""

    def training_iteration(self) -> dict[str, Any]:
        self.local_replay_buffer.add(sample(self))
        batch = sample_min_n_steps_from_buffer(
            self.local_replay_buffer, self.config["train_batch_size"], count_by_agent_steps=self._by_agent_steps
        )
        if batch is None:
            return {}
        results = train_one_step(self, batch)
        update_priorities_in_replay_buffer(self.local_replay_buffer, self.config, batch, results)
        now, worker = self._counters[NUM_ENV_STEPS_SAMPLED], self.workers.local_worker()
        if now - self._counters[LAST_TARGET_UPDATE_TS] > self.config["target_network_update_freq"]:
            wanted = worker.get_policies_to_train()
            worker.foreach_policy_to_train(lambda policy, pid: pid in wanted and policy.update_target())
            self._counters[NUM_TARGET_UPDATES] += 1
            self._counters[LAST_TARGET_UPDATE_TS] = now
        return results


class Then:
    """The commonest override: what the algorithm does, and something more."""

    calls = 0

    def training_iteration(self) -> dict[str, Any]:
        learned = super().training_iteration()  # type: ignore[misc]
        self.calls += 1
        return learned


def make(kind: Any, config: Mapping[str, Any]) -> Any:
    return kind(copy.deepcopy(dict(config)), env="CartPole-v1")


def told(result: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs have in common: everything but times, names of directories, and the counters' newer names."""
    learner = result["info"]["learner"]["default_policy"]["learner_stats"]
    counted = {name: n for name, n in result["info"].items() if isinstance(n, int) and "_env_steps_" not in name}
    plain = ("episode_reward_mean", "episodes_total", "timesteps_total", "timesteps_this_iter", "hist_stats")
    return {"learner": learner, "counted": counted, **{name: result[name] for name in plain}}


def assert_equal_training(one: Any, other: Any, iterations: int = 2) -> None:
    for _ in range(iterations):
        np.testing.assert_equal(told(one.train()), told(other.train()))
    mine, theirs = one.get_weights()["default_policy"], other.get_weights()["default_policy"]
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize(
    ("mine", "built_in", "config"),
    [(MyPG, PGTrainer, SMALL), (MyPPO, PPOTrainer, PPO), (MyDQN, DQNTrainer, DQN)],
    ids=["PG", "PPO", "DQN"],
)
def test_an_algorithm_written_as_a_method_has_the_numbers_of_the_plan(mine: Any, built_in: Any, config: Any) -> None:
    assert_equal_training(make(mine, config), make(built_in, config))


@pytest.mark.parametrize(("base", "config"), [(PPOTrainer, PPO), (DQNTrainer, DQN)], ids=["PPO", "DQN"])
def test_super_trains_one_item_of_the_algorithms_own_plan(base: Any, config: Any) -> None:
    mine = make(base.with_updates(name=f"Then{base._name}", mixins=[Then]), config)
    assert_equal_training(mine, make(base, config))
    assert mine.calls == mine._counters["num_steps_trained"] // config["train_batch_size"]


@pytest.mark.parametrize(
    ("kind", "config"),
    [(MyPPO, PPO), (MyDQN, DQN), (DQNTrainer.with_updates(mixins=[Then]), DQN)],
    ids=["PPO", "DQN", "super"],
)
def test_a_resumed_run_goes_on_exactly(kind: Any, config: Any, tmp_path: Any) -> None:
    first = make(kind, config)
    first.train()
    first._counters["mine"] += 2.5
    path = first.save(str(tmp_path))
    second = make(kind, {**config, "seed": 4})
    second.restore(path)
    assert second._counters["mine"] == 2.5
    assert dict(second._counters) == dict(first._counters)
    assert_equal_training(second, first)


class Plays(PGTrainer):
    def training_iteration(self) -> dict[str, Any]:
        sample(self, max_env_steps=60)
        return {}


def test_an_iteration_need_not_train():
    result = Plays(SMALL, env="CartPole-v1").train()
    assert result["info"]["learner"] == {}
    assert result["num_env_steps_trained_this_iter"] == 0


def test_what_trains_is_what_the_most_derived_class_says() -> None:
    class Planned(MyPG):
        @staticmethod
        def execution_plan(workers: Any, config: Any) -> Any:
            return StandardMetricsReporting(ParallelRollouts(workers), workers, config)

    class Both(Planned):
        def training_iteration(self) -> dict[str, Any]:
            self._counters["both"] += 1
            return MyPG.training_iteration(self)

        execution_plan = staticmethod(Planned.execution_plan)

    assert "num_steps_trained" not in make(Planned, SMALL).train()["info"]
    assert make(Both, SMALL).train()["counters"]["both"] == 1
    assert "both" not in make(Both, {**SMALL, "_disable_execution_plan_api": False}).train()["info"]
    # What is derived further says nothing new on it.
    assert make(Both.with_updates(name="Further"), SMALL).train()["info"]["both"] == 1
    with pytest.raises(ConfigError, match=r"both execution_plan and Then\.training_iteration\(\)"):
        build_trainer("Two", mixins=[Then], execution_plan=Planned.execution_plan)


class PlannedPG(PGTrainer):
    @staticmethod
    def execution_plan(workers: Any, config: Any) -> Any:
        return PGTrainer.execution_plan(workers, config)


@pytest.mark.parametrize(
    ("base", "method"), [(PGTrainer, None), (PlannedPG, None), (MyPG, "training_iteration"), (MyPPO, "training_step")]
)
def test_trials_of_tune_train_by_the_plan_unless_the_class_has_a_method(base: Any, method: str | None) -> None:
    in_actor = ray.remote(base).__ray_metadata__.modified_class  # what Ray derives from it, without starting Ray
    config = PPO if base is MyPPO else SMALL
    assert training_method(in_actor({**config, "env": "CartPole-v1"})) == method


def test_results_have_what_the_method_timed_counted_and_measured() -> None:
    class Measuring(MyPPO):
        def training_step(self) -> dict[str, Any]:
            return {**super().training_step(), "custom_metrics": {"rounds": 1.0}}

    trainer = make(Measuring, PPO)
    result = trainer.train()
    assert result["custom_metrics"] == {"rounds": 1.0}
    assert list(result["info"]["learner"]) == ["default_policy"]
    assert result["timers"]["synch_weights_time_ms"] > 0
    assert result["num_env_steps_sampled"] == result["info"]["num_env_steps_sampled"] == 60
    assert result["num_env_steps_trained"] == result["counters"]["num_steps_trained"] == 60
    assert result["info"]["num_env_steps_trained_this_iter"] == 60
    assert result["counters"]["num_env_steps_trained_this_iter"] == 60
    assert trainer.plan_report().operators[0].name == "training_step"


@pytest.mark.parametrize(
    ("method", "config", "message"),
    [
        (lambda self: None, SMALL, r"Bad.training_iteration\(\) returned None, wanted a dict of learner infos"),
        (lambda self: [sample(self)], SMALL, r"returned \[MultiAgentBatch"),
        (
            lambda self: train_one_step(self, synchronous_parallel_sample(worker_set=self.workers)),
            {**SMALL, "timesteps_per_iteration": 10},
            r"sampled 20 env steps and counted none.*num_env_steps_sampled",
        ),
        (lambda self: next(iter(())), SMALL, "training_iteration raised StopIteration"),
    ],
    ids=["nothing", "list", "uncounted", "StopIteration"],
)
def test_a_method_that_cannot_train_is_one_clear_error(method: Any, config: Any, message: str) -> None:
    kind = type("Bad", (PGTrainer,), {"training_iteration": method})
    with pytest.raises((ConfigError, RuntimeError), match=message):
        make(kind, config).train()


def test_a_trainers_number_is_still_a_number() -> None:
    trainer = make(PGTrainer, SMALL)
    trainer.train()
    assert trainer.training_iteration == 1
    assert type(pickle.loads(pickle.dumps(trainer.training_iteration))) is int
    with pytest.raises(ConfigError, match="PG trains by its execution plan"):
        trainer.training_iteration()


def test_rounds_are_sampled_as_ray_has_called_for_them() -> None:
    trainer = make(PGTrainer, SMALL)
    assert [batch.count for batch in synchronous_parallel_sample(trainer.workers)] == [20]
    assert synchronous_parallel_sample(worker_set=trainer.workers, max_env_steps=41).count == 60
    few = synchronous_parallel_sample(trainer.workers, remote_fn=lambda worker: worker.sample().slice(0, 5))
    assert [batch.count for batch in few] == [5]
    with pytest.raises(ValueError, match="wanted one of the two"):
        synchronous_parallel_sample(worker_set=trainer.workers, max_env_steps=1, max_agent_steps=1)


def test_defaults_that_a_program_changes_later_are_those_of_its_trainer():
    defaults = {"mine": 1}
    built = build_trainer("Late", default_config=defaults)
    defaults.update(lr=0.5, also_mine=2)
    config = built.get_default_config()
    assert (config["mine"], config["also_mine"], config["lr"]) == (1, 2, 0.5)
