"""SAC, TD3 and DDPG with their presets: Stable-Baselines3's Zoo's returns on Pendulum, RLlib's bar on CartPole."""

import numpy as np
import pytest

from rlframe.agents.presets import get_preset
from rlframe.agents.registry import get_trainer_class
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

SEEDS = range(5)


def return_after(name: str, env: str, steps: int, seed: int, framework: str) -> float:
    """Returns the mean return of 100 episodes without exploration, after `steps` env steps of training."""
    evaluation = {"evaluation_config": {"explore": False}, "evaluation_num_episodes": 100}
    config = {**get_preset(name, env), **evaluation, "seed": seed, "framework": framework, "log_sys_usage": False}
    trainer = get_trainer_class(name)(config, env=env)
    try:
        while trainer.train()["timesteps_total"] < steps:
            pass
        return trainer.evaluate()["evaluation"]["episode_reward_mean"]
    finally:
        trainer.stop()


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("name", "bar"), [("SAC", -157.0), ("TD3", -152.0), ("DDPG", -152.0)])
def test_pendulum_is_swung_up_within_20k_steps(name, bar, framework):
    returns = [return_after(name, "Pendulum-v1", 20_000, seed, framework) for seed in SEEDS]
    assert np.mean(returns) >= bar, returns


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", SEEDS)
def test_discrete_sac_reaches_the_bar(seed, framework):
    config = {**get_preset("SAC", "CartPole-v1"), "framework": framework}
    assert steps_to_bar(get_trainer_class("SAC"), config, seed, 100_000) <= 100_000
