"""Box2D's and MuJoCo's environments with the settings of their pages; each test takes minutes."""

import numpy as np
import pytest

from rlframe.agents.presets import get_preset
from tests.learning.test_actor_critics import return_after

#: Stable-Baselines3's Zoo's settings for DQN.
LANDER = {
    "lr": 6.3e-4, "gamma": 0.99, "train_batch_size": 128, "learning_starts": 128, "training_intensity": 128,
    "target_network_update_freq": 250, "prioritized_replay": False, "dueling": False, "double_q": False, "hiddens": [],
    "grad_clip": 10.0, "model": {"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"}, "min_iter_time_s": 0,
    "exploration_config": {"epsilon_timesteps": 12_000, "final_epsilon": 0.1}, "timesteps_per_iteration": 2000,
}  # fmt: skip


@pytest.mark.learning
def test_dqn_lands_within_100k_steps():
    pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'rlframe[box2d]'")
    returns = [return_after("DQN", "LunarLander-v3", 100_000, seed, "torch", LANDER, 100) for seed in range(2)]
    assert np.mean(returns) >= 154.0, returns


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
