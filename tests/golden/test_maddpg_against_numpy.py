"""MADDPG's losses and gradients against numbers by hand, and against NumPy with finite differences."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.own_inference import FrameworkInference
from tests.contract.test_policies import make
from tests.helpers.frameworks import TORCH_FIRST

every_framework = pytest.mark.parametrize("framework", TORCH_FIRST)

CHOICE, BOX = gym.spaces.Discrete(3), gym.spaces.Box(-2.0, 2.0, (2,), np.float32)
#: Own 4 observations and 3 (or 2) actions come second, after the other agent's 2 and 2.
NETWORKS = {
    "actor_hiddens": [5], "critic_hiddens": [6], "actor_hidden_activation": "tanh", "critic_hidden_activation": "tanh",
    "grad_norm_clipping": None, "tau": 0.5,
}  # fmt: skip


def batch_of(width: int, rows: int = 7, seed: int = 0) -> SampleBatch:
    rng = np.random.default_rng(seed)
    columns = {
        "joint_obs": rng.normal(size=(rows, 6)),
        "joint_new_obs": rng.normal(size=(rows, 6)),
        "joint_actions": rng.uniform(-1, 1, (rows, 2 + width)),
        "joint_new_actions": rng.uniform(-1, 1, (rows, 2 + width)),
        "rewards": rng.normal(size=rows),
        "discounts": rng.choice([0.0, 0.95], rows),
    }
    columns["obs"] = columns["joint_obs"][:, 2:]
    return SampleBatch({name: column.astype(np.float32) for name, column in columns.items()})


def chain(weights: dict[str, Any], part: str, x: Any) -> Any:
    """A network row by row, neuron by neuron, in float64."""
    layers = sorted({name.rpartition(".")[0] for name in weights if name.startswith(part)})
    outputs = []
    for row in x:
        values = list(row)
        for layer in layers:
            weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
            sums = [sum(w * v for w, v in zip(line, values, strict=True)) + b
                    for line, b in zip(weight, bias, strict=True)]  # fmt: skip
            values = sums if layer.endswith("output") else [np.tanh(s) for s in sums]
        outputs.append(values)
    return np.array(outputs)


def slow_losses(weights: Any, targets: Any, batch: Any, *, local: bool, reg: float, width: int) -> tuple[float, float]:
    """The losses of actor and critic as the paper has them."""
    b = {name: np.asarray(column, np.float64) for name, column in batch.items()}

    def q(of: Any, obs: Any, actions: Any) -> Any:
        seen = np.hstack([obs[:, 2:], actions[:, 2 : 2 + width]]) if local else np.hstack([obs, actions])
        return chain(of, "critic", seen)[:, 0]

    wanted = b["rewards"] + b["discounts"] * q(targets, b["joint_new_obs"], b["joint_new_actions"])
    critic = np.mean((q(weights, b["joint_obs"], b["joint_actions"]) - wanted) ** 2)
    features = chain(weights, "actor", b["obs"])
    if "relaxation_noise" in b:
        scores = np.exp(features + b["relaxation_noise"])
        mine = scores / scores.sum(axis=1, keepdims=True)
    else:
        mine = np.tanh(features)
    joint = b["joint_actions"].copy()
    joint[:, 2 : 2 + width] = mine
    return float(-np.mean(q(weights, b["joint_obs"], joint)) + reg * np.mean(features**2)), float(critic)


@every_framework
@pytest.mark.parametrize(
    ("local", "space"),
    [
        pytest.param(False, CHOICE, id="joint-choice"),
        pytest.param(True, BOX, id="local-box"),
        pytest.param(False, BOX, id="joint-box", marks=pytest.mark.slow),
        pytest.param(True, CHOICE, id="local-choice", marks=pytest.mark.slow),
    ],
)
def test_losses_and_gradients_are_those_of_slow_numpy(framework: str, space: Any, local: bool) -> None:
    width = 3 if space is CHOICE else 2
    policy = make(framework, "MADDPG", {**NETWORKS, "use_local_critic": local, "actor_feature_reg": 0.1},
                  action_space=space)  # fmt: skip
    policy.learn_on_batch(batch_of(width, seed=1))
    policy.update_target()  # halfway: targets differ from the online networks
    batch = batch_of(width)
    drawn = policy.random_columns(batch.count, copy.deepcopy(policy._loss_rng))
    assert set(drawn) == ({"relaxation_noise"} if space is CHOICE else set())
    weights = {name: array.astype(np.float64) for name, array in policy.get_weights().items()}
    targets = {name: array.astype(np.float64) for name, array in policy.target_network.get_weights().items()}
    assert any(not np.array_equal(weights[name], targets[name]) for name in weights)
    settings: Any = {"local": local, "reg": 0.1, "width": width}
    gradients, info = policy.compute_gradients(batch)
    batch = {**batch, **drawn}
    stats = info["learner_stats"]
    np.testing.assert_allclose(
        [stats["actor_loss"], stats["critic_loss"]], slow_losses(weights, targets, batch, **settings), rtol=1e-5
    )
    norms = {"actor": 0.0, "critic": 0.0}
    for name, gradient in zip(weights, gradients, strict=True):
        loss = 0 if name.startswith("actor") else 1
        expected = np.zeros(weights[name].shape)
        for place in np.ndindex(expected.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {**weights, name: weights[name].copy()}
                moved[name][place] += step
                ends.append(slow_losses(moved, targets, batch, **settings)[loss])
            expected[place] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(gradient, expected, atol=2e-5, rtol=1e-3, err_msg=name)
        norms[name.partition(".")[0]] += float(np.square(expected).sum())
    for part, square in norms.items():
        assert stats[f"{part}_gnorm"] == pytest.approx(np.sqrt(square), rel=1e-3)


@every_framework
def test_losses_by_hand(framework: str) -> None:
    """Without hidden layers: Q = Σ inputs, the target's Q⁻ = 2 Σ inputs, features = own observations + 0.5."""
    policy = make(framework, "MADDPG", {"actor_hiddens": [], "critic_hiddens": [], "actor_feature_reg": 0.01},
                  action_space=gym.spaces.Box(-1, 1, (4,), np.float32))  # fmt: skip
    weights = {
        "actor.output.weight": np.eye(4), "actor.output.bias": np.full(4, 0.5),
        "critic.output.weight": np.ones((1, 12)), "critic.output.bias": np.zeros(1),
    }  # fmt: skip
    policy.set_weights(weights)
    policy.target_network.set_weights({**weights, "critic.output.weight": np.full((1, 12), 2.0)})
    batch = SampleBatch(
        obs=np.zeros((2, 4), np.float32),
        joint_obs=np.array([[1.0, 0.0, 0, 0, 0, 0], [0.0, 2.0, 0, 0, 0, 0]], np.float32),
        joint_actions=np.array([[0.5, 0.0, 0, 0, 0, 1.0], [0.0, 0.0, 0, 0, 0, -1.0]], np.float32),
        joint_new_obs=np.array([[0.0, 0.0, 0, 0, 0, 1.0], [9.0, 0.0, 0, 0, 0, 0]], np.float32),
        joint_new_actions=np.array([[0.0, 0.0, 1.0, 0, 0, 0], [1.0, 0.0, 0, 0, 0, 0]], np.float32),
        rewards=np.array([1.0, 3.0], np.float32),
        discounts=np.array([0.5, 0.0], np.float32),
    )
    info = policy.compute_gradients(batch)[1]
    # Q: 1 + 1.5 = 2.5 and 2 − 1 = 1. Targets: 1 + 0.5 · 2 · 2 = 3, and 3 where the episode terminated.
    np.testing.assert_allclose(info["td_error"], [-0.5, -2.0], atol=1e-6)
    stats = info["learner_stats"]
    assert stats["critic_loss"] == pytest.approx((0.25 + 4.0) / 2)
    # The own four actions become tanh 0.5 each; the other agent's stay: Q = 1.5 + 4 tanh 0.5 and 2 + 4 tanh 0.5.
    assert stats["actor_loss"] == pytest.approx(-(1.75 + 4 * np.tanh(0.5)) + 0.01 * 0.25)
    assert stats["mean_q"] == pytest.approx(1.75)


