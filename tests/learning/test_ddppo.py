"""RLlib's bars for DD-PPO, whose workers learn side by side from their own rows."""

import pytest

from rlframe.agents.ppo import DDPPOTrainer
from tests.learning.test_dqn_cartpole import steps_to_bar

WORKERS = {"num_workers": 2, "num_cpus_per_worker": 0.5}
PENDULUM = {"observation_filter": "MeanStdFilter", "lambda": 0.1, "entropy_coeff": 0.0}


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
@pytest.mark.parametrize("seed", range(3))
def test_ddppo_reaches_the_bar_on_cartpole(seed):
    assert steps_to_bar(DDPPOTrainer, WORKERS, seed, 100_000) <= 100_000


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
def test_ddppo_reaches_the_bar_on_pendulum():
    config = {**WORKERS, **PENDULUM}
    assert steps_to_bar(DDPPOTrainer, config, 0, 1_000_000, -300, "Pendulum-v1") <= 1_000_000
