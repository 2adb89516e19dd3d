"""SAC, TD3 and DDPG with their presets: Stable-Baselines3's Zoo's returns on Pendulum, RLlib's bar on CartPole."""

import numpy as np
import pytest

from rlframe.agents.presets import get_preset
from rlframe.agents.registry import get_trainer_class
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

SEEDS = range(5)
#: SAC's on HalfCheetah-v4; its page has it, too.
HALFCHEETAH = {
    "timesteps_per_iteration": 1000,
    "learning_starts": 10_000,
    "exploration_config": {"type": "StochasticSampling", "random_timesteps": 10_000},
    "initial_weights": "fan_in",
    "use_huber": False,
    "initial_alpha": 0.2,
    "optimization": {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 0.0},
}


def return_after(name: str, env: str, steps: int, seed: int, framework: str, config=None, episodes: int = 20) -> float:
    """Returns the mean return of episodes without exploration, after `steps` env steps with a preset or a config."""
    evaluation = {"evaluation_config": {"explore": False}, "evaluation_num_episodes": episodes}
    given = get_preset(name, env) if config is None else config
    config = {**given, **evaluation, "seed": seed, "framework": framework, "log_sys_usage": False}
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
    # Where a pendulum begins decides more than who swings it up: of 100 episodes the mean has a standard error of 8.
    returns = [return_after(name, "Pendulum-v1", 20_000, seed, framework, episodes=1000) for seed in SEEDS]
    assert np.mean(returns) >= bar, returns


@pytest.mark.learning
@pytest.mark.parametrize(
    ("name", "steps", "config"),
    [("SAC", 20_000, {"timesteps_per_iteration": 1000, "learning_starts": 1000}), ("TD3", 45_000, None)],
    ids=["SAC", "TD3"],
)
def test_a_double_pendulum_stands(name, steps, config):
    """SAC with its defaults, TD3 with its preset."""
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'rlframe[mujoco]'")
    returns = [return_after(name, "InvertedDoublePendulum-v4", steps, seed, "torch", config) for seed in SEEDS]
    assert np.mean(returns) >= 9000.0, returns


@pytest.mark.learning
def test_a_cheetah_runs_within_68k_steps():
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'gymnasium[mujoco]'")
    returns = [return_after("SAC", "HalfCheetah-v4", 68_000, seed, "torch", HALFCHEETAH, 10) for seed in range(3)]
    assert np.mean(returns) >= 5000.0, returns


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", SEEDS)
def test_discrete_sac_reaches_the_bar(seed, framework):
    config = {**get_preset("SAC", "CartPole-v1"), "framework": framework}
    assert steps_to_bar(get_trainer_class("SAC"), config, seed, 100_000) <= 100_000
