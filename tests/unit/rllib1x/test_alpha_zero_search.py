"""RLlib's search of AlphaZero, for copies of its policy: on a game whose values are known, and within a copy's loop."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlframe.contrib.alpha_zero.core.mcts import MCTS, Node, RootParentNode
from rlframe.contrib.alpha_zero.core.ranked_rewards import RankedRewardsBuffer, get_r2_env_wrapper
from rlframe.examples.env.cartpole_of_states import CartPoleOfStates

OPTIONS = {
    "temperature": 1.0, "dirichlet_epsilon": 0.25, "dirichlet_noise": 0.3, "num_simulations": 40,
    "argmax_tree_policy": True, "add_dirichlet_noise": False, "puct_coefficient": 1.0,
}  # fmt: skip


class Choices:
    """Two choices of three; the sum of their numbers is paid at the end. 0 is forbidden at first. Old contract."""

    action_space = gym.spaces.Discrete(3)
    observation_space = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(3)})

    def reset(self):
        self.chosen = ()
        return self.seen()

    def seen(self):
        return {"action_mask": np.array([len(self.chosen) > 0, 1, 1])}

    def step(self, action):
        self.chosen += (int(action),)
        done = len(self.chosen) == 2
        return self.seen(), float(sum(self.chosen)) / 4 if done else 0.0, done, {}

    def get_state(self):
        return self.chosen

    def set_state(self, state):
        self.chosen = state
        return self.seen()


class Uniform:
    def compute_priors_and_value(self, obs):
        mask = obs["action_mask"]
        return mask / mask.sum(), 0.0


def root_of(env, search):
    obs = env.reset()
    return Node(None, obs, False, 0, env.get_state(), search, RootParentNode(env))


def test_the_best_choices_are_found_and_visits_are_counted():
    search = MCTS(Uniform(), OPTIONS)
    root = root_of(Choices(), search)
    policy, action, child = search.compute_action(root)
    assert action == 2
    assert policy[0] == 0
    assert policy.sum() == pytest.approx(1)
    assert root.number_visits == 40
    assert root.child_number_visits.sum() == 39
    assert child.parent is root
    assert search.compute_action(child)[1] == 2
    assert child.children[2].done
    assert child.children[2].reward == 1.0


def test_scores_by_hand():
    search = MCTS(Uniform(), {**OPTIONS, "puct_coefficient": 2.0})
    root = root_of(Choices(), search)
    root.expand(np.array([0.5, 0.3, 0.2]))
    for value in (1.0, 0.0, 0.5):
        root.get_child(1).backup(value)
    assert root.child_Q().tolist() == pytest.approx([0, 1.5 / 4, 0])
    assert root.child_U().tolist() == pytest.approx([3**0.5 * 0.5, 3**0.5 * 0.3 / 4, 3**0.5 * 0.2])
    assert root.best_action() == 2


def test_noise_and_draws_keep_to_what_is_allowed():
    search = MCTS(Uniform(), {**OPTIONS, "add_dirichlet_noise": True, "argmax_tree_policy": False})
    assert {search.compute_action(root_of(Choices(), search))[1] for _ in range(10)} <= {1, 2}


@pytest.mark.parametrize("env", [lambda config: Choices(), CartPoleOfStates])
def test_ranked_rewards_are_the_search_alone(env):
    options = {"buffer_max_length": 4, "percentile": 50, "initialize_buffer": True, "num_init_rewards": 6}
    ranked = get_r2_env_wrapper(env, options)({})
    assert len(ranked.r2_buffer.buffer) == 4
    ranked.reset()
    ranked.set_state({"env_state": ranked.env.get_state(), "buffer_state": [0.0, 0.0, 1000.0, 1000.0]})
    rewards = [0.0]
    while rewards[-1] == 0:
        _, reward, over, _ = ranked.step(1)
        rewards.append(reward)
    assert over
    assert rewards[-1] == -1.0
    kept = RankedRewardsBuffer(2, 50)
    for reward in (3.0, 1.0, 2.0):
        kept.add_reward(reward)
    assert kept.get_state().tolist() == [1.0, 2.0]
    assert (kept.normalize(1.5), kept.normalize(1.4)) == (1.0, -1.0)
