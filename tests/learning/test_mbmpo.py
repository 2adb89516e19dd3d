"""MBMPO balances poles in models, and then outside of them."""

import numpy as np
import pytest

from rlframe.agents.mbmpo import MBMPOTrainer
from rlframe.examples.env.known_rewards import CartPoleWrapper

#: RLlib's tuned example, with smaller models.
CONFIG = {
    "num_workers": 0,
    "num_envs_per_worker": 20,
    "num_maml_steps": 15,
    "kl_target": 0.003,
    "kl_coeff": 1e-10,
    "clip_actions": False,
    "dynamics_model": {"fcnet_hiddens": [64, 64], "train_epochs": 100, "batch_size": 128},
    "model": {"fcnet_hiddens": [32, 32], "free_log_std": True},
    "log_sys_usage": False,
}


@pytest.mark.learning
def test_poles_are_balanced_within_five_iterations():
    best = []
    for seed in range(3):
        trainer = MBMPOTrainer({**CONFIG, "seed": seed}, env=CartPoleWrapper)
        returns = []
        while len(returns) < 5 and max(returns, default=0) < 190:
            returns.append(trainer.train()["episode_reward_mean"])
        trainer.stop()
        best.append(max(returns))
    assert np.mean(best) >= 190.0, best
