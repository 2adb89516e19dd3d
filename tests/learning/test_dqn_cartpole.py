"""RLlib's bar: a mean return of 150 on CartPole within 50,000 steps, on every seed."""

import math

import pytest

from rlframe.agents.dqn import DQNTrainer, PQNTrainer, SimpleQTrainer
from rlframe.agents.presets import get_preset
from tests.helpers.frameworks import FRAMEWORKS, needs_tf

BAR, BUDGET = 150.0, 50_000


def steps_to_bar(cls, config, seed, budget=BUDGET, bar=BAR, env="CartPole-v1"):
    """Returns the env steps after which the mean return of the last 100 episodes was at the bar; inf if never."""
    trainer = cls({**config, "seed": seed, "min_iter_time_s": 0, "log_sys_usage": False}, env=env)
    try:
        while True:
            result = trainer.train()
            if result["timesteps_total"] > budget:
                return math.inf
            if result["episode_reward_mean"] >= bar:
                return result["timesteps_total"]
    finally:
        trainer.stop()


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(5))
def test_dqn_reaches_the_bar(seed, framework):
    assert steps_to_bar(DQNTrainer, {"n_step": 3, "gamma": 0.95, "framework": framework}, seed) <= BUDGET


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(5))
def test_simple_q_reaches_the_bar(seed):
    assert steps_to_bar(SimpleQTrainer, {}, seed) <= BUDGET


RAINBOW = {
    "num_atoms": 51,
    "v_min": 0.0,
    "v_max": 20.0,
    "noisy": True,
    "exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 0.0, "final_epsilon": 0.0},
    "n_step": 3,
    "gamma": 0.95,
    "final_prioritized_replay_beta": 1.0,
}


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(5))
def test_rainbow_reaches_the_bar(seed):
    assert steps_to_bar(DQNTrainer, RAINBOW, seed) <= BUDGET


@pytest.mark.learning
@pytest.mark.parametrize(
    ("seed", "framework"), [(0, "torch"), (1, "torch"), (2, "torch"), pytest.param(0, "tf", marks=needs_tf)]
)
def test_pqn_reaches_450(seed, framework):
    config = {**get_preset("PQN", "CartPole-v1"), "framework": framework}
    assert steps_to_bar(PQNTrainer, config, seed, 150_000, 450.0) <= 150_000
