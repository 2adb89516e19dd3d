"""RLlib's bar for A3C on CartPole, in both frameworks."""

import pytest

from rlframe.agents.a3c import A3CTrainer
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

A3C = {"num_workers": 1, "gamma": 0.95, "timesteps_per_iteration": 2000, "num_cpus_per_worker": 0.5}


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_a3c_reaches_the_bar(seed, framework):
    assert steps_to_bar(A3CTrainer, {**A3C, "framework": framework}, seed, 200_000) <= 200_000
