"""TensorFlow's losses, and the policy gradients of both frameworks, against the NumPy oracle."""

import numpy as np
import pytest
import torch

from rlframe.losses import reference
from rlframe.losses.torch import policy_gradients as of_torch
from tests.golden.test_losses_against_oracle import SEEDS, q_batch
from tests.helpers.frameworks import needs_tf


def rows(seed, count=9):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=count) for name in ("new", "old", "advantages", "values", "values_old", "targets")}


def by_hand():
    return {
        # ρ = e^0.5 = 1.6487 is clipped to 1.2 for a good action, and not for a bad one; ρ = e^-1 the other way round.
        "surrogate": (
            (np.array([0.5, 0.5, -1.0, -1.0]), np.zeros(4), np.array([1.0, -1.0, 1.0, -1.0]), 0.2),
            [1.2, -np.exp(0.5), np.exp(-1.0), -0.8],
        ),
        # V moved by 3, which counts as 1: both errors are looked at, and the larger one taken.
        "value": ((np.array([3.0, 3.0]), np.zeros(2), np.array([5.0, 1.0]), 1.0), [16.0, 4.0]),
    }


def test_oracle_by_hand():
    arguments, expected = by_hand()["surrogate"]
    np.testing.assert_allclose(reference.clipped_surrogate(*arguments), expected)
    arguments, expected = by_hand()["value"]
    np.testing.assert_allclose(reference.clipped_value_loss(*arguments), expected)
    assert reference.explained_variance([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1.0
    assert reference.explained_variance([1.0, 1.0], [0.0, 5.0]) == -1.0
    assert reference.explained_variance([0.0, 2.0], [1.0, 1.0]) == 0.0
    # Of [-1, 3], half as wide as 2: 5 lies 1 half width beyond, -4 1.5; bounds themselves lie within.
    means = [[0.0, 5.0], [2.0, -4.0], [1.0, 3.0], [-1.0, -1.0]]
    assert reference.beyond_bounds(means, [-1.0, -1.0], [1.0, 3.0]).tolist() == [1.0, 3.25, 0.0, 0.0]
    # Over the actions that μ takes, weighted by μ, the estimate is KL(μ‖π) itself, for the ratios' mean is 1.
    pi, mu = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.25, 0.5])
    assert mu @ reference.sampled_kl(np.log(pi), np.log(mu)) == pytest.approx(mu @ np.log(mu / pi))
    # ρ = 2 and ρ = 1; beyond 20 it grows by 19 per nat.
    np.testing.assert_allclose(reference.sampled_kl(np.log([0.5, 0.3]), np.log([0.25, 0.3])), [1 - np.log(2), 0.0])
    beyond = reference.sampled_kl(np.log(20.0) + np.array([0.0, 1.0, 3.0]), np.zeros(3))
    np.testing.assert_allclose(np.diff(beyond), [19.0, 38.0])


def check(module, tensor, numpy, seed, tolerance):
    data = {name: tensor(column) for name, column in rows(seed).items()}
    plain = rows(seed)
    made = numpy(module.clipped_surrogate(data["new"], data["old"], data["advantages"], 0.2))
    wanted = reference.clipped_surrogate(plain["new"], plain["old"], plain["advantages"], 0.2)
    np.testing.assert_allclose(made, wanted, rtol=tolerance)
    made = numpy(module.clipped_value_loss(data["values"], data["values_old"], data["targets"], 0.5))
    wanted = reference.clipped_value_loss(plain["values"], plain["values_old"], plain["targets"], 0.5)
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance)
    made = numpy(module.explained_variance(data["targets"], data["values"]))
    np.testing.assert_allclose(made, reference.explained_variance(plain["targets"], plain["values"]), rtol=tolerance)
    constant = tensor(np.ones(4))
    assert float(numpy(module.explained_variance(constant, constant))) == -1.0
    means = np.random.default_rng(seed).normal(size=(9, 3)) * 4
    low, high = np.array([-1.0, 0.0, -2.0]), np.array([1.0, 3.0, 9.0])
    made = numpy(module.beyond_bounds(tensor(means), tensor(low), tensor(high)))
    wanted = reference.beyond_bounds(means, low, high)
    np.testing.assert_allclose(made, wanted, rtol=100 * tolerance, atol=tolerance)
    counted = np.arange(len(plain["advantages"])) % 3 > 0  # rows that do not count have no say in the unit
    made = numpy(module.scaled_by_rms(data["advantages"], lambda column: tensor(numpy(column)[counted].mean())))
    unit = np.sqrt((plain["advantages"][counted] ** 2).mean())
    np.testing.assert_allclose(made, plain["advantages"] / unit, rtol=tolerance)
    nothing = tensor(np.full(4, 1e-6))
    np.testing.assert_allclose(numpy(module.scaled_by_rms(nothing, lambda column: column[0])), 0.01, rtol=tolerance)
    spread = plain["new"] * np.array([1, 1, 1, 1, 1, 5, 5, 20, 50])
    made = numpy(module.sampled_kl(tensor(spread), data["old"]))
    np.testing.assert_allclose(made, reference.sampled_kl(spread, plain["old"]), rtol=100 * tolerance, atol=tolerance)
    made = numpy(module.policy_gradient(data["new"], data["advantages"]))
    np.testing.assert_allclose(made, -plain["new"] * plain["advantages"], rtol=tolerance)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_torch_policy_gradients(seed, dtype, tolerance):
    check(of_torch, lambda x: torch.as_tensor(x.astype(dtype)), lambda y: y.numpy(), seed, tolerance)


