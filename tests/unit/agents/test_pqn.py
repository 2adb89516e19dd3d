"""What PQN is asked for and cannot do is answered; what it shares with others is tested with them."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import PQNTrainer
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException

SMALL = {
    "seed": 0, "num_envs_per_worker": 2, "rollout_fragment_length": 10, "train_batch_size": 40, "log_sys_usage": False,
    "sgd_minibatch_size": 20, "model": {"fcnet_hiddens": [8]},
}  # fmt: skip


class Masked(gym.Env):
    action_space = gym.spaces.Discrete(3)
    observation_space = gym.spaces.Dict(
        action_mask=gym.spaces.Box(0, 1, (3,), np.float32), observation=gym.spaces.Box(-1, 1, (2,), np.float32)
    )

    def reset(self, *, seed=None, options=None):
        return {"action_mask": np.ones(3, np.float32), "observation": np.zeros(2, np.float32)}, {}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model": {"use_lstm": True}}, r"model.use_lstm=True: PQN's network has no memory"),
        ({"exploration_config": {"type": "ParameterNoise"}}, "is for DQN and DDPG"),
        ({"sgd_minibatch_size": 100}, "must be at most train_batch_size=40"),
        ({"target_network_update_freq": 500}, "unknown key"),
    ],
)
def test_configs_that_make_no_sense_are_refused(config, said):
    with pytest.raises(ConfigError, match=said):
        PQNTrainer({**SMALL, **config}, env="CartPole-v1")


def test_spaces_that_it_cannot_act_in_are_refused():
    with pytest.raises(UnsupportedSpaceException, match="PQN needs a Discrete action space"):
        PQNTrainer(SMALL, env="Pendulum-v1")
    with pytest.raises(ConfigError, match=r"PQN got observations with an action_mask.*ActionMaskModel"):
        PQNTrainer(SMALL, env=Masked)