@every_framework
def test_each_weight_array_is_clipped_by_itself(framework: str) -> None:
    free = make(framework, "MADDPG", NETWORKS)
    clipped = make(framework, "MADDPG", {**NETWORKS, "grad_norm_clipping": 0.05})
    batch = batch_of(3)
    before, info = free.compute_gradients(batch)
    after, clipped_info = clipped.compute_gradients(batch)
    assert info["learner_stats"]["critic_gnorm"] == pytest.approx(clipped_info["learner_stats"]["critic_gnorm"])
    norms = [float(np.linalg.norm(gradient)) for gradient in before]
    assert min(norms) < 0.05 < max(norms)
    for gradient, norm, made in zip(before, norms, after, strict=True):
        np.testing.assert_allclose(made, gradient * min(1.0, 0.05 / norm), rtol=1e-4, atol=1e-7)


@every_framework
@pytest.mark.parametrize("space", [CHOICE, BOX], ids=["choice", "box"])
def test_acting_through_the_framework_is_acting_in_numpy(framework: str, space: Any) -> None:
    """As where the networks are on a GPU."""
    policy = make(framework, "MADDPG", NETWORKS, action_space=space)
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected, _, columns = policy.compute_actions(obs, explore=False)
    policy.inference = FrameworkInference(policy)
    actions, _, made = policy.compute_actions(obs, explore=False)
    np.testing.assert_allclose(actions, expected, atol=1e-6)
    for name in ("action_logp", "action_dist_inputs"):
        np.testing.assert_allclose(made[name], columns[name], atol=1e-6)
    assert actions.shape == (5, 3 if space is CHOICE else 2)


@every_framework
def test_target_actors_act_by_their_own_weights_with_fresh_noise(framework: str) -> None:
    policy = make(framework, "MADDPG", NETWORKS)
    policy.learn_on_batch(batch_of(3))
    obs = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float32)[:1].repeat(20_000, axis=0)
    targets = {name: array.astype(np.float64) for name, array in policy.target_network.get_weights().items()}
    features = chain(targets, "actor", obs[:1])[0]
    noise = policy.random_columns(1, copy.deepcopy(policy._loss_rng))["relaxation_noise"]
    scores = np.exp(features + noise[0])
    np.testing.assert_allclose(policy.target_actions(obs[:1])[0], scores / scores.sum(), atol=1e-6)
    drawn = policy.target_actions(obs)
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0, atol=1e-6)
    # The largest component is a draw from the categorical distribution of the logits.
    shares = np.bincount(drawn.argmax(axis=1), minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, np.exp(features) / np.exp(features).sum(), atol=0.02)
