"""RLlib's bars for PPO, IMPALA and APPO on Pendulum: continuous actions, episodes that only time ends."""

import gymnasium
import numpy as np
import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.agents.registry import get_trainer_class
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

PPO = {
    "num_workers": 0,
    "num_envs_per_worker": 20,
    "train_batch_size": 512,
    "sgd_minibatch_size": 64,
    "num_sgd_iter": 6,
    "gamma": 0.95,
    "lambda": 0.1,
    "lr": 3e-4,
    "vf_clip_param": 10.0,
    "observation_filter": "MeanStdFilter",
}


def far_actions(_config):
    """Returns Pendulum with actions in [300, 500], which a policy reaches only if its actions are unsquashed."""
    return gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(300), np.float32(500))


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_ppo_reaches_the_bar(seed, framework):
    config = {**PPO, "framework": framework}
    assert steps_to_bar(PPOTrainer, config, seed, 400_000, -500, "Pendulum-v1") <= 400_000


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ppo_reaches_the_bar_with_actions_far_from_zero(framework):
    config = {**PPO, "framework": framework}
    assert steps_to_bar(PPOTrainer, config, 0, 400_000, -500, far_actions) <= 400_000


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "bar"), [("IMPALA", -700), ("APPO", -1000)])
def test_asynchronous_learners_reach_the_bar_with_their_defaults(name, bar, seed, framework):
    config = {"num_cpus_per_worker": 0.5, "timesteps_per_iteration": 2000, "framework": framework}
    assert steps_to_bar(get_trainer_class(name), config, seed, 500_000, bar, "Pendulum-v1") <= 500_000
