"""What holds Gaussian actors within bounds: free deviations, and the price of means beyond."""

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.agents.impala import ImpalaTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.utils.errors import ConfigError, NonFiniteError
from tests.contract.test_policies import config_of, make
from tests.helpers.frameworks import TORCH_FIRST

torch_first = pytest.mark.parametrize("framework", TORCH_FIRST)
every_policy = pytest.mark.parametrize("name", ["IMPALA", "APPO", "PPO"])
ON = {"action_bound_coeff": 1.0}
BOX = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 4.0]))
HALF = spaces.Box(np.float32([-2.0, -np.inf, 0.0]), np.float32([2.0, np.inf, np.inf]))
FAR = np.float32(1e30)


def rows(policy, count=16, seed=0):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(count, 4)).astype(np.float32)
    actions, _, extras = policy.compute_actions(obs)
    return SampleBatch(
        {
            "obs": obs,
            "actions": actions,
            "action_logp": extras["action_logp"],
            "rewards": rng.normal(size=count).astype(np.float32),
            "discounts": np.zeros(count, np.float32),
            "trajectory_ends": np.ones(count, bool),
            "values_after": np.zeros(count, np.float32),
            "action_dist_inputs": extras["action_dist_inputs"],
            "vf_preds": np.zeros(count, np.float32),
            "advantages": np.zeros(count, np.float32),
            "value_targets": np.ones(count, np.float32),
        }
    )


def with_means(policy, means):
    """The policy, whose means are these in every state."""
    weights = policy.get_weights()
    weights["output.weight"] = np.zeros_like(weights["output.weight"])
    weights["output.bias"] = np.zeros_like(weights["output.bias"])
    weights["output.bias"][: len(means)] = means  # behind them: log standard deviations, if they depend on the state
    policy.set_weights(weights)
    return policy


@torch_first
@every_policy
def test_bounds_are_those_of_the_policys_space(framework, name):
    bounds = make(framework, name, ON, action_space=BOX).action_bounds.bounds
    np.testing.assert_array_equal(bounds, [[-1, -1], [1, 1]])
    clipped = {**ON, "normalize_actions": False, "clip_actions": True}
    np.testing.assert_array_equal(
        make(framework, name, clipped, action_space=BOX).action_bounds.bounds, [[-2, 0], [2, 4]]
    )
    bounds = make(framework, name, ON, action_space=HALF).action_bounds.bounds
    np.testing.assert_array_equal(bounds, [[-1, -FAR, -FAR], [1, FAR, FAR]])
    assert make(framework, name, {**ON, "normalize_actions": False}, action_space=BOX).action_bounds.bounds is None
    assert make(framework, name, {"action_bound_coeff": 0.0}, action_space=BOX).action_bounds.bounds is None
    assert make(framework, name, ON, action_space=spaces.Box(-np.inf, np.inf, (2,))).action_bounds.bounds is None
    assert make(framework, name, ON).action_bounds.bounds is None


@torch_first
@every_policy
def test_means_beyond_the_bounds_cost_what_they_lie_beyond(framework, name):
    """Means (1.5, -3) lie 0.5 and 2 half widths beyond [-1, 1]: 0.25 + 4, twice that in the loss."""
    policy = with_means(make(framework, name, {"action_bound_coeff": 2.0}, action_space=BOX), [1.5, -3.0])
    stats = policy.learn_on_batch(rows(policy))["learner_stats"]
    assert stats["action_bound_loss"] == pytest.approx(4.25)
    config = policy.config
    others = (
        stats["policy_loss"] + config["vf_loss_coeff"] * stats["vf_loss"] - config["entropy_coeff"] * stats["entropy"]
    )
    assert stats["total_loss"] == pytest.approx(others + 8.5, rel=1e-5)


@torch_first
@every_policy
def test_the_price_brings_means_back(framework, name):
    """Adam makes steps of the rate's length: 60 of 0.05 would carry a mean from 3 to 0, and it stops at the bound."""
    config = {"action_bound_coeff": 1000.0, "lr": 0.05, "entropy_coeff": 0.0}
    if name != "PPO":  # as they are, advantages are small beside the price: it is the price alone that is looked at
        config["scale_advantages"] = False
    policy = with_means(make(framework, name, config, action_space=BOX), [3.0, 0.0])
    batch = rows(policy)
    losses = [policy.learn_on_batch(batch)["learner_stats"]["action_bound_loss"] for _ in range(60)]
    assert losses[0] == pytest.approx(4.0)
    assert losses[-1] < 0.1
    assert policy.compute_actions(batch["obs"], explore=False)[0][:, 0].mean() < 1.3


@torch_first
def test_ppo_has_no_price_unless_asked(framework):
    assert config_of("PPO")["action_bound_coeff"] == 0.0
    policy = with_means(make(framework, "PPO", {}, action_space=BOX), [3.0, 0.0])
    assert "action_bound_loss" not in policy.learn_on_batch(rows(policy))["learner_stats"]


@torch_first
@pytest.mark.parametrize("name", ["IMPALA", "APPO"])
def test_deviations_of_gaussians_do_not_depend_on_the_state(framework, name):
    policy = make(framework, name, {}, action_space=BOX)
    assert policy.get_weights()["free_log_std.log_std"].shape == (2,)
    assert "free_log_std.log_std" not in make(framework, name, {}).get_weights()
    dependent = make(framework, name, {"model": {"free_log_std": False}}, action_space=BOX)
    assert dependent.get_weights()["output.bias"].shape == (4,)


@torch_first
@pytest.mark.parametrize("free", [False, True])
def test_weights_that_are_nan_say_that_deviations_can_be_freed(framework, free):
    policy = make(framework, "PPO", {"model": {"free_log_std": free}}, action_space=BOX)
    batch = rows(policy)
    weights = policy.get_weights()
    weights["hidden_0.weight"][0, 0] = np.nan
    policy.set_weights(weights)
    with pytest.raises(NonFiniteError, match=r"weights hidden_0.weight became NaN.*lower lr") as raised:
        policy.learn_on_batch(batch)
    assert ("model.free_log_std=True" in str(raised.value)) is not free


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"action_bound_coeff": -1.0}, "action_bound_coeff.*-1"),
        ({"vtrace_lambda": 1.5}, "vtrace_lambda.*1.5"),
        ({"vtrace": False, "action_bound_coeff": 0.5}, "action_bound_coeff=0.5 needs vtrace=True"),
        ({"model": {"free_log_std": "yes"}}, "free_log_std"),
    ],
)
def test_bad_values_are_refused(config, words):
    with pytest.raises(ConfigError, match=words):
        ImpalaTrainer({"num_workers": 0, **config}, env="Pendulum-v1")


def test_without_vtrace_a_gaussian_learns_too():
    trainer = ImpalaTrainer({"num_workers": 0, "vtrace": False, "min_iter_time_s": 0}, env="Pendulum-v1")
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert np.isfinite(stats["policy_loss"])
    trainer.stop()