@needs_tf
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_tf_policy_gradients(seed, dtype, tolerance):
    import tensorflow as tf

    from rlframe.losses.tf import policy_gradients as of_tf

    check(of_tf, lambda x: tf.constant(x.astype(dtype)), lambda y: y.numpy(), seed, tolerance)


@needs_tf
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_tf_q_learning_and_its_gradients(seed, dtype, tolerance):
    import tensorflow as tf

    from rlframe.losses.tf import q_learning as of_tf
    from rlframe.losses.torch import q_learning as q_torch

    batch = {key: column.astype(dtype) if column.dtype.kind == "f" else column for key, column in q_batch(seed).items()}
    tensors = {key: tf.constant(column) for key, column in batch.items()}
    wanted = reference.double_q_td_error(**batch)
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        td_error = of_tf.double_q_td_error(**tensors)
        loss = tf.reduce_mean(of_tf.huber(td_error))
    np.testing.assert_allclose(td_error.numpy(), wanted, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(of_tf.huber(td_error).numpy(), reference.huber(wanted), rtol=tolerance, atol=tolerance)
    gradients = tape.gradient(loss, [tensors["q_t"], tensors["q_tp1_value"], tensors["rewards"]])
    theirs = {key: torch.as_tensor(column) for key, column in batch.items()}
    theirs["q_t"].requires_grad_()
    q_torch.huber(q_torch.double_q_td_error(**theirs)).mean().backward()
    np.testing.assert_allclose(gradients[0].numpy(), theirs["q_t"].grad.numpy(), rtol=tolerance, atol=tolerance)
    assert gradients[1] is None
    assert gradients[2] is None


@needs_tf
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_tf_distributional_loss(seed, dtype, tolerance):
    import tensorflow as tf

    from rlframe.losses.tf import q_learning as of_tf

    rng = np.random.default_rng(seed)
    atoms = np.linspace(-2, 2, 7).astype(dtype)
    probs = reference.softmax(rng.normal(size=(6, 7))).astype(dtype)
    rewards, discounts = rng.normal(size=6).astype(dtype) * 2, rng.uniform(size=6).astype(dtype)
    logits = rng.normal(size=(6, 7)).astype(dtype)
    made = of_tf.project_distribution(*map(tf.constant, (probs, rewards, discounts, atoms)))
    wanted = reference.project_distribution(probs, rewards, discounts, atoms)
    np.testing.assert_allclose(made.numpy(), wanted, rtol=10 * tolerance, atol=tolerance)
    loss = of_tf.categorical_q_loss(tf.constant(logits), made)
    np.testing.assert_allclose(loss.numpy(), reference.categorical_q_loss(logits, wanted), rtol=10 * tolerance)
    with pytest.raises(ValueError, match=r"wanted \[B, Z\] and \[Z\]"):
        of_tf.project_distribution(*map(tf.constant, (probs, rewards, discounts, atoms[:3])))
