"""Box2D's and MuJoCo's environments with the settings of their pages; each test takes minutes."""

import numpy as np
import pytest

from rlframe.agents.presets import get_preset
from tests.learning.test_actor_critics import return_after


@pytest.mark.learning
def test_dqn_lands_within_100k_steps():
    pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'rlframe[box2d]'")
    config = get_preset("DQN", "LunarLander-v3")
    returns = [return_after("DQN", "LunarLander-v3", 100_000, seed, "torch", config, 100) for seed in range(3)]
    assert np.mean(returns) >= 154.0, returns


@pytest.mark.learning
@pytest.mark.parametrize("env", ["LunarLander-v3", "LunarLanderContinuous-v3"])
def test_ppo_lands_within_a_million_steps(env):
    pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'rlframe[box2d]'")
    config = get_preset("PPO", env)
    returns = [return_after("PPO", env, 1_000_000, seed, "torch", config, 100) for seed in range(3)]
    assert np.mean(returns) >= 200.0, returns


@pytest.mark.learning
def test_ppo_walks_on_two_legs_within_three_million_steps():
    pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'rlframe[box2d]'")
    config = get_preset("PPO", "BipedalWalker-v3")
    returns = [return_after("PPO", "BipedalWalker-v3", 3_000_000, seed, "torch", config, 100) for seed in range(3)]
    assert np.mean(returns) >= 250.0, returns


@pytest.mark.learning
def test_a2c_balances_an_inverted_pendulum_within_60k_steps():
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'rlframe[mujoco]'")
    config = get_preset("A2C", "InvertedPendulum-v4")
    returns = [return_after("A2C", "InvertedPendulum-v4", 58_000, seed, "torch", config) for seed in range(5)]
    assert np.median(returns) >= 1000.0, returns


@pytest.mark.learning
def test_ppo_runs_as_a_cheetah_within_170k_steps():
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'rlframe[mujoco]'")
    config = get_preset("PPO", "HalfCheetah-v4")
    returns = [return_after("PPO", "HalfCheetah-v4", 169_000, seed, "torch", config, 10) for seed in range(3)]
    assert np.median(returns) >= 2000.0, returns


@pytest.mark.learning
def test_ppo_balances_an_inverted_pendulum_within_31k_steps():
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'rlframe[mujoco]'")
    config = get_preset("PPO", "InvertedPendulum-v4")
    returns = [return_after("PPO", "InvertedPendulum-v4", 30_000, seed, "torch", config) for seed in range(3)]
    assert np.median(returns) >= 1000.0, returns
