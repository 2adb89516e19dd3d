"""Losses in each framework against the NumPy oracle, and the oracle against numbers worked by hand."""

import numpy as np
import pytest
import torch

from rlframe.losses import masking, policy_gradients, q_learning
from tests.helpers import loss_oracle as reference
from tests.helpers.frameworks import both_frameworks, gradients_of, to_tensor

SEEDS = range(3)
precisions = pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])


def cast(dtype, *arrays):
    """Returns arrays with those that float in a dtype."""
    return [array.astype(dtype) if array.dtype.kind == "f" else array for array in arrays]


def ask(framework, function, *arguments):
    """Returns as NumPy what a loss makes of arrays and numbers."""
    given = (to_tensor(framework, value) if isinstance(value, np.ndarray) else value for value in arguments)
    return function(*given).numpy()


def q_batch(seed: int, rows: int = 7, actions: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "q_t": rng.normal(size=(rows, actions)) * 3,
        "actions": rng.integers(0, actions, rows),
        "rewards": rng.normal(size=rows),
        "discounts": rng.random(rows) * (rng.random(rows) > 0.3),
        "q_tp1_value": rng.normal(size=(rows, actions)) * 3,
        "q_tp1_selector": rng.normal(size=(rows, actions)) * 3,
    }


# --- by hand --------------------------------------------------------------------------------------------------------


@both_frameworks
def test_huber_by_hand(framework):
    x = np.array([-3.0, -1.0, 0.5, 2.0])
    assert reference.huber(x).tolist() == [2.5, 0.5, 0.125, 1.5]
    assert ask(framework, q_learning.huber, x).tolist() == [2.5, 0.5, 0.125, 1.5]
    assert (
        ask(framework, q_learning.huber, x, 2.0).tolist() == reference.huber(x, 2.0).tolist() == [4.0, 0.5, 0.125, 2.0]
    )


@both_frameworks
def test_double_q_td_error_by_hand(framework):
    batch = {
        "q_t": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "actions": np.array([1, 0]),
        "rewards": np.array([0.5, -1.0]),
        "discounts": np.array([0.5, 0.0]),
        "q_tp1_value": np.array([[10.0, 20.0], [30.0, 40.0]]),
        "q_tp1_selector": np.array([[7.0, 6.0], [0.0, 1.0]]),
    }
    # 2 - (0.5 + 0.5 * 10) and 3 - (-1 + 0).
    assert reference.double_q_td_error(**batch).tolist() == [-3.5, 4.0]
    assert ask(framework, q_learning.double_q_td_error, *batch.values()).tolist() == [-3.5, 4.0]


def test_q_loss_by_hand():
    assert reference.q_loss([0.5, 3.0], [1.0, 2.0]) == (0.125 + 2 * 2.5) / 2


@both_frameworks
def test_project_distribution_by_hand(framework):
    atoms, probs = np.array([-1.0, 0.0, 1.0]), np.array([[0.25, 0.5, 0.25], [0.2, 0.3, 0.5]])
    rewards, discounts = np.array([0.5, 5.0]), np.array([0.5, 0.0])
    # Row 0: atoms move to 0, 0.5 and 1; half of the middle one goes to either side. Row 1: everything is clipped to 1.
    expected = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(reference.project_distribution(probs, rewards, discounts, atoms), expected)
    projected = ask(framework, q_learning.project_distribution, probs, rewards, discounts, atoms)
    np.testing.assert_allclose(projected, expected)


@both_frameworks
def test_categorical_q_loss_by_hand(framework):
    logits, target = np.log([[0.5, 0.25, 0.25]]), np.array([[0.5, 0.5, 0.0]])
    expected = 1.5 * np.log(2.0)
    np.testing.assert_allclose(reference.categorical_q_loss(logits, target), [expected])
    np.testing.assert_allclose(ask(framework, q_learning.categorical_q_loss, logits, target), [expected])


@both_frameworks
def test_priority_of_a_distribution_is_its_divergence_not_its_width(framework):
    narrow, wide = [1.0, 0.0, 0.0], [0.5, 0.25, 0.25]
    predicted = np.array([[0.98, 0.01, 0.01], wide, wide], np.float32)
    target = np.array([narrow, wide, [0.25, 0.5, 0.25]], np.float32)
    loss = reference.categorical_q_loss(np.log(predicted), target).astype(np.float32)
    # Row 1 is known exactly, and has the largest cross-entropy but for row 2's.
    made = ask(framework, q_learning.surprise_of_target, loss, target)
    np.testing.assert_allclose(made, [-np.log(0.98), 0.0, 0.25 * np.log(2.0)], atol=1e-6)
    assert made[0] > made[1]
    assert loss[0] < loss[1]


