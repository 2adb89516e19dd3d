"""Dreamer swings the pendulum up after a few thousand steps."""

import pytest

from rlframe.agents.dreamer import DREAMERTrainer

CONFIG = {
    "horizon": 200,
    "prefill_timesteps": 2000,
    "rollout_fragment_length": 100,
    "batch_size": 16,
    "batch_length": 25,
    "imagine_horizon": 12,
    "td_model_lr": 1e-3,
    "actor_lr": 3e-4,
    "critic_lr": 1e-3,
    "discount": 0.97,
    "free_nats": 1.0,
    "dreamer_model": {"deter_size": 64, "stoch_size": 8, "hidden_size": 64},
    "evaluation_num_episodes": 10,
    "evaluation_config": {"explore": False},
    "log_sys_usage": False,
}


@pytest.mark.learning
@pytest.mark.parametrize("seed", [0, 1])
def test_pendulum_after_7800_frames(seed):
    """Each action is done twice, so there are 3,900 of them; random ones have a return of −1,200."""
    trainer = DREAMERTrainer({**CONFIG, "seed": seed}, env="Pendulum-v1")
    while trainer.train()["timesteps_total"] < 3900:
        pass
    found = trainer.evaluate()["evaluation"]["episode_reward_mean"]
    trainer.stop()
    assert found >= -300
