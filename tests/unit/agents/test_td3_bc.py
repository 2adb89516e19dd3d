"""TD3+BC and ReBRAC's options: losses by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.ddpg import TD3BCTorchPolicy
from rlframe.agents.ddpg.td3_bc import TD3BCConfig
from rlframe.config.merge import merge_configs
from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.errors import ConfigError

OBS, BOX = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)
ROWS = {
    "obs": np.ones((2, 3), np.float32),
    "new_obs": np.ones((2, 3), np.float32),
    "actions": np.array([[0.5, -0.5], [0.0, 1.0]], np.float32),
    "rewards": np.array([1.0, 3.0], np.float32),
    "discounts": np.array([0.5, 0.5], np.float32),
}
NEXT = {
    "next_actions": np.array([[1.0, 0.0], [1.0, 1.0]], np.float32),
    "next_actions_known": np.array([1.0, 0.0], np.float32),
}


def first_losses(batch, **config):
    """Returns the statistics of a step with networks of zeros but for Q(s, a) = 4."""
    small = {"actor_hiddens": [8], "critic_hiddens": [8], "smooth_target_policy": False}
    policy = TD3BCTorchPolicy(OBS, BOX, {**small, **config})
    weights = policy.get_weights()
    biases = {"q.output.bias": 4.0, "twin_q.output.bias": 4.0}
    policy.set_weights({name: np.full_like(array, biases.get(name, 0.0)) for name, array in weights.items()})
    policy.update_target(1.0)
    return policy.learn_on_batch(SampleBatch(batch))["learner_stats"]


def test_the_actor_s_loss_by_hand():
    stats = first_losses(ROWS, value_weight=2.0, actor_bc_weight=3.0)
    assert stats["actor_loss"] == pytest.approx(3.0 * (0.25 + 0.5) / 2 - 2.0)  # the value is its own mean size
    assert stats["critic_loss"] == pytest.approx(2 * (0.5 * 1.0 + 0.5 * 1.0) / 2)  # targets 3 and 5


def test_next_actions_far_from_the_data_s_lower_targets_where_the_data_have_them():
    stats = first_losses({**ROWS, **NEXT}, critic_bc_weight=2.0)
    # 1 + 0.5 (4 - 2 * 0.5) = 2.5 and 3 + 0.5 * 4 = 5.
    assert stats["critic_loss"] == pytest.approx(2 * (0.5 * 1.5**2 + 0.5 * 1.0) / 2)


def test_rows_that_lack_next_actions_are_completed_in_their_order():
    rows = {**ROWS, "new_obs": np.array([[1.0] * 3, [0.0] * 3], np.float32)}
    stats = first_losses(rows, critic_bc_weight=2.0)
    # The second row's action (0, 1) is half away from (0, 0): the target is 1 + 0.5 (4 - 2 * 0.5).
    assert stats["critic_loss"] == pytest.approx(2 * (0.5 * 1.5**2 + 0.5 * 1.0) / 2)


def test_critics_are_normalised_where_that_is_asked_for():
    names = TD3BCTorchPolicy(OBS, BOX, {"critic_layer_norm": True}).get_weights()
    assert "q.hidden_0_norm.weight" in names
    assert "actor.hidden_0_norm.weight" not in names


def test_summed_rewards_have_no_next_action_to_compare():
    with pytest.raises(ConfigError, match=r"critic_bc_weight=0\.5 compares"):
        merge_configs(TD3BCConfig.defaults(), {"critic_bc_weight": 0.5, "n_step": 3}, TD3BCConfig)
