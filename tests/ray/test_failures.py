"""Workers that die at chosen points: what goes on, what is replaced, and what a replacement knows."""

import contextlib
import copy
import os

import numpy as np
import pytest

from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import DDPPOTrainer
from rlframe.evaluation.filter_manager import FilterManager
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.execution.train_ops import TrainOneStep
from rlframe.utils.errors import WorkerError
from tests.helpers.envs import Counting

pytestmark = [pytest.mark.ray, pytest.mark.fault]

CONFIG = {
    "seed": 5,
    "num_workers": 2,
    "num_cpus_per_worker": 0.25,
    "rollout_fragment_length": 20,
    "train_batch_size": 40,
    "timesteps_per_iteration": 40,
    "min_iter_time_s": 0,
    "model": {"fcnet_hiddens": [8]},
    "log_sys_usage": False,
}
MODES = ["recreate_failed_workers", "ignore_worker_failures"]


@pytest.fixture(autouse=True)
def _runtime(ray_runtime):
    return ray_runtime


@pytest.fixture
def trainers():
    made = []

    def build(cls=PGTrainer, env="CartPole-v1", **overrides):
        made.append(cls({**copy.deepcopy(CONFIG), **overrides}, env=env))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


def kill(actor):
    """Kills an actor, and returns once it is dead."""
    import ray

    ray.kill(actor)
    with contextlib.suppress(ray.exceptions.RayActorError):
        while True:
            ray.get(actor.ping.remote())


def ask(actor, function):
    import ray

    return ray.get(actor.apply.remote(function))


@pytest.mark.parametrize("mode", [MODES[0], pytest.param(MODES[1], marks=pytest.mark.slow)])
def test_a_dead_evaluation_worker_costs_no_training(trainers, mode, caplog):
    alone = {"evaluation_interval": 1, "evaluation_num_workers": 1, "evaluation_num_episodes": 2}
    trainer = trainers(num_workers=0, **alone, **{mode: True})
    trainer.train()
    kill(trainer.evaluation_workers.remote_workers()[0])
    caplog.clear()
    result = trainer.train()
    assert result["timesteps_total"] == 80
    assert len(result["evaluation"]["hist_stats"]["episode_reward"]) == 2
    assert ["evaluation worker 1 died" in line for line in caplog.messages] == [True]
    kill(trainer.evaluation_workers.remote_workers()[0])
    assert trainer.evaluate()["evaluation"]["episodes_this_iter"] == 2


@pytest.mark.slow
def test_evaluation_beside_training_is_repeated_alone(trainers):
    trainer = trainers(
        evaluation_interval=1,
        evaluation_num_workers=1,
        evaluation_num_episodes=2,
        evaluation_parallel_to_training=True,
        recreate_failed_workers=True,
    )
    kill(trainer.evaluation_workers.remote_workers()[0])
    kill(trainer.workers.remote_workers()[1])
    result = trainer.train()
    assert result["timesteps_total"] == 40
    assert result["evaluation"]["episodes_this_iter"] == 2
    assert trainer.workers.restarts == trainer.evaluation_workers.restarts == 1


@pytest.mark.parametrize("mode", [pytest.param(MODES[0], marks=pytest.mark.slow), MODES[1]])
def test_a_worker_that_dies_between_two_rounds(trainers, mode, caplog):
    def plan(workers, config):
        def kill_one(item):
            if item["training_iteration_of_plan"] == 2:
                kill(workers.remote_workers()[0])
            return item

        counted = iter(range(1, 100))
        train = ParallelRollouts(workers).for_each(TrainOneStep(workers))
        results = StandardMetricsReporting(train, workers, config)
        return results.for_each(lambda item: {**item, "training_iteration_of_plan": next(counted)}).for_each(kill_one)

    trainer = trainers(PGTrainer.with_updates(name="Killing", execution_plan=plan), **{mode: True})
    assert [trainer.train()["timesteps_total"] for _ in range(2)] == [40, 80]
    assert ["worker 1 died" in line for line in caplog.messages] == [True]
    result = trainer.train()
    assert result["timesteps_total"] == {MODES[0]: 120, MODES[1]: 120}[mode]
    assert result["num_healthy_workers"] == {MODES[0]: 2, MODES[1]: 1}[mode]


def test_what_living_workers_saw_is_not_lost_with_a_dead_one(trainers):
    import ray

    trainer = trainers(observation_filter="MeanStdFilter")
    trainer.train()
    workers = trainer.workers.remote_workers()
    ray.get([worker.sample.remote() for worker in workers])
    kill(workers[0])
    filters = trainer.workers.local_worker().filters
    seen = ask(workers[1], lambda worker: worker.filters["default_policy"].buffer.n)
    expected = filters["default_policy"].rs.n + seen
    for _ in range(2):
        with pytest.raises(ray.exceptions.RayActorError):
            FilterManager.synchronize(filters, workers)
        assert filters["default_policy"].rs.n == expected
    assert seen >= 20


class Tasks(Counting):
    """Has a task, and remembers the seeds of its episodes."""

    def __init__(self, config=None):
        super().__init__(config)
        if os.path.exists(config.get("broken", "")) and config.worker_index:
            raise RuntimeError("no licence")
        self.task = 0

    def get_task(self):
        return self.task

    def set_task(self, task):
        self.task = task