def test_dueling_by_hand():
    assert reference.dueling([[10.0]], [[1.0, 3.0]]).tolist() == [[9.0, 11.0]]


def test_categorical_by_hand():
    logits, other = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    np.testing.assert_allclose(reference.softmax(other), [[0.25, 0.75]])
    np.testing.assert_allclose(reference.categorical_logp(other, [1]), [np.log(0.75)])
    np.testing.assert_allclose(reference.categorical_entropy(logits), [np.log(2.0)])
    np.testing.assert_allclose(reference.categorical_kl(logits, other), [0.5 * np.log(2.0) + 0.5 * np.log(2 / 3)])
    np.testing.assert_allclose(reference.log_softmax([[1e4, 0.0]]), [[0.0, -1e4]])


def test_diag_gaussian_by_hand():
    half_log_two_pi = 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(reference.diag_gaussian_logp([[0.0]], [[0.0]], [[2.0]]), [-2.0 - half_log_two_pi])
    np.testing.assert_allclose(reference.diag_gaussian_entropy([[0.0, 1.0]]), [2.0 + 2 * half_log_two_pi])
    np.testing.assert_allclose(reference.diag_gaussian_kl([[1.0]], [[0.0]], [[0.0]], [[0.0]]), [0.5])


def test_gae_by_hand():
    advantages, targets = reference.gae([1.0, 2.0], [2.0, 3.0], [3.0, 9.0], [False, True], [False, True], 0.5, 0.5)
    assert (advantages.tolist(), targets.tolist()) == ([0.25, -1.0], [2.25, 2.0])


def test_n_step_by_hand():
    made = reference.n_step([1.0, 2.0, 4.0], [0, 1, 0], [0, 1, 0], [1, 0, 0], 3, 0.5)
    assert made["rewards"].tolist() == [2.0, 2.0, 4.0]
    assert made["discounts"].tolist() == [0.0, 0.0, 0.5]
    assert (made["n_steps"].tolist(), made["last"].tolist()) == ([2, 1, 1], [1, 1, 2])


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


def test_policy_gradients_by_hand():
    arguments, expected = by_hand()["surrogate"]
    np.testing.assert_allclose(reference.clipped_surrogate(*arguments), expected)
    arguments, expected = by_hand()["value"]
    np.testing.assert_allclose(reference.clipped_value_loss(*arguments), expected)
    assert reference.explained_variance([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1.0
    assert reference.explained_variance([1.0, 1.0], [0.0, 5.0]) == -1.0
    assert reference.explained_variance([0.0, 2.0], [1.0, 1.0]) == 0.0
    # Of [-1, 3], half as wide as 2: 5 lies 1 half width beyond, -4 1.5; bounds themselves lie within.
    means = [[0.0, 5.0], [2.0, -4.0], [1.0, 3.0], [-1.0, -1.0]]
    assert reference.action_bound_penalty(means, [-1.0, -1.0], [1.0, 3.0]).tolist() == [1.0, 3.25, 0.0, 0.0]
    # Over the actions that μ takes, weighted by μ, the estimate is KL(μ‖π) itself, for the ratios' mean is 1.
    pi, mu = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.25, 0.5])
    assert mu @ reference.sampled_kl(np.log(pi), np.log(mu)) == pytest.approx(mu @ np.log(mu / pi))
    # ρ = 2 and ρ = 1; beyond 20 it grows by 19 per nat.
    np.testing.assert_allclose(reference.sampled_kl(np.log([0.5, 0.3]), np.log([0.25, 0.3])), [1 - np.log(2), 0.0])
    beyond = reference.sampled_kl(np.log(20.0) + np.array([0.0, 1.0, 3.0]), np.zeros(3))
    np.testing.assert_allclose(np.diff(beyond), [19.0, 38.0])


# --- the oracle against a second opinion ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_distributions_agree_with_torch(seed):
    rng = np.random.default_rng(seed)
    logits, other = rng.normal(size=(2, 6, 4)) * 2
    p, q = (torch.distributions.Categorical(logits=torch.as_tensor(array)) for array in (logits, other))
    actions = rng.integers(0, 4, 6)
    np.testing.assert_allclose(reference.categorical_logp(logits, actions), p.log_prob(torch.as_tensor(actions)))
    np.testing.assert_allclose(reference.categorical_entropy(logits), p.entropy())
    np.testing.assert_allclose(reference.categorical_kl(logits, other), torch.distributions.kl_divergence(p, q))
    mean, log_std, other_mean, other_log_std, x = rng.normal(size=(5, 6, 3))
    g, h = (
        torch.distributions.Normal(torch.as_tensor(m), torch.as_tensor(s).exp())
        for m, s in ((mean, log_std), (other_mean, other_log_std))
    )
    np.testing.assert_allclose(reference.diag_gaussian_logp(mean, log_std, x), g.log_prob(torch.as_tensor(x)).sum(-1))
    np.testing.assert_allclose(reference.diag_gaussian_entropy(log_std), g.entropy().sum(-1))
    np.testing.assert_allclose(
        reference.diag_gaussian_kl(mean, log_std, other_mean, other_log_std),
        torch.distributions.kl_divergence(g, h).sum(-1),
    )


