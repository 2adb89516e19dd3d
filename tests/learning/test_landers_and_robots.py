"""Box2D's and MuJoCo's environments with the settings of their pages; each test takes minutes."""

import numpy as np
import pytest

from rlframe.agents.presets import get_preset, presets
from tests.learning.test_actor_critics import return_after

#: Of seeds 0, 1, 2, …, looked at after their steps only; Pendulum's have tests of their own, with more episodes.
LOOKED_AT_LATE = [preset for preset in presets() if preset.returns and preset.env != "Pendulum-v1"]


@pytest.mark.learning
@pytest.mark.parametrize("preset", LOOKED_AT_LATE, ids=lambda preset: f"{preset.algorithm}-{preset.env}")
def test_presets_return_what_was_asked_for(preset):
    if preset.env not in ("Acrobot-v1", "MountainCar-v0"):
        pytest.importorskip("Box2D", reason="Box2D is not installed: pip install 'rlframe[box2d]'")
    name, env, steps, config = preset.algorithm, preset.env, preset.env_steps[0], preset.config
    returns = [return_after(name, env, steps, seed, "torch", config, 100) for seed in range(len(preset.returns))]
    assert np.mean(returns) >= preset.target, returns


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
