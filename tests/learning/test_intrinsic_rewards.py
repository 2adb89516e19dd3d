"""A reward in the far corner alone: PPO does not find it, and does with Curiosity, RND or RE3."""

import gymnasium
import pytest

from rlframe.agents.ppo import PPOTrainer
from tests.helpers.frameworks import FRAMEWORKS

PPO = {
    "num_workers": 0, "min_iter_time_s": 0, "lr": 1e-3, "lambda": 0.95, "rollout_fragment_length": 100,
    "num_envs_per_worker": 10, "train_batch_size": 1000, "sgd_minibatch_size": 250, "num_sgd_iter": 8,
    "model": {"fcnet_hiddens": [64]},
}  # fmt: skip
SAMPLING = {"type": "StochasticSampling"}
SMALL = {"fcnet_hiddens": [64]}
CURIOSITY = {
    "type": "Curiosity", "eta": 0.2, "lr": 1e-3, "feature_dim": 64, "feature_net_config": {"fcnet_hiddens": []},
    "inverse_net_hiddens": [64], "forward_net_hiddens": [64], "sub_exploration": SAMPLING,
}  # fmt: skip

RND = {"type": "RND", "eta": 0.1, "lr": 1e-3, "embed_dim": 32, "net_config": SMALL, "sub_exploration": SAMPLING}
RE3 = {"type": "RE3", "beta": 0.1, "embeds_dim": 32, "encoder_net_config": SMALL, "sub_exploration": SAMPLING}


class Grid(gymnasium.Env):
    """10×10 cells, 20 steps, of which 18 lead from one corner to the other at best; a reward of 1 there, else none."""

    size = 10

    def __init__(self, _config):
        self.observation_space = gymnasium.spaces.Discrete(self.size**2)
        self.action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.y = self.steps = 0
        return 0, {}

    def step(self, action):
        dx, dy = [(1, 0), (0, 1), (-1, 0), (0, -1)][int(action)]
        self.x, self.y = (min(max(place, 0), self.size - 1) for place in (self.x + dx, self.y + dy))
        self.steps += 1
        there = self.x == self.y == self.size - 1
        return self.x * self.size + self.y, float(there), there, self.steps >= 2 * self.size, {}


def best_return(seed, **config):
    """Returns the highest mean return within 100,000 env steps; stops above 0.8."""
    trainer, best = PPOTrainer({**PPO, "seed": seed, **config}, env=Grid), 0.0
    while best < 0.8:
        result = trainer.train()
        best = max(best, result["episode_reward_mean"])
        if result["timesteps_total"] >= 100_000:
            break
    return best


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(3))
def test_ppo_alone_does_not_find_the_reward(seed):
    assert best_return(seed) < 0.1


@pytest.mark.learning
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_ppo_with_curiosity_does(seed, framework):
    assert best_return(seed, framework=framework, exploration_config=CURIOSITY) >= 0.8


@pytest.mark.learning
@pytest.mark.parametrize("exploration", [RND, RE3], ids=["RND", "RE3"])
@pytest.mark.parametrize("seed", range(2))
def test_ppo_with_other_rewards_of_its_own_does(seed, exploration):
    assert best_return(seed, exploration_config=exploration) >= 0.8
