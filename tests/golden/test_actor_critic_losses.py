"""Losses of replayed actors and critics: numbers worked by hand, in each framework, and what they lead to."""

import math

import numpy as np
import pytest
import torch

from rlframe.losses import actor_critic
from rlframe.models.gaussian import SquashedGaussian
from tests.contract.test_policies import CROSSQ, make, make_batch
from tests.golden.test_losses_against_oracle import ask
from tests.helpers.frameworks import both_frameworks, to_tensor

HALF_LOG_2PI = 0.9189385332046727


def f32(*values):
    return np.array(values, np.float32)


@both_frameworks
def test_squashed_gaussian_by_hand(framework):
    inputs, noise = f32([0.0, 0.0], [0.5, math.log(2.0)]), f32([0.0], [1.0])  # z = 0 and 2.5
    actions, logp = (made.numpy() for made in actor_critic.squashed_gaussian(*map_to(framework, inputs, noise)))
    np.testing.assert_allclose(actions, [[0.0], [math.tanh(2.5)]], rtol=1e-6)
    slope = math.log(1.0 - math.tanh(2.5) ** 2)
    np.testing.assert_allclose(logp, [-HALF_LOG_2PI, -0.5 - math.log(2.0) - HALF_LOG_2PI - slope], rtol=1e-5)


@both_frameworks
def test_squashed_gaussian_is_the_one_that_acts_and_stays_finite_far_out(framework):
    rng = np.random.default_rng(0)
    inputs, noise = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(9, 2)).astype(np.float32)
    actions, logp = (made.numpy() for made in actor_critic.squashed_gaussian(*map_to(framework, inputs, noise)))
    np.testing.assert_allclose(SquashedGaussian(inputs).logp(actions), logp, atol=1e-3)
    far, logp = (m.numpy() for m in actor_critic.squashed_gaussian(*map_to(framework, f32([40.0, 0.0]), f32([1.0]))))
    np.testing.assert_allclose(logp, [-0.5 - HALF_LOG_2PI - 2 * (math.log(2.0) - 41.0)], rtol=1e-5)
    assert far == 1.0


def map_to(framework, *arrays):
    return [to_tensor(framework, array) for array in arrays]


@both_frameworks
def test_targets_by_hand(framework):
    rewards, discounts = f32(1.0, 2.0), f32(0.5, 0.0)
    assert ask(framework, actor_critic.bootstrapped, rewards, discounts, f32(4.0, 9.0)).tolist() == [3.0, 2.0]
    quantiles = ask(framework, actor_critic.bootstrapped, rewards, discounts, f32([4.0, 6.0], [9.0, 9.0]))
    assert quantiles.tolist() == [[3.0, 4.0], [2.0, 2.0]]
    values = map_to(framework, f32(1.0, 5.0), f32(2.0, 4.0), f32(3.0, 3.0))
    assert actor_critic.smallest(values).numpy().tolist() == [1.0, 3.0]
    critics = map_to(framework, f32([1.0, 5.0, 3.0]), f32([2.0, 9.0, 4.0]))
    assert actor_critic.truncated_quantiles(critics, 1).numpy().tolist() == [[1.0, 2.0, 3.0, 4.0]]
    assert ask(framework, actor_critic.expected, f32([0.25, 0.75]), f32([4.0, 8.0])).tolist() == [7.0]


@both_frameworks
def test_smoothed_actions_by_hand(framework):
    made = ask(framework, actor_critic.smoothed_actions, f32([0.9], [0.9], [0.0]), f32([1.0], [-4.0], [1.0]), 0.2, 0.5)
    np.testing.assert_allclose(made, [[1.0], [0.4], [0.2]], rtol=1e-6)


@both_frameworks
def test_quantile_huber_by_hand(framework):
    # u = target - θ is (0.5, 2) and (-0.5, 1), its Huber loss (0.125, 1.5) and (0.125, 0.5); τ is 0.25 and 0.75.
    found = ask(framework, actor_critic.quantile_huber, f32([0.0, 1.0]), f32([0.5, 2.0]))
    np.testing.assert_allclose(found, [(0.25 * 0.125 + 0.25 * 1.5 + 0.25 * 0.125 + 0.75 * 0.5) / 4], rtol=1e-6)


