"""RLlib's bars for PG, A2C and PPO on CartPole, in both frameworks."""

import pytest

from rlframe.agents.registry import get_trainer_class
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

PPO = {
    "num_workers": 0,
    "lr": 3e-4,
    "gamma": 0.99,
    "num_sgd_iter": 6,
    "vf_loss_coeff": 0.01,
    "observation_filter": "MeanStdFilter",
    "model": {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True},
}
MICROBATCHES = {"gamma": 0.95, "rollout_fragment_length": 20, "microbatch_size": 60, "train_batch_size": 120}
CASES = [
    ("PG", {"num_workers": 0, "timesteps_per_iteration": 1000}, 100_000),
    ("A2C", {"num_workers": 0, "lr": 1e-3, "timesteps_per_iteration": 1000}, 500_000),
    ("A2C", {"num_workers": 0, "timesteps_per_iteration": 1000, **MICROBATCHES}, 300_000),
    ("PPO", PPO, 100_000),
]


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "config", "budget"), CASES, ids=["PG", "A2C", "A2C in microbatches", "PPO"])
def test_on_policy_algorithm_reaches_the_bar(name, config, budget, seed, framework):
    trainer_class = get_trainer_class(name)
    assert steps_to_bar(trainer_class, {**config, "framework": framework}, seed, budget) <= budget
