"""ACER with its presets: Stable-Baselines2's Zoo's returns on CartPole and Acrobot."""

import numpy as np
import pytest

from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_actor_critics import return_after

SEEDS = range(5)


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("env", "bar"), [("CartPole-v1", 499.0), ("Acrobot-v1", -91.0)])
def test_the_zoos_returns_are_reached_within_500k_steps(env, bar, framework):
    returns = [return_after("ACER", env, 500_000, seed, framework, episodes=100) for seed in SEEDS]
    assert np.mean(returns) >= bar, returns
