"""MAML balances poles on carts of any mass."""

import numpy as np
import pytest

from rlframe.agents.maml import MAMLTrainer
from rlframe.examples.env.cartpole_mass import CartPoleMassEnv

CONFIG = {
    "num_workers": 3,
    "horizon": 200,
    "rollout_fragment_length": 1000,
    "lambda": 0.95,
    "lr": 0.003,
    "vf_loss_coeff": 0.01,
    "vf_clip_param": 1000.0,
    "model": {"fcnet_hiddens": [32, 32]},
    "log_sys_usage": False,
}


@pytest.mark.learning
@pytest.mark.ray
def test_carts_of_any_mass_are_balanced_within_65k_steps(ray_runtime):
    last = []
    for seed in range(3):
        trainer = MAMLTrainer({**CONFIG, "seed": seed}, env=CartPoleMassEnv)
        steps, adapted = 0, []
        while steps < 65_000:
            result = trainer.train()
            steps = result["timesteps_total"]
            adapted.append(result["episode_reward_mean_adapt_1"])
        trainer.stop()
        last.append(np.mean(adapted[-3:]))
    assert np.mean(last) >= 150.0, last