# --- frameworks against the oracle ----------------------------------------------------------------------------------


@both_frameworks
@precisions
@pytest.mark.parametrize("seed", SEEDS)
def test_q_loss_and_its_gradient_agree_with_oracle(framework, dtype, tolerance, seed):
    batch = dict(zip(q_batch(seed), cast(dtype, *q_batch(seed).values()), strict=True))
    error, actions = reference.double_q_td_error(**batch), batch.pop("actions")
    weights = np.random.default_rng(seed + 100).random(7).astype(dtype)

    def td_error(q_t, rewards, discounts, value, selector):
        return q_learning.double_q_td_error(q_t, to_tensor(framework, actions), rewards, discounts, value, selector)

    def loss(*columns):
        return to_tensor(framework, weights) * q_learning.huber(td_error(*columns)) / 7

    close = {"rtol": 10 * tolerance, "atol": tolerance}
    np.testing.assert_allclose(ask(framework, td_error, *batch.values()), error, **close)
    total = ask(framework, loss, *batch.values()).sum()
    assert total == pytest.approx(reference.q_loss(error, weights), rel=10 * tolerance)
    by_q, *others = gradients_of(framework, loss, list(batch.values()))
    expected = np.zeros((7, 4))
    expected[np.arange(7), actions] = weights * np.clip(error, -1, 1) / 7
    np.testing.assert_allclose(by_q, expected, **close)
    assert others == [None] * 4


@both_frameworks
@pytest.mark.parametrize("key", ["q_t", "actions", "rewards", "discounts", "q_tp1_value", "q_tp1_selector"])
def test_double_q_td_error_rows_that_differ_are_refused(framework, key):
    inputs = {name: to_tensor(framework, array) for name, array in q_batch(0).items()}
    inputs[key] = inputs[key][:-1]
    with pytest.raises(ValueError, match=rf"{key} \(6"):
        q_learning.double_q_td_error(**inputs)


@both_frameworks
@precisions
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("atoms", [2, 51])
def test_project_distribution_agrees_with_oracle_and_keeps_mass(framework, dtype, tolerance, seed, atoms):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(atoms), size=6)
    rewards = np.array([0.0, 30.0, -30.0, 10.0, *rng.normal(size=2) * 3])
    discounts = np.array([1.0, 0.9, 0.9, 0.0, *rng.random(2)])
    columns = cast(dtype, probs, rewards, discounts, np.linspace(-10.0, 10.0, atoms))
    made = ask(framework, q_learning.project_distribution, *columns)
    np.testing.assert_allclose(made, reference.project_distribution(*columns), atol=tolerance)
    np.testing.assert_allclose(made.sum(axis=1), 1.0, rtol=tolerance)
    np.testing.assert_allclose(made[0], probs[0], atol=tolerance)
    assert gradients_of(framework, q_learning.project_distribution, columns) == [None] * 4


@both_frameworks
def test_project_distribution_float32_at_the_edge_of_the_support_stays_inside(framework):
    columns = (
        np.full((200, 51), 1 / 51),
        np.linspace(-25.0, 25.0, 200),
        np.full(200, 0.99),
        np.linspace(-10.0, 10.0, 51),
    )
    made = ask(framework, q_learning.project_distribution, *cast("float32", *columns))
    np.testing.assert_allclose(made.sum(1), 1.0, rtol=1e-5)
    assert (made >= 0).all()


@both_frameworks
@precisions
@pytest.mark.parametrize("seed", SEEDS)
def test_categorical_q_loss_agrees_with_oracle_and_is_at_least_the_entropy(framework, dtype, tolerance, seed):
    rng = np.random.default_rng(seed)
    logits, target = cast(dtype, rng.normal(size=(6, 5)), rng.dirichlet(np.ones(5), size=6))
    made = ask(framework, q_learning.categorical_q_loss, logits, target)
    np.testing.assert_allclose(made, reference.categorical_q_loss(logits, target), rtol=10 * tolerance)
    assert (made >= reference.categorical_entropy(np.log(target)) - 1e-6).all()


