"""Whatever the action space: what environments, users and learners get of an action."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rlframe.agents.ppo import PPOTrainer
from rlframe.utils.spaces.simplex import Simplex
from tests.helpers.frameworks import cases

SPACES = {
    "discrete from 5": Discrete(3, start=5),
    "multi-discrete": MultiDiscrete([2, 3]),
    "multi-binary": MultiBinary(3),
    "bounded": Box(-2, 3, (2,), np.float32),
    "unbounded": Box(-np.inf, np.inf, (2,), np.float32),
    "integers": Box(0, 255, (2,), np.uint8),
    "simplex": Simplex((3,)),
    "tuple": Tuple([Discrete(2, start=1), Box(0, 9, (2,), np.float32)]),
    "nested": Dict({"b": Discrete(2), "a": Tuple([MultiDiscrete([2, 2]), Box(0, 1, (1,), np.float32)])}),
}


class Strict(gym.Env):
    """Takes only actions of its space, and keeps the last one."""

    def __init__(self, config):
        self.observation_space, self.action_space = Box(-1, 1, (3,), np.float32), config["space"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, self.steps >= 7, False, {}


def trainer(framework, space, **overrides):
    config = {
        "framework": framework, "env_config": {"space": space}, "num_workers": 0, "num_envs_per_worker": 2, "seed": 0,
        "rollout_fragment_length": 10, "train_batch_size": 20, "sgd_minibatch_size": 10, "num_sgd_iter": 1,
        "model": {"fcnet_hiddens": [8], "use_lstm": True, "lstm_use_prev_action": True, "lstm_cell_size": 4},
        "min_iter_time_s": 0, "log_sys_usage": False, **overrides,
    }  # fmt: skip
    return PPOTrainer(config, env=Strict)


@cases(["name"], {name: name for name in SPACES}, in_tensorflow=["nested"])
def test_actions_are_in_the_environments_space_everywhere(framework, name):
    space = SPACES[name]
    made = trainer(framework, space)
    made.train()
    actor, obs = made.make_actor(), np.zeros(3, np.float32)
    actor.reset()
    for _ in range(3):
        assert space.contains(actor.act(obs))
    assert space.contains(made.compute_single_action(obs))
    batch = made.workers.local_worker().sample()
    # What the LSTM was given as last action is what was stored as action the step before.
    follows = (batch["t"][1:] > 0) & (batch["eps_id"][1:] == batch["eps_id"][:-1])
    np.testing.assert_array_equal(batch["prev_actions"][1:][follows], batch["actions"][:-1][follows])


@pytest.mark.parametrize("name", ["tuple", "nested"])
def test_nested_actions_resume_exactly(name, tmp_path):
    one = trainer("torch", SPACES[name])
    one.train()
    path = one.save(str(tmp_path))
    expected = one.train()["hist_stats"]
    other = trainer("torch", SPACES[name], seed=7)
    other.restore(path)
    assert other.train()["hist_stats"] == expected
    for mine, theirs in zip(
        one.get_policy().get_weights().items(), other.get_policy().get_weights().items(), strict=True
    ):
        np.testing.assert_array_equal(mine[1], theirs[1], err_msg=mine[0])


@pytest.mark.parametrize("space", [Discrete(3, start=-2), MultiDiscrete([3, 2], start=[10, -1])], ids=str)
def test_likelihoods_of_actions_that_count_from_elsewhere(space):
    policy = trainer("torch", space, model={"fcnet_hiddens": [8]}).get_policy()
    obs = np.ones((1, 3), np.float32)
    own = np.zeros((1, *space.shape), np.int64)
    theirs = np.asarray(space.start)[None]
    wanted = policy.compute_log_likelihoods(own, obs)
    np.testing.assert_array_equal(policy.compute_log_likelihoods(theirs, obs, actions_normalized=False), wanted)


@pytest.mark.parametrize("name", ["tuple", "nested"])
def test_likelihoods_of_nested_actions_are_those_that_acting_gave(name):
    policy = trainer("torch", SPACES[name], model={"fcnet_hiddens": [8]}).get_policy()
    obs = np.ones((4, 3), np.float32)
    actions, _, extra = policy.compute_actions(obs)
    np.testing.assert_allclose(policy.compute_log_likelihoods(actions, obs), extra["action_logp"], rtol=1e-4)