@both_frameworks
def test_half_squares_by_hand(framework):
    assert float(actor_critic.half_squares(map_to(framework, f32([1.0, 2.0]), f32(3.0)))) == 7.0


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("SAC", {}),
        ("TD3", {}),
        pytest.param("SAC", {"n_quantiles": 5}, marks=pytest.mark.slow),
        pytest.param("SAC", CROSSQ, marks=pytest.mark.slow),
        pytest.param("DDPG", {}, marks=pytest.mark.slow),
    ],
)
def test_an_actor_climbs_to_the_action_that_pays(name, overrides):
    rates = {"actor_learning_rate": 5e-4, "critic_learning_rate": 1e-2, "entropy_learning_rate": 0.0}
    more = {"actor_lr": 5e-4, "critic_lr": 1e-2}
    if name == "SAC":
        more = {"optimization": rates, "initial_alpha": 1e-3}
    policy = make("torch", name, overrides, **more)
    best = np.array([0.3, -0.6])
    for step in range(400):
        batch = make_batch(64, step, name)
        batch["rewards"] = -np.square(batch["actions"] - best).sum(1).astype(np.float32)
        batch["discounts"] = np.zeros(64, np.float32)
        policy.learn_on_batch(batch)
        policy.update_target()
    actions = policy.compute_actions(make_batch(64, 999)["obs"], explore=False)[0]
    regret = np.square(actions - best).sum(1).mean()
    assert regret < 0.25, "random actions have 1.1, and 16 units know the reward to a tenth or so"


def test_a_discrete_actor_prefers_the_action_that_pays():
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "entropy_learning_rate"), 1e-2)
    policy = make("torch", "discrete SAC", {}, optimization=rates, target_entropy=0.1)
    for step in range(150):
        batch = make_batch(64, step)
        batch["rewards"], batch["discounts"] = (batch["actions"] == 1).astype(np.float32), np.zeros(64, np.float32)
        policy.learn_on_batch(batch)
    assert (policy.compute_actions(make_batch(64, 999)["obs"], explore=False)[0] == 1).mean() > 0.95


@both_frameworks
@pytest.mark.parametrize("kind", ["normc", "fan_in"])
def test_weights_of_sac_begin_as_asked_for(framework, kind):
    weights = make(framework, "SAC", {"initial_weights": kind}).get_weights()
    for network in ("actor", "q", "twin_q"):
        names = sorted(name for name in weights if name.startswith(f"{network}."))
        first = next(weights[name] for name in names if name.endswith("weight"))
        biases = np.concatenate([weights[name].ravel() for name in names if name.endswith("bias")])
        if kind == "normc":
            np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, rtol=1e-5)
            assert not biases.any()
        else:
            assert np.abs(first).max() <= 1 / np.sqrt(first.shape[1])
            assert biases.all()


@both_frameworks
@pytest.mark.parametrize(
    ("kind", "bound"), [("xavier", lambda w: np.sqrt(6 / sum(w.shape))), ("fan_in", lambda w: w.shape[1] ** -0.5)]
)
def test_weights_of_ddpg_begin_as_asked_for(framework, kind, bound):
    weights = make(framework, "TD3", {"initial_weights": kind}).get_weights()
    for network in ("actor", "q", "twin_q"):
        for name in (name for name in weights if name.startswith(f"{network}.")):
            if name.endswith("weight"):
                assert 0.8 * bound(weights[name]) < np.abs(weights[name]).max() <= bound(weights[name]), name
            else:
                assert weights[name].any() == (kind == "fan_in"), name


@pytest.mark.parametrize(("overrides", "wanted"), [({}, 2.625), ({"use_huber": False}, 4.625)])
def test_errors_of_sacs_critics_by_hand(overrides, wanted):
    values, targets = torch.tensor([3.0, 0.5]), torch.zeros(2)
    loss, sizes = make("torch", "SAC", overrides).critic_loss([values, -values], targets, None)
    assert loss.item() == pytest.approx(wanted)  # of two critics and two rows: 2.5 + 0.125, or 4.5 + 0.125
    assert sizes.tolist() == [3.0, 0.5]
