"""What data say of a policy's return: hand-worked numbers, and the behaviour policy itself."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.pg.pg_policy import PGTorchPolicy
from rlframe.config.renames import translate_renames
from rlframe.data.sample_batch import SampleBatch
from rlframe.offline.estimators import ImportanceSamplingEstimator, WeightedImportanceSamplingEstimator

SPACES = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)


def uniform() -> PGTorchPolicy:
    """Returns a policy that takes both actions alike."""
    policy = PGTorchPolicy(*SPACES, {"model": {"fcnet_hiddens": [4]}})
    policy.set_weights({name: np.zeros_like(array) for name, array in policy.get_weights().items()})
    return policy


def episodes(*probabilities: list[float]) -> SampleBatch:
    """Returns episodes of rewards 1, 2, ... with the given probabilities of their actions."""
    parts = [
        SampleBatch(
            {
                "obs": np.zeros((len(given), 2), np.float32),
                "actions": np.zeros(len(given), np.int64),
                "rewards": np.arange(1.0, len(given) + 1).astype(np.float32),
                "dones": np.arange(len(given)) == len(given) - 1,
                "action_prob": np.array(given, np.float32),
            }
        )
        for given in probabilities
    ]
    return SampleBatch.concat_samples(parts)


def metrics_of(estimator_class, batch, policy=None, gamma=0.5):
    estimator = estimator_class(policy or uniform(), gamma)
    estimator.process(batch)
    made = [estimate.metrics for estimate in estimator.get_metrics()]
    assert estimator.get_metrics() == []
    return made


def test_importance_sampling_by_hand():
    # Both actions have 1/2: ratios 2, 2 * 1 and 1/2, 1/2 * 2; rewards 1 and 2 with gamma 1/2 are 1 and 1.
    one, other = metrics_of(ImportanceSamplingEstimator, episodes([0.25, 0.5], [1.0, 0.25]))
    assert one == pytest.approx({"V_prev": 2.0, "V_step_IS": 2.0 + 2.0, "V_gain_est": 2.0})
    assert other == pytest.approx({"V_prev": 2.0, "V_step_IS": 0.5 + 1.0, "V_gain_est": 0.75})


def test_weighted_importance_sampling_by_hand():
    # Means over the episodes so far: 2 and 2, then (2 + 1/2) / 2 and (2 + 1) / 2.
    one, other = metrics_of(WeightedImportanceSamplingEstimator, episodes([0.25, 0.5], [1.0, 0.25]))
    assert one == pytest.approx({"V_prev": 2.0, "V_step_WIS": 2.0, "V_gain_est": 1.0})
    assert other == pytest.approx({"V_prev": 2.0, "V_step_WIS": 0.5 / 1.25 + 1.0 / 1.5, "V_gain_est": 16 / 30})


@pytest.mark.parametrize("estimator_class", [ImportanceSamplingEstimator, WeightedImportanceSamplingEstimator])
def test_the_behaviour_policy_gains_nothing(estimator_class):
    policy = PGTorchPolicy(*SPACES, {"seed": 0, "model": {"fcnet_hiddens": [4]}})
    rng = np.random.default_rng(0)
    obs, actions = rng.normal(size=(6, 2)).astype(np.float32), rng.integers(2, size=6)
    batch = SampleBatch(
        {
            "obs": obs,
            "actions": actions,
            "rewards": np.ones(6, np.float32),
            "dones": np.arange(6) % 3 == 2,
            "action_logp": policy.compute_log_likelihoods(actions, obs),
        }
    )
    for made in metrics_of(estimator_class, batch, policy):
        assert made["V_prev"] == pytest.approx(1.75)
        assert made["V_gain_est"] == pytest.approx(1.0, rel=1e-6)


def test_the_mean_of_many_estimates_is_the_return():
    # A bandit whose arms pay 0 and 1: the uniform policy is worth 1/2, whatever the data's policy did.
    rng = np.random.default_rng(0)
    actions = (rng.random(4000) < 0.8).astype(np.int64)
    batch = SampleBatch(
        {
            "obs": np.zeros((4000, 2), np.float32),
            "actions": actions,
            "rewards": actions.astype(np.float32),
            "dones": np.ones(4000, bool),
            "action_prob": np.where(actions, 0.8, 0.2).astype(np.float32),
        }
    )
    values = [made["V_step_IS"] for made in metrics_of(ImportanceSamplingEstimator, batch)]
    assert np.mean(values) == pytest.approx(0.5, abs=4 * np.std(values) / np.sqrt(4000))


def test_sums_of_rewards_are_told():
    batch = episodes([0.5, 0.5])
    batch["n_steps"] = np.array([2, 1])
    with pytest.raises(ValueError, match="sums of several rewards"):
        metrics_of(ImportanceSamplingEstimator, batch)


def test_data_without_probabilities_are_told():
    batch = episodes([0.5])
    del batch["action_prob"]
    with pytest.raises(ValueError, match="without action_prob"):
        metrics_of(ImportanceSamplingEstimator, batch)
    with pytest.raises(ValueError, match="several policies"):
        metrics_of(ImportanceSamplingEstimator, batch.as_multi_agent())


def test_names_of_later_rllib_are_taken_or_answered():
    from rlframe.offline import estimators

    assert estimators.ImportanceSampling is ImportanceSamplingEstimator
    assert estimators.WeightedImportanceSampling is WeightedImportanceSamplingEstimator
    with pytest.raises(ImportError, match="evaluate_off_policy"):
        from rlframe.offline.estimators import DoublyRobust  # noqa: F401
    later = {"off_policy_estimation_methods": {"is": {"type": "ImportanceSampling"}}}
    config, (said,) = translate_renames(later, ["input_evaluation"])
    assert "input_evaluation" in said
    assert config["input_evaluation"] == ["is"]
