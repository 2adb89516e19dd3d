"""RLlib's bar for APPO on a lake without holes: a reward at the goal only, to be reached within 20 steps."""

import gymnasium
import pytest

from rlframe.agents.ppo import APPOTrainer
from tests.helpers.frameworks import FRAMEWORKS
from tests.learning.test_dqn_cartpole import steps_to_bar

NO_HOLES = ["SFFFFFFF", *["FFFFFFFF"] * 6, "FFFFFFFG"]
APPO = {
    "rollout_fragment_length": 10,
    "batch_mode": "complete_episodes",
    "vtrace_drop_last_ts": False,
    "num_workers": 2,
    "num_envs_per_worker": 5,
    "vf_loss_coeff": 0.01,
    "timesteps_per_iteration": 2000,
    "num_cpus_per_worker": 0.5,
}


class LakeOfTwentySteps(gymnasium.Wrapper):
    """The lake, whose 20th step terminates.

    RLlib stored a `horizon` as such an end, with nothing to come. Here values bootstrap where a horizon cuts, so that
    being late costs nothing; RLlib's task is this one.
    """

    def __init__(self, _config):
        super().__init__(gymnasium.make("FrozenLake-v1", desc=NO_HOLES, is_slippery=False))
        self.steps = 0

    def reset(self, **options):
        self.steps = 0
        return super().reset(**options)

    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        self.steps += 1
        return obs, reward, terminated or self.steps >= 20, False, info


@pytest.mark.ray
@pytest.mark.learning
@pytest.mark.usefixtures("ray_runtime")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_appo_reaches_the_bar(seed, framework):
    config = {**APPO, "framework": framework}
    assert steps_to_bar(APPOTrainer, config, seed, 1_000_000, 0.99, LakeOfTwentySteps) <= 1_000_000
