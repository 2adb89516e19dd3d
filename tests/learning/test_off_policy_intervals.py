"""Intervals for a policy's value, by data of another: in 93 of 100 data sets they hold the truth."""

from __future__ import annotations

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from rlframe.agents.pg.pg_policy import PGTorchPolicy
from rlframe.offline.evaluation import LoggedEpisodes, OffPolicySettings, TargetPolicy, evaluate_off_policy
from tests.unit.offline.test_off_policy_evaluation import EVEN, GAMMA, MOVES, OTHER, REWARDS, Table, true_value

pytestmark = pytest.mark.learning
FAST = ("tis", "is", "wis", "dm", "dr")
DIRECTION = np.array([0.3, 0.6, 2.0, 1.2])
DATA_SETS = 100


def table_episodes(seed: int, count: int) -> LoggedEpisodes:
    """Returns episodes of the even policy, with noise of deviation 1 in rewards."""
    rng, steps, lengths = np.random.default_rng(seed), [], []
    for _ in range(count):
        state, taken = 0, 0
        while state < 3:
            action = int(rng.random() < EVEN[state, 1])
            steps.append((state, action))
            taken += 1
            state = int(rng.choice(3, p=MOVES[state, action] / 10)) + 1
        lengths.append(taken)
    states, actions = np.array(steps).T
    rewards = REWARDS[states, actions] + rng.normal(size=len(states))
    obs = np.eye(3, dtype=np.float32)[states]
    return LoggedEpisodes(obs, actions, rewards, np.array(lengths), np.log(EVEN[states, actions]))


def cartpole_episodes(seed: int, count: int, sureness: float) -> LoggedEpisodes:
    """Returns episodes of a policy whose log-odds of going right are linear in what it sees.

    Its stream is another than the environment's: actions drawn by the numbers of initial states would depend on them.
    """
    env, rng = CartPoleVectorEnv(count, max_episode_steps=100_000), np.random.default_rng([seed, 1])
    obs, _ = env.reset(seed=seed)
    running, columns = np.ones(count, bool), []
    while running.any() and len(columns) < 500:
        right = 1.0 / (1.0 + np.exp(-obs.astype(np.float64) @ DIRECTION * sureness))
        actions = (rng.random(count) < right).astype(np.int64)
        columns.append((obs.copy(), actions, np.log(np.where(actions == 1, right, 1.0 - right)), running.copy()))
        obs, _, ended, _, _ = env.step(actions)
        running &= ~ended
    seen, taken, logp, counts = (np.swapaxes(np.array(column), 0, 1) for column in zip(*columns, strict=True))
    lengths = counts.sum(axis=1)
    limit = 500 if running.any() else None
    return LoggedEpisodes(seen[counts], taken[counts], np.ones(counts.sum()), lengths, logp[counts], limit)


def linear_policy(sureness: float) -> PGTorchPolicy:
    spaces = gym.spaces.Box(-5, 5, (4,), np.float32), gym.spaces.Discrete(2)
    policy = PGTorchPolicy(*spaces, {"seed": 0, "model": {"fcnet_hiddens": []}})
    weights = {name: np.zeros_like(array) for name, array in policy.get_weights().items()}
    outputs = next(array for array in weights.values() if array.shape == (2, 4))
    outputs[1] = DIRECTION * sureness
    policy.set_weights(weights)
    return policy


def covered(names, target, truth, data_of):
    """Returns in how many data sets an estimator's interval holds the truth."""
    held = Counter()
    for seed in range(DATA_SETS):
        made = evaluate_off_policy(target, data_of(seed), OffPolicySettings(truth[0], names, seed=seed))
        assert made.refused == {}
        for name, estimate in made.estimates.items():
            held[name] += estimate.value.low <= truth[1] <= estimate.value.high
    return held


@pytest.mark.parametrize("names", [FAST, ("fqe",)])
def test_intervals_hold_the_value_by_dynamic_programming(names):
    held = covered(names, Table(OTHER), (GAMMA, true_value(OTHER)), lambda seed: table_episodes(seed, 100))
    assert all(held[name] >= 93 for name in names), held


@pytest.mark.parametrize("names", [FAST, ("fqe",)])
def test_intervals_hold_the_value_of_roll_outs_on_cartpole(names):
    # By 20,000 roll-outs: the mean of 1,000 would be as uncertain as the intervals are wide.
    truth = float(cartpole_episodes(123, 20_000, 1.2).returns(0.99).mean())
    target = TargetPolicy(linear_policy(1.2), explore=True)
    held = covered(names, target, (0.99, truth), lambda seed: cartpole_episodes(1000 + seed, 200, 1.0))
    assert all(held[name] >= 93 for name in names), held
