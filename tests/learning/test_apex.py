"""RLlib's bars for Ape-X: CartPole, and Pendulum and MountainCarContinuous by DDPG, with three workers."""

import numpy as np
import pytest

from rlframe.agents.presets import get_preset
from rlframe.agents.registry import get_trainer_class
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_actor_critics import return_after
from tests.learning.test_dqn_cartpole import steps_to_bar

pytestmark = [pytest.mark.ray, pytest.mark.learning, pytest.mark.usefixtures("ray_runtime")]


@pytest.mark.parametrize(("env", "bar"), [("Pendulum-v1", -160.0), ("MountainCarContinuous-v0", 90.0)])
def test_ddpg_reaches_the_bar_within_50k_steps(env, bar):
    returns = [return_after("APEX_DDPG", env, 50_000, seed, "torch", episodes=300) for seed in range(3)]
    assert np.mean(returns) >= bar, returns


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_three_workers_reach_the_bar(seed, framework):
    config = {**get_preset("APEX", "CartPole-v1"), "framework": framework}
    assert steps_to_bar(get_trainer_class("APEX"), config, seed, 250_000) <= 250_000
