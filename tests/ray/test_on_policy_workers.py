"""Actor-critics with remote workers."""

import copy

import numpy as np
import pytest

from rlframe.agents.a3c import A2CTrainer, A3CTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.execution.gradient_ops import ApplyGradients, AsyncGradients
from rlframe.execution.metric_ops import StandardMetricsReporting
from tests.helpers.frameworks import TORCH_FIRST, needs_tf

pytestmark = pytest.mark.ray

CONFIG = {
    "seed": 5,
    "min_iter_time_s": 0,
    "model": {"fcnet_hiddens": [16]},
    "train_batch_size": 80,
    "rollout_fragment_length": 20,
    "num_workers": 1,
    "num_cpus_per_worker": 0.5,
    "log_sys_usage": False,
}

MINIBATCHES = {"sgd_minibatch_size": 40, "num_sgd_iter": 2}
CURIOUS = {"type": "Curiosity", "feature_dim": 4, "sub_exploration": {"type": "StochasticSampling"}}


@pytest.fixture(autouse=True)
def _runtime(ray_runtime):
    return ray_runtime


@pytest.fixture
def trainers():
    made = []

    def build(cls, **overrides):
        made.append(cls({**copy.deepcopy(CONFIG), **overrides}, env="CartPole-v1"))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


@pytest.mark.parametrize(
    ("cls", "overrides"),
    [
        (A2CTrainer, {}),
        pytest.param(PPOTrainer, {**MINIBATCHES, "framework": "tf"}, marks=[needs_tf, pytest.mark.slow]),
        pytest.param(PPOTrainer, {**MINIBATCHES, "exploration_config": CURIOUS}, marks=pytest.mark.slow),
    ],
    ids=["A2C", "PPO-tf", "PPO-Curiosity"],
)
def test_one_remote_worker_gives_the_numbers_of_none(trainers, cls, overrides):
    local, remote = trainers(cls, num_workers=0, **overrides), trainers(cls, **overrides)
    for _ in range(3):
        a, b = local.train(), remote.train()
        assert a["hist_stats"] == b["hist_stats"]
    for name, array in local.get_weights()["default_policy"].items():
        np.testing.assert_allclose(array, remote.get_weights()["default_policy"][name], atol=1e-6, err_msg=name)


def test_a3c_applies_the_gradients_of_every_worker(trainers):
    trainer = trainers(A3CTrainer, num_workers=2, timesteps_per_iteration=200)
    before = trainer.get_weights()["default_policy"]
    result = trainer.train()
    assert result["info"]["num_steps_sampled"] >= 200
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert {"policy_loss", "vf_loss", "policy_entropy"} <= set(stats)
    after = trainer.get_weights()["default_policy"]
    assert any(not np.array_equal(before[name], array) for name, array in after.items())


@pytest.mark.slow
def test_workers_of_a_plan_that_has_them_compute_gradients_have_the_policy_for_it(trainers):
    def plan(workers, config):
        gradients = AsyncGradients(workers).for_each(ApplyGradients(workers, update_all=False))
        return StandardMetricsReporting(gradients, workers, config)

    trainer = trainers(PGTrainer.with_updates(execution_plan=plan), timesteps_per_iteration=60)
    before = trainer.get_weights()["default_policy"]
    assert trainer.train()["info"]["num_steps_trained"] >= 60
    assert any((before[name] != array).any() for name, array in trainer.get_weights()["default_policy"].items())


@pytest.mark.slow
@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_workers_give_values_in_reward_units(trainers, framework):
    import ray

    sizes = {"train_batch_size": 64, "rollout_fragment_length": 32, "sgd_minibatch_size": 32, "num_sgd_iter": 2}
    trainer = trainers(PPOTrainer, **sizes, framework=framework)
    for _ in range(2):
        trainer.train()
    policy = trainer.get_policy()
    assert policy.value_std > 1.0
    batch = ray.get(trainer.workers.remote_workers()[0].sample.remote())
    batch = batch.policy_batches["default_policy"] if hasattr(batch, "policy_batches") else batch
    np.testing.assert_allclose(batch["vf_preds"], policy.values(batch["obs"]), rtol=1e-4, atol=1e-4)
