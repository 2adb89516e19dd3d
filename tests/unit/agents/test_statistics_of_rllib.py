"""What policies tell of a learner step under RLlib's names, and rows for it that a program has made itself."""

from __future__ import annotations

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from tests.contract.test_policies import make, make_batch
from tests.helpers.frameworks import TORCH_FIRST, needs_tf


def without(batch, *columns):
    return SampleBatch({key: np.array(batch[key]) for key in batch if key not in columns})


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize(
    ("name", "overrides"),
    [("SimpleQ", {}), ("DQN", {}), ("DQN", {"num_atoms": 5, "v_min": -2.0, "v_max": 2.0}), ("PQN", {})],
)
def test_q_values_in_the_report_are_those_of_the_actions_taken(framework, name, overrides):
    policy, batch = make(framework, name, overrides), make_batch(name=name)
    q_values = policy.compute_actions(batch["obs"], explore=False)[2]["action_dist_inputs"]
    taken = q_values[np.arange(len(batch)), batch["actions"]]
    stats = policy.learn_on_batch(batch)["learner_stats"]
    assert stats["mean_q"] == pytest.approx(taken.mean(), abs=1e-5)
    assert stats["min_q"] == pytest.approx(taken.min(), abs=1e-5)
    assert stats["max_q"] == pytest.approx(taken.max(), abs=1e-5)


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_q_values_in_sacs_report_are_those_of_all_actions(framework):
    policy, batch = make(framework, "discrete SAC", {}), make_batch(name="discrete SAC")
    every = policy.to_numpy(policy.model.q(policy.to_tensors(batch["obs"])))
    stats = policy.learn_on_batch(batch)["learner_stats"]
    told = [stats["mean_q"], stats["min_q"], stats["max_q"]]
    np.testing.assert_allclose(told, [every.mean(), every.min(), every.max()], atol=1e-5)


@needs_tf
def test_tensorflows_policies_have_the_mean_td_error_among_their_statistics():
    info = make("tf", "DQN", {}).learn_on_batch(make_batch())
    assert info["learner_stats"]["mean_td_error"] == info["mean_td_error"] == pytest.approx(info["td_error"].mean())


def test_a3c_tells_the_norm_of_the_weights():
    policy = make("torch", "A2C", {})
    squares = sum(float(np.square(weights).sum()) for weights in policy.get_weights().values())
    assert policy.compute_gradients(make_batch())[1]["learner_stats"]["var_gnorm"] == pytest.approx(squares**0.5)


def test_ddpgs_actor_loss_has_the_penalty_on_weights_that_the_critics_loss_has():
    plain, decayed = (make("torch", "DDPG", {"l2_reg": l2_reg}, seed=1) for l2_reg in (0.0, 0.5))
    kernels = [
        weights for name, weights in plain.get_weights().items() if name.startswith("actor") and weights.ndim > 1
    ]
    penalty = 0.25 * sum(float(np.square(kernel).sum()) for kernel in kernels)
    batch = make_batch(name="DDPG")
    told = [policy.learn_on_batch(batch)["learner_stats"]["actor_loss"] for policy in (plain, decayed)]
    assert told[1] - told[0] == pytest.approx(penalty, rel=1e-4)


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("name", ["IMPALA", "APPO"])
def test_vtrace_learns_from_rows_that_were_not_postprocessed(framework, name):
    one, other = (make(framework, name, {"rollout_fragment_length": 4}, seed=3) for _ in range(2))
    rows = without(make_batch(), "discounts", "trajectory_ends", "values_after")
    rows["dones"] = np.array([0, 0, 0, 1] * 3, bool)
    rows["eps_id"] = np.repeat([1, 2, 3], 4)
    columns = set(rows)
    raw = one.learn_on_batch(rows)["learner_stats"]
    assert set(rows) == columns  # the program's batch stays what it was
    assert raw == other.learn_on_batch(other.postprocess_trajectory(rows))["learner_stats"]


@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_first_priorities_of_rows_that_have_dones_alone(name):
    policy = make("torch", name, {"worker_side_prioritization": True, "prioritized_replay": True})
    rows = without(make_batch(name=name), "discounts", "weights")
    rows["dones"] = np.array([False] * 11 + [True])
    made = policy.postprocess_trajectory(rows)
    wanted = policy.compute_td_error(*(made[key] for key in ("obs", "actions", "rewards", "new_obs", "dones")))
    if name == "DQN":
        assert np.allclose(made["weights"], np.abs(wanted) + 1e-6, atol=1e-6)
    assert np.all(made["weights"] > 0)


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("name", ["DDPG", "TD3"])
def test_ddpgs_td_errors_are_the_first_critics_with_their_sign(framework, name):
    policy, batch = make(framework, name, {}), make_batch(name=name)
    for reward, sign in ((1e3, -1.0), (-1e3, 1.0)):
        batch["rewards"] = np.full_like(batch["rewards"], reward)
        told = policy.learn_on_batch(batch)
        assert np.all(np.sign(told["td_error"]) == sign)
        assert told["mean_td_error"] == pytest.approx(told["td_error"].mean())
