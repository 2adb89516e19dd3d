"""TRPO with its presets: the returns of SB3's Zoo on CartPole, of Tianshou's PPO on the inverted pendulum."""

import gymnasium
import numpy as np
import pytest

from rlframe.agents.presets import get_preset
from rlframe.agents.trpo import TRPOTrainer
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_actor_critics import return_after

SEEDS = range(3)


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_cartpole_is_solved_within_100k_steps(framework):
    returns = [return_after("TRPO", "CartPole-v1", 100_000, seed, framework) for seed in SEEDS]
    assert np.mean(returns) == 500.0, returns


@pytest.mark.learning
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")  # Gymnasium, of v4, whose returns peers have
@pytest.mark.parametrize("seed", SEEDS)
def test_an_inverted_pendulum_stands_within_31k_steps(seed):
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'gymnasium[mujoco]'")
    name = "InvertedPendulum-v4"
    trainer = TRPOTrainer({**get_preset("TRPO", name), "seed": seed, "log_sys_usage": False}, env=name)
    while trainer.train()["timesteps_total"] < 31_000:
        pass
    env, actor, returns = gymnasium.make(name), trainer.make_actor(explore=False), []
    for episode in range(20):
        obs, ends, total = env.reset(seed=episode)[0], False, 0.0
        while not ends:
            obs, reward, terminated, truncated, _ = env.step(actor.act(obs))
            ends, total = terminated or truncated, total + reward
        returns.append(total)
    trainer.stop()
    assert np.mean(returns) == 1000.0, returns


@pytest.mark.learning
def test_a_pendulum_is_swung_up_within_100k_steps():
    returns = [return_after("TRPO", "Pendulum-v1", 100_000, seed, "torch", episodes=400) for seed in range(5)]
    assert np.mean(returns) >= -175.0, returns
