"""RLlib's bars for Ape-X: CartPole with three workers, Pendulum by DDPG."""

import pytest

from rlframe.agents.presets import get_preset
from rlframe.agents.registry import get_trainer_class
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

pytestmark = [pytest.mark.ray, pytest.mark.learning, pytest.mark.usefixtures("ray_runtime")]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_three_workers_reach_the_bar(seed, framework):
    config = {**get_preset("APEX", "CartPole-v1"), "framework": framework}
    assert steps_to_bar(get_trainer_class("APEX"), config, seed, 250_000) <= 250_000
