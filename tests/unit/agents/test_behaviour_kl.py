"""What holds IMPALA and APPO near the policies that acted: the divergence is measured, and pulls where rows are old."""

import numpy as np
import pytest

from rlframe.agents.impala import ImpalaTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.errors import ConfigError
from tests.contract.test_policies import make
from tests.helpers import loss_oracle as reference
from tests.helpers.frameworks import TORCH_FIRST

torch_first = pytest.mark.parametrize("framework", TORCH_FIRST)
every_policy = pytest.mark.parametrize("name", ["IMPALA", "APPO"])
CONFIG = {"entropy_coeff": 0.0, "vf_loss_coeff": 0.0, "lr": 0.01}


def rows(policy, rewards, count=32, seed=0):
    """Episodes of one step each, sampled by the policy as it is."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(count, *policy.observation_space.shape)).astype(np.float32)
    actions, _, extras = policy.compute_actions(obs)
    return SampleBatch(
        {
            "obs": obs,
            "actions": actions,
            "action_logp": extras["action_logp"],
            "rewards": np.broadcast_to(np.float32(rewards), count).copy(),
            "discounts": np.zeros(count, np.float32),
            "trajectory_ends": np.ones(count, bool),
            "values_after": np.zeros(count, np.float32),
        }
    )


def elsewhere(batch, seed=1):
    """The same rows as if other policies had acted: each action's probability there is another one."""
    shift = np.random.default_rng(seed).uniform(-1.5, 0.5, len(batch["action_logp"])).astype(np.float32)
    return SampleBatch({**batch, "action_logp": np.minimum(batch["action_logp"] + shift, -1e-3)})


def logp_of(policy, batch):
    return policy.compute_log_likelihoods(batch["actions"], batch["obs"])


@torch_first
@every_policy
def test_divergence_is_reported_as_the_oracle_has_it(framework, name):
    policy = make(framework, name, CONFIG)
    batch = elsewhere(rows(policy, 1.0))
    wanted = reference.sampled_kl(logp_of(policy, batch), batch["action_logp"]).mean()
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert wanted > 0.05
    assert float(stats["behaviour_kl"]) == pytest.approx(wanted, rel=1e-4)


@torch_first
@every_policy
def test_rows_of_the_same_policy_are_not_pulled(framework, name):
    free, held = (make(framework, name, {**CONFIG, "behaviour_kl_coeff": coeff}) for coeff in (0.0, 5.0))
    held.set_weights(free.get_weights())
    batch = rows(free, np.arange(32.0))
    losses = [float(policy.learn_on_batch(batch)["learner_stats"]["total_loss"]) for policy in (free, held)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    for key, weights in free.get_weights().items():
        np.testing.assert_allclose(held.get_weights()[key], weights, atol=2e-4, err_msg=key)


@torch_first
@every_policy
def test_old_rows_pull_the_policy_back(framework, name):
    """Nothing is to be had but nearness: values do not learn, and rewards are what they predict, 0."""
    far = {}
    for coeff in (0.0, 1.0):
        policy = make(framework, name, {**CONFIG, "behaviour_kl_coeff": coeff, "scale_advantages": False})
        batch = rows(policy, 0.0, count=256)
        moved = {key: weights + 0.3 * np.sin(np.arange(weights.size, dtype=np.float32)).reshape(weights.shape)
                 for key, weights in policy.get_weights().items() if "value" not in key}  # fmt: skip
        policy.set_weights({**policy.get_weights(), **moved})
        before = reference.sampled_kl(logp_of(policy, batch), batch["action_logp"]).mean()
        for _ in range(40):
            policy.learn_on_batch(batch)
        far[coeff] = reference.sampled_kl(logp_of(policy, batch), batch["action_logp"]).mean() / before
    assert far[1.0] < 0.2
    assert far[0.0] > 0.4


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"behaviour_kl_coeff": -0.5}, "behaviour_kl_coeff.*-0.5"),
        ({"vtrace": False, "behaviour_kl_coeff": 0.1}, "behaviour_kl_coeff=0.1 needs vtrace=True"),
        ({"behavior_kl_coeff": 0.1}, "behaviour_kl_coeff"),
    ],
)
def test_bad_weights_are_refused(config, words):
    with pytest.raises(ConfigError, match=words):
        ImpalaTrainer({"num_workers": 0, **config}, env="CartPole-v1")
