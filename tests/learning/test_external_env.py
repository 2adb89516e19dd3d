"""DQN learns from a simulator that asks for actions."""

import pytest

from rlframe.agents.dqn import DQNTrainer
from tests.helpers.external_envs import ExternalCartPole

pytestmark = pytest.mark.learning


def test_dqn_learns_through_an_external_environment():
    """RLlib's bar is 80 in 50 iterations."""
    config = {"num_workers": 0, "seed": 0, "min_iter_time_s": 0, "exploration_config": {"epsilon_timesteps": 5000},
              "model": {"fcnet_hiddens": [64], "fcnet_activation": "linear"}, "n_step": 3}  # fmt: skip
    trainer = DQNTrainer(config, env=ExternalCartPole)
    best, steps = 0.0, 0
    while best < 100 and steps < 50_000:
        result = trainer.train()
        best, steps = max(best, result["episode_reward_mean"]), result["timesteps_total"]
    trainer.stop()
    print(f"DQN through ExternalEnv: {best:.1f} after {steps} env steps")  # noqa: T201 - shown when it fails
    assert best >= 100
