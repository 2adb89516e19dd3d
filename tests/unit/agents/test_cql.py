"""CQL: the penalty by hand, and the phase of cloning."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.sac import CQL_DEFAULT_CONFIG, CQLTorchPolicy, SACTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.offline import conservative_penalty

SMALL = {"Q_model": {**CQL_DEFAULT_CONFIG["Q_model"], "fcnet_hiddens": [8]},
         "policy_model": {**CQL_DEFAULT_CONFIG["policy_model"], "fcnet_hiddens": [8]}}  # fmt: skip
OBS, BOX = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-1, 1, (1,), np.float32)


def make_batch(rows: int = 8, seed: int = 0, discrete: bool = False) -> SampleBatch:
    rng = np.random.default_rng(seed)
    return SampleBatch(
        {
            "obs": rng.normal(size=(rows, 3)).astype(np.float32),
            "new_obs": rng.normal(size=(rows, 3)).astype(np.float32),
            "actions": rng.integers(2, size=rows) if discrete else rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "discounts": rng.uniform(size=rows).astype(np.float32),
        }
    )


def test_the_penalty_by_hand():
    compared = torch.tensor([[0.0, 4.0], [2.0, 4.0]])
    taken = torch.tensor([1.0, 4.0])
    made = conservative_penalty(compared, taken, 2.0)
    expected = [2 * math.log(math.exp(0) + math.exp(1)) - 1, 2 * math.log(2 * math.exp(2)) - 4]
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-6)


def test_values_that_are_all_alike_cost_the_number_of_actions():
    # Discrete: T log sum exp(0 / T) - 0 = T log 2, in the mean over two critics.
    policy = CQLTorchPolicy(OBS, gym.spaces.Discrete(2), {**SMALL, "temperature": 3.0, "min_q_weight": 0.5})
    policy.set_weights({name: np.zeros_like(array) for name, array in policy.get_weights().items()})
    stats = policy.learn_on_batch(make_batch(discrete=True))["learner_stats"]
    assert stats["cql_loss"] == pytest.approx(0.5 * 3.0 * math.log(2), rel=1e-6)


class SACOfRewardsAlone(SACTorchPolicy):
    """SAC as CQL has it: no entropy in targets, whole squares."""

    def entropy_bonus(self, alpha, log_probs):
        return 0.0 * log_probs

    def critic_loss(self, values, targets, weights, mean=torch.mean):
        loss, td_error = super().critic_loss(values, targets, weights, mean)
        return 2.0 * loss, td_error


@pytest.mark.parametrize("space", [BOX, gym.spaces.Discrete(2)], ids=["continuous", "discrete"])
def test_without_penalty_and_cloning_it_is_sac_of_rewards_alone(space):
    one = CQLTorchPolicy(OBS, space, {**SMALL, "min_q_weight": 0.0, "bc_iters": 0, "seed": 0})
    other = SACOfRewardsAlone(OBS, space, {**SMALL, "seed": 0, "_deterministic_loss": True, "use_huber": False})
    one.config["_deterministic_loss"] = True
    other.set_weights(one.get_weights())
    for step in range(3):
        batch = make_batch(seed=step, discrete=space is not BOX)
        for policy in (one, other):
            policy.learn_on_batch(batch.copy())
    theirs = other.get_weights()
    for name, array in one.get_weights().items():
        np.testing.assert_allclose(array, theirs[name], atol=1e-6, err_msg=name)


def test_the_actor_clones_first_and_that_is_remembered():
    policy = CQLTorchPolicy(OBS, BOX, {**SMALL, "bc_iters": 2, "seed": 0})
    assert policy.cloning == 1.0
    policy.learn_on_batch(make_batch())
    state = policy.get_state()
    policy.learn_on_batch(make_batch())
    assert policy.cloning == 0.0
    again = CQLTorchPolicy(OBS, BOX, {**SMALL, "bc_iters": 2, "seed": 1})
    again.set_state(state)
    assert again.cloning == 1.0
    again.learn_on_batch(make_batch())
    assert again.cloning == 0.0


def test_the_multiplier_grows_while_the_penalty_is_above_its_threshold():
    for threshold, grows in ((-100.0, True), (100.0, False)):
        config = {**SMALL, "lagrangian": True, "lagrangian_thresh": threshold, "seed": 0}
        policy = CQLTorchPolicy(OBS, BOX, config)
        for _ in range(3):
            stats = policy.learn_on_batch(make_batch())["learner_stats"]
        assert (stats["alpha_prime_value"] > 1.0) is grows


def test_targets_value_a_drawn_action_or_the_mean_one():
    for mean in (False, True):
        policy = CQLTorchPolicy(OBS, BOX, {**SMALL, "mean_target_actions": mean, "num_actions": 2, "seed": 0})
        drawn = policy.random_columns(4, np.random.default_rng(0))
        assert (not drawn["next_action_noise"].any()) is mean
        assert drawn["action_noise"].any()
