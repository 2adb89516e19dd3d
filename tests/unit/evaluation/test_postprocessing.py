"""RLlib's postprocessing functions, on numbers worked by hand and against the oracle."""

from types import SimpleNamespace

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.evaluation.postprocessing import (
    Postprocessing,
    adjust_nstep,
    compute_advantages,
    compute_gae_for_sample_batch,
)
from tests.helpers import loss_oracle as reference


def rollout(**columns: object) -> SampleBatch:
    batch = SampleBatch(
        {
            "obs": np.arange(4.0, dtype=np.float32),
            "new_obs": np.arange(1.0, 5.0, dtype=np.float32),
            "rewards": np.ones(4, np.float32),
            "vf_preds": np.array([1, 2, 3, 4], np.float32),
            "terminateds": np.zeros(4, bool),
            "truncateds": np.zeros(4, bool),
            "eps_id": np.zeros(4, np.int64),
            "t": np.arange(4),
        }
    )
    batch.update(columns)
    return batch


def policy(**config: object) -> SimpleNamespace:
    return SimpleNamespace(
        config={"gamma": 0.5, "lambda": 0.5, **config}, values_after=lambda batch, rows: batch["new_obs"][rows] * 10
    )


def test_adjust_nstep_is_in_place():
    batch = rollout()
    adjust_nstep(2, 0.5, batch)
    assert batch["rewards"].tolist() == [1.5, 1.5, 1.5, 1.0]


def test_compute_advantages_gae_by_hand():
    batch = SampleBatch({"rewards": np.array([1.0, 2.0]), "vf_preds": np.array([2.0, 3.0])})
    assert compute_advantages(batch, last_r=4.0, gamma=0.5, lambda_=0.5) is batch
    # delta = (1 + 1.5 - 2, 2 + 2 - 3).
    assert batch[Postprocessing.ADVANTAGES].tolist() == [0.75, 1.0]
    assert batch[Postprocessing.VALUE_TARGETS].tolist() == [2.75, 4.0]
    assert batch["advantages"].dtype == np.float32


def test_compute_advantages_returns_with_and_without_critic():
    batch = SampleBatch({"rewards": np.array([1.0, 2.0]), "vf_preds": np.array([2.0, 3.0])})
    compute_advantages(batch, 4.0, gamma=0.5, use_gae=False)
    assert batch["value_targets"].tolist() == [3.0, 4.0]
    assert batch["advantages"].tolist() == [1.0, 1.0]
    compute_advantages(batch, 4.0, gamma=0.5, use_gae=False, use_critic=False)
    assert batch["advantages"].tolist() == [3.0, 4.0]
    assert batch["value_targets"].tolist() == [0.0, 0.0]


def test_compute_advantages_of_returns_without_values_are_the_returns():
    batch = SampleBatch({"rewards": np.array([1.0, 2.0])})
    compute_advantages(batch, 4.0, gamma=0.5, use_gae=False)
    assert batch["advantages"].tolist() == [3.0, 4.0]
    assert batch["value_targets"].tolist() == [0.0, 0.0]


def test_compute_advantages_impossible_wishes_say_why():
    with pytest.raises(ValueError, match="use_critic=False"):
        compute_advantages(rollout(), 0.0, use_critic=False)
    with pytest.raises(ValueError, match="vf_preds"):
        compute_advantages(SampleBatch({"rewards": np.ones(2)}), 0.0)


def test_compute_gae_bootstraps_cut_and_truncated_but_not_terminated_ends():
    batch = rollout(
        terminateds=np.array([False, True, False, False]),
        truncateds=np.array([False, False, True, False]),
        eps_id=np.array([0, 0, 1, 2]),
        t=np.array([0, 1, 0, 0]),
    )
    compute_gae_for_sample_batch(policy(), batch)
    advantages, targets = reference.gae(
        batch["rewards"], batch["vf_preds"], [2.0, 0.0, 30.0, 40.0], batch["terminateds"], [0, 1, 1, 1], 0.5, 0.5
    )
    np.testing.assert_allclose(batch["advantages"], advantages, rtol=1e-6)
    np.testing.assert_allclose(batch["value_targets"], targets, rtol=1e-6)


def test_compute_gae_equals_compute_advantages_on_one_fragment():
    whole, single = rollout(), rollout()
    compute_gae_for_sample_batch(policy(), whole)
    compute_advantages(single, last_r=40.0, gamma=0.5, lambda_=0.5)
    np.testing.assert_array_equal(whole["advantages"], single["advantages"])


@pytest.mark.parametrize("use_critic", [True, False])
def test_compute_gae_without_gae_gives_discounted_returns(use_critic):
    batch = rollout(terminateds=np.array([False, False, False, True]))
    compute_gae_for_sample_batch(policy(use_gae=False, use_critic=use_critic), batch)
    returns = np.array([1.875, 1.75, 1.5, 1.0])
    expected = (returns - batch["vf_preds"], returns) if use_critic else (returns, np.zeros(4))
    np.testing.assert_allclose(batch["advantages"], expected[0])
    np.testing.assert_allclose(batch["value_targets"], expected[1])


def test_compute_gae_policy_with_single_step_value_is_asked_per_trajectory():
    seen = []

    def value(**inputs):
        seen.append((inputs["obs"].tolist(), inputs["prev_actions"].tolist()))
        return np.array([10.0 * inputs["obs"][0]])

    plain = policy()
    single = policy()
    single._value = value
    single.view_requirements = {"obs": ViewRequirement(), "prev_actions": ViewRequirement("actions", shift=-1)}
    batches = [rollout(eps_id=np.array([0, 0, 1, 1]), t=np.array([0, 1, 0, 1]), actions=np.arange(4)) for _ in range(2)]
    compute_gae_for_sample_batch(plain, batches[0])
    compute_gae_for_sample_batch(single, batches[1], {}, None)
    np.testing.assert_array_equal(batches[0]["advantages"], batches[1]["advantages"])
    assert seen == [([2.0], [1]), ([4.0], [3])]


def test_a_single_step_value_of_rllib_10_gets_the_row_in_its_order():
    seen = []

    class Copied(SimpleNamespace):
        def _value(self, ob, prev_action, prev_reward, *state):
            seen.append((float(ob), int(prev_action), float(prev_reward), [part.tolist() for part in state]))
            return 10.0 * ob

    class OfA3C(SimpleNamespace):
        def _value(self, ob):
            return 10.0 * ob

    views = {"obs": ViewRequirement()}
    batches = [rollout(actions=np.arange(4), state_out_0=np.arange(8).reshape(4, 2)) for _ in range(3)]
    compute_gae_for_sample_batch(policy(), batches[0])
    for kind, batch in zip((Copied, OfA3C), batches[1:], strict=True):
        compute_gae_for_sample_batch(kind(**vars(policy()), view_requirements=views), batch)
        np.testing.assert_array_equal(batches[0]["advantages"], batch["advantages"])
    assert seen == [(4.0, 3, 1.0, [[6, 7]])]
