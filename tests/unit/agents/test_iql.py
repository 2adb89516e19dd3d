"""IQL: losses by hand, and a policy that prefers the better of what the data show."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.iql import DEFAULT_CONFIG, IQLTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.offline import expectile_loss, limited_weights

SMALL = {key: {**DEFAULT_CONFIG[key], "fcnet_hiddens": [8]} for key in ("Q_model", "policy_model")}
OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
BOX, CHOICES = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)


def test_expectiles_and_weights_by_hand():
    made = expectile_loss(torch.tensor([2.0, -1.0, 0.0]), 0.9)
    np.testing.assert_allclose(made.numpy(), [0.9 * 4, 0.1, 0.0], rtol=1e-6)
    weights = limited_weights(torch.tensor([0.0, 1.0, 1e9, -1e9]), 2.0, 10.0)
    np.testing.assert_allclose(weights.numpy(), [1.0, math.exp(2), 10.0, 0.0], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("space", [BOX, CHOICES], ids=["continuous", "discrete"])
def test_losses_by_hand(space):
    # Networks of zeros but for output biases: Q(s, a) = 2 in target and online network, V = 1.
    policy = IQLTorchPolicy(OBS, space, {**SMALL, "expectile": 0.7, "beta": 0.5})
    values = {"q.output.bias": 2.0, "twin_q.output.bias": 2.0, "value.output.bias": 1.0}
    weights = {name: np.full_like(array, values.get(name, 0.0)) for name, array in policy.get_weights().items()}
    policy.set_weights(weights)
    policy.update_target(1.0)
    actions = np.array([[0.5, -0.5], [0.0, 1.0]], np.float32) if space is BOX else np.array([0, 1])
    batch = {
        "obs": np.ones((2, 3), np.float32),
        "new_obs": np.ones((2, 3), np.float32),
        "actions": actions,
        "rewards": np.array([1.0, 3.0], np.float32),
        "discounts": np.array([0.5, 0.0], np.float32),
    }
    stats = policy.learn_on_batch(SampleBatch(batch))["learner_stats"]
    assert stats["value_loss"] == pytest.approx(0.7)
    assert stats["critic_loss"] == pytest.approx((0.5 * 0.5**2 + 0.5 * 1.0) / 2)  # targets 1.5 and 3
    gaussian = math.log(2 * math.pi) + (0.5 * 0.5 + 0.5 * 1.0) / 2
    assert stats["actor_loss"] == pytest.approx(math.exp(0.5) * (gaussian if space is BOX else math.log(2)))


def test_the_better_action_is_preferred_and_all_are_cloned_without_beta():
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=64)
    batch = SampleBatch(
        {
            "obs": np.ones((64, 3), np.float32),
            "new_obs": np.ones((64, 3), np.float32),
            "actions": actions,
            "rewards": actions.astype(np.float32),
            "discounts": np.zeros(64, np.float32),
        }
    )
    probs = {}
    for beta in (0.0, 10.0):
        rates = {"actor_lr": 1e-2, "critic_lr": 1e-2, "tau": 0.1}
        policy = IQLTorchPolicy(OBS, CHOICES, {**SMALL, **rates, "beta": beta, "seed": 0})
        for _ in range(150):
            policy.learn_on_batch(batch)
            policy.update_target()
        probs[beta] = math.exp(policy.compute_log_likelihoods([1], np.ones((1, 3), np.float32))[0])
    assert probs[0.0] == pytest.approx(actions.mean(), abs=0.02)
    assert probs[10.0] > 0.95


def test_means_stay_within_bounds_and_deviations_depend_on_no_observation():
    policy = IQLTorchPolicy(OBS, BOX, {**SMALL, "seed": 0})
    policy.set_weights({**policy.get_weights(), "actor.output.bias": np.full(2, 50.0, np.float32)})
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    _, _, info = policy.compute_actions(obs, explore=False)
    np.testing.assert_allclose(info["action_dist_inputs"], [[1.0, 1.0, 0.0, 0.0]] * 5, atol=1e-6)