@both_frameworks
def test_categorical_q_loss_shapes_that_differ_are_refused(framework):
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(2, 4\)"):
        ask(framework, q_learning.categorical_q_loss, np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"wanted \[B, Z\] and \[Z\]"):
        ask(framework, q_learning.project_distribution, np.zeros((2, 3)), np.zeros(2), np.zeros(2), np.zeros(4))


@both_frameworks
@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4)])
def test_dueling_and_select_by_action_agree_with_oracle(framework, shape):
    rng = np.random.default_rng(0)
    advantages, values = rng.normal(size=shape), rng.normal(size=(5, 1, *shape[2:]))
    made, expected = ask(framework, q_learning.dueling, values, advantages), reference.dueling(values, advantages)
    np.testing.assert_allclose(made, expected)
    actions = rng.integers(0, 3, 5)
    for dtype in ("int64", "int32", "uint8"):
        chosen = ask(framework, q_learning.select_by_action, made, actions.astype(dtype))
        np.testing.assert_allclose(chosen, expected[np.arange(5), actions])


def rows(seed, dtype, count=9):
    rng = np.random.default_rng(seed)
    names = ("new", "old", "advantages", "values", "values_old", "targets")
    return {name: rng.normal(size=count).astype(dtype) for name in names}


@both_frameworks
@precisions
@pytest.mark.parametrize("seed", SEEDS)
def test_policy_gradients_agree_with_oracle(framework, dtype, tolerance, seed):
    data, close = rows(seed, dtype), {"rtol": 10 * tolerance, "atol": tolerance}
    means = np.random.default_rng(seed).normal(size=(9, 3)) * 4
    spread = data["new"] * np.array([1, 1, 1, 1, 1, 5, 5, 20, 50])
    calls = {
        "clipped_surrogate": [data["new"], data["old"], data["advantages"], 0.2],
        "clipped_value_loss": [data["values"], data["values_old"], data["targets"], 0.5],
        "explained_variance": [data["targets"], data["values"]],
        "action_bound_penalty": cast(dtype, means, np.array([-1.0, 0.0, -2.0]), np.array([1.0, 3.0, 9.0])),
        "sampled_kl": cast(dtype, spread, data["old"]),
    }
    for name, arguments in calls.items():
        made = ask(framework, getattr(policy_gradients, name), *arguments)
        np.testing.assert_allclose(made, getattr(reference, name)(*arguments), **{**close, "rtol": 100 * tolerance})
    made = ask(framework, policy_gradients.policy_gradient, data["new"], data["advantages"])
    np.testing.assert_allclose(made, -data["new"] * data["advantages"], **close)
    assert ask(framework, policy_gradients.explained_variance, np.ones(4), np.ones(4)) == -1.0


@both_frameworks
def test_scaled_by_rms_counts_the_rows_that_count(framework):
    advantages, counted = rows(0, "float64")["advantages"], np.arange(9) % 3 > 0
    mean = masking.valid_mean({"valid_mask": to_tensor(framework, counted)})
    made = ask(framework, lambda column: policy_gradients.scaled_by_rms(column, mean), advantages)
    np.testing.assert_allclose(made, advantages / np.sqrt((advantages[counted] ** 2).mean()))
    nothing = ask(framework, lambda column: policy_gradients.scaled_by_rms(column, lambda x: x[0]), np.full(4, 1e-6))
    np.testing.assert_allclose(nothing, 0.01)


@both_frameworks
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_means_leave_padding_out_whatever_it_holds(framework, dtype):
    mask = np.array([True, False, True])
    for column in (np.array([1.0, np.nan, 4.0]), np.array([[1.0, 2.0], [np.nan, np.inf], [4.0, 5.0]])):
        batch = {"valid_mask": to_tensor(framework, mask)}
        made = ask(framework, masking.valid_mean(batch), column.astype(dtype))
        assert made == pytest.approx(column[mask].mean())
        assert made.dtype == dtype
        left = ask(framework, masking.valid_rows(batch), column.astype(dtype))
        np.testing.assert_array_equal(left, column[mask].astype(dtype))
        assert ask(framework, masking.valid_mean({}), column[mask]) == pytest.approx(column[mask].mean())
        np.testing.assert_array_equal(ask(framework, masking.valid_rows({}), column[mask]), column[mask])
    nobody = masking.valid_mean({"valid_mask": to_tensor(framework, ~mask & False)})
    assert ask(framework, nobody, np.ones(3)) == 0.0
