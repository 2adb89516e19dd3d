"""DD-PPO: workers that learn together."""

import copy

import numpy as np
import pytest

from rlframe.agents.ppo import DDPPOTrainer
from rlframe.execution.rollout_ops import StandardizeFields
from rlframe.utils.errors import ConfigError

pytestmark = pytest.mark.ray

CONFIG = {
    "seed": 5,
    "num_workers": 2,
    "num_cpus_per_worker": 0.5,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 20,
    "sgd_minibatch_size": 10,
    "num_sgd_iter": 2,
    "model": {"fcnet_hiddens": [8]},
    "min_iter_time_s": 0,
    "log_sys_usage": False,
}


@pytest.fixture(autouse=True)
def _runtime(ray_runtime):
    return ray_runtime


@pytest.fixture
def trainers():
    made = []

    def build(**overrides):
        made.append(DDPPOTrainer({**copy.deepcopy(CONFIG), **overrides}, env="CartPole-v1"))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


def test_deviations_of_gaussians_are_free_of_the_state_unless_asked_for():
    def log_stds(**model):
        trainer = DDPPOTrainer({**CONFIG, "num_workers": 0, "model": {**CONFIG["model"], **model}}, env="Pendulum-v1")
        names = set(trainer.get_policy().get_weights())
        trainer.stop()
        return "free_log_std.log_std" in names

    assert log_stds()
    assert not log_stds(free_log_std=False)


def weights_of_workers(trainer):
    import ray

    remote = ray.get([worker.get_weights.remote() for worker in trainer.workers.remote_workers()])
    return [weights["default_policy"] for weights in remote]


def same(one, other, **tolerance):
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], err_msg=name, **(tolerance or {"rtol": 0}))


@pytest.mark.slow
def test_weights_stay_equal_without_being_sent(trainers):
    # With an LSTM workers have different numbers of sequences, and so of minibatches.
    trainer = trainers(model={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6})
    before = trainer.get_weights()["default_policy"]
    result = trainer.train()
    first, second = weights_of_workers(trainer)
    same(first, second)
    same(first, trainer.get_weights()["default_policy"])
    assert any(not np.array_equal(before[name], array) for name, array in first.items())
    info = result["info"]
    assert info["num_steps_sampled"] == info["num_steps_trained"] == 80
    assert info["learner"]["default_policy"]["learner_stats"]["allreduce_latency"] > 0


@pytest.mark.slow
def test_a_step_is_the_mean_of_the_workers_gradients(trainers):
    import ray

    whole = {"sgd_minibatch_size": 40, "num_sgd_iter": 1}
    trainer, twin = trainers(**whole), trainers(**whole)
    # The twin's workers sample what the trainer's workers are about to sample.
    batches = ray.get([worker.sample.remote() for worker in twin.workers.remote_workers()])
    policy = twin.get_policy()
    standardize = StandardizeFields(["advantages"])
    gradients = [policy.compute_gradients(standardize(copy.deepcopy(batch)))[0] for batch in batches]
    policy.apply_gradients([np.mean(parts, axis=0) for parts in zip(*gradients, strict=True)])
    trainer.train()
    for weights in weights_of_workers(trainer):
        same(policy.get_weights(), weights, rtol=1e-4, atol=1e-6)


def test_without_remote_workers_it_learns_in_one_process(trainers):
    trainer = trainers(num_workers=0)
    result = trainer.train()
    assert result["info"]["num_steps_trained"] == 40
    assert trainer.workers.remote_workers() == []


@pytest.mark.slow
def test_a_restored_run_goes_on_with_the_same_numbers(trainers, tmp_path):
    trainer = trainers(keep_local_weights_in_sync=False)
    trainer.train()
    path = trainer.save(str(tmp_path))
    expected = [trainer.train()["hist_stats"] for _ in range(2)]
    weights = weights_of_workers(trainer)[0]
    other = trainers(seed=77, keep_local_weights_in_sync=False)
    other.restore(path)
    assert [other.train()["hist_stats"] for _ in range(2)] == expected
    same(weights_of_workers(other)[1], weights, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_learns_on_with_the_others(trainers):
    import ray

    trainer = trainers(recreate_failed_workers=True)
    trainer.train()
    ray.kill(trainer.workers.remote_workers()[0])
    result = trainer.train()
    assert trainer.workers.restarts == 1
    first, second = weights_of_workers(trainer)
    same(first, second)
    assert result["info"]["num_steps_trained"] > 80


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train_batch_size": 500}, "rollout_fragment_length · num_envs_per_worker = 40"),
        ({"sgd_minibatch_size": 99}, "at most"),
        ({"kl_coeff": 0.2}, "no KL penalty"),
        ({"framework": "tf"}, "DDPPO has no policy for 'tf'"),
    ],
)
def test_a_config_that_cannot_work_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        DDPPOTrainer({**copy.deepcopy(CONFIG), "num_workers": 0, **overrides}, env="CartPole-v1")
