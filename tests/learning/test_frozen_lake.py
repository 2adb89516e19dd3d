"""RLlib's bar for APPO on a lake without holes: a reward at the goal only, within a short horizon."""

import pytest

from rlframe.agents.ppo import APPOTrainer
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

APPO = {
    "env_config": {"desc": ["SFFFFFFF", *["FFFFFFFF"] * 6, "FFFFFFFG"], "is_slippery": False},
    "horizon": 20,
    "rollout_fragment_length": 10,
    "batch_mode": "complete_episodes",
    "vtrace_drop_last_ts": False,
    "num_workers": 2,
    "num_envs_per_worker": 5,
    "vf_loss_coeff": 0.01,
    "timesteps_per_iteration": 2000,
    "num_cpus_per_worker": 0.5,
}


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_appo_reaches_the_bar(seed, framework):
    config = {**APPO, "framework": framework}
    assert steps_to_bar(APPOTrainer, config, seed, 1_000_000, 0.99, "FrozenLake-v1") <= 1_000_000