@pytest.mark.slow
def test_a_replacement_knows_what_the_others_know_and_repeats_nothing(trainers):
    trainer = trainers(env=Tasks, observation_filter="MeanStdFilter", env_task_fn=lambda result, env, context: 7)
    trainer.train()
    old, other = trainer.workers.remote_workers()

    def look(worker):
        env = worker.env
        return {
            "n": worker.filters["default_policy"].rs.n,
            "task": env.task,
            "seeds": env.seeds,
            "actions": worker.sample()["actions"].tolist(),
            "ids": worker.sample()["eps_id"].tolist(),
            "weights": worker.get_weights()["default_policy"],
        }

    before, beside = ask(old, look), ask(other, look)
    kill(old)
    assert trainer.workers.recreate([0]) == {}
    replaced = trainer.workers.remote_workers()[0]
    assert trainer.workers.remote_indexes() == [1, 2]
    after = ask(replaced, look)
    assert after["n"] == beside["n"] > 0
    assert after["task"] == 7
    for name in ("seeds", "ids"):
        assert not {*after[name]} & ({*before[name], *beside[name]} - {None})
    assert after["actions"] != before["actions"]
    trainer.workers.add_workers(1)
    assert trainer.workers.remote_indexes() == [1, 2, 3]
    added = ask(trainer.workers.remote_workers()[2], look)
    assert (added["n"], added["task"]) == (beside["n"], 7)
    for name, array in beside["weights"].items():
        np.testing.assert_array_equal(after["weights"][name], array)
        np.testing.assert_array_equal(added["weights"][name], array)


@pytest.mark.slow
def test_what_cannot_be_replaced_is_said_and_the_others_go_on(trainers, tmp_path, caplog):
    flag = tmp_path / "broken"
    trainer = trainers(env=Tasks, env_config={"broken": str(flag)}, recreate_failed_workers=True)
    trainer.train()
    flag.touch()
    kill(trainer.workers.remote_workers()[0])
    assert trainer.train()["num_healthy_workers"] == 1
    assert "worker 1 could not be replaced: could not make the environment of worker 1" in caplog.text
    assert "1 of 2 go on" in caplog.text
    kill(trainer.workers.remote_workers()[0])
    with pytest.raises(WorkerError, match=r"not enough healthy workers remain.*no licence"):
        trainer.train()
    assert os.path.isfile(trainer.save(str(tmp_path)))
    flag.unlink()
    assert trainer.train()["num_healthy_workers"] == 2


@pytest.mark.slow
def test_a_checkpoint_is_written_whoever_has_died(trainers, tmp_path, caplog):
    sizes = {"train_batch_size": -1, "sgd_minibatch_size": 10, "num_envs_per_worker": 1}
    trainer = trainers(DDPPOTrainer, **sizes)
    trainer.train()
    first, second = trainer.workers.remote_workers()
    kill(first)
    path = trainer.save(str(tmp_path))
    assert "worker 1 does not answer" in caplog.text
    kill(second)
    assert os.path.isfile(trainer.save(str(tmp_path / "none")))
    assert "no worker that learned is alive" in caplog.text
    trainer.stop()
    again = trainers(DDPPOTrainer, **sizes, num_workers=1, recreate_failed_workers=True)
    kill(again.workers.remote_workers()[0])
    again.restore(path)
    assert again.train()["timesteps_total"] == 80


def _die_at_third_step(worker):
    policy = worker.policy_map["default_policy"]
    learn, steps = policy.learn_on_batch, iter(range(2))

    def learn_or_die(batch):
        if next(steps, None) is None:
            os._exit(1)
        return learn(batch)

    policy.learn_on_batch = learn_or_die


def _in_a_group(worker):
    import torch

    return torch.distributed.is_initialized()


@pytest.mark.slow
def test_learners_that_lose_one_in_the_middle_of_a_round_are_equal_again(trainers):
    trainer = trainers(
        DDPPOTrainer,
        num_workers=3,
        num_envs_per_worker=1,
        train_batch_size=-1,
        sgd_minibatch_size=10,
        ignore_worker_failures=True,
    )
    first, second, third = trainer.workers.remote_workers()
    ask(first, _die_at_third_step)
    with pytest.raises(Exception, match="died"):
        next(trainer.train_exec_impl)
    assert [ask(worker, _in_a_group) for worker in (second, third)] == [False, False]  # else they wait for each other
    result = trainer.train()
    assert result["num_healthy_workers"] == 2
    assert result["info"]["num_steps_trained"] == result["timesteps_total"] == 40
    one, other = (ask(worker, lambda w: w.get_weights()["default_policy"]) for worker in (second, third))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


class BadOnWorker(Counting):
    """Its steps fail, on one worker always."""

    def __init__(self, config):
        super().__init__(config)
        self.bad = config.worker_index == config["bad"]

    def step(self, action):
        if self.bad:
            raise ValueError("broken here")
        return super().step(action)


def test_a_worker_whose_environment_always_fails_is_left_behind(trainers):
    trainer = trainers(env=BadOnWorker, env_config={"bad": 1}, ignore_worker_failures=True)
    result = trainer.train()
    assert result["num_healthy_workers"] == 1
    assert result["timesteps_total"] == 40
    assert trainer.workers.remote_indexes() == [2]


def test_programs_replace_and_forget_dead_workers_themselves(trainers):
    workers = trainers().workers
    kill(workers.remote_workers()[0])
    workers.recreate_failed_workers()
    assert [ask(worker, lambda w: w.worker_index) for worker in workers.remote_workers()] == [1, 2]
    kill(workers.remote_workers()[0])
    workers.remove_failed_workers()
    assert [ask(worker, lambda w: w.worker_index) for worker in workers.remote_workers()] == [2]
    kill(workers.remote_workers()[0])
    with pytest.raises(WorkerError, match="no remote worker is left"):
        workers.remove_failed_workers()
