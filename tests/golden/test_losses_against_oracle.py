"""Losses of every framework against the NumPy oracle, and the oracle against numbers worked by hand."""

import numpy as np
import pytest
import torch

from rlframe.losses import reference
from rlframe.losses.torch import q_learning

SEEDS = range(5)


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(array, dtype=torch.float64 if array.dtype.kind == "f" else torch.int64)


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


def test_huber_by_hand():
    x = np.array([-3.0, -1.0, 0.5, 2.0])
    assert reference.huber(x).tolist() == [2.5, 0.5, 0.125, 1.5]
    assert q_learning.huber(tensor(x)).tolist() == [2.5, 0.5, 0.125, 1.5]
    assert q_learning.huber(tensor(x), delta=2.0).tolist() == reference.huber(x, 2.0).tolist() == [4.0, 0.5, 0.125, 2.0]


def test_double_q_td_error_by_hand():
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
    assert q_learning.double_q_td_error(**{key: tensor(array) for key, array in batch.items()}).tolist() == [-3.5, 4.0]


def test_q_loss_by_hand():
    assert reference.q_loss([0.5, 3.0], [1.0, 2.0]) == (0.125 + 2 * 2.5) / 2


def test_project_distribution_by_hand():
    atoms, probs = np.array([-1.0, 0.0, 1.0]), np.array([[0.25, 0.5, 0.25], [0.2, 0.3, 0.5]])
    rewards, discounts = np.array([0.5, 5.0]), np.array([0.5, 0.0])
    # Row 0: atoms move to 0, 0.5 and 1; half of the middle one goes to either side. Row 1: everything is clipped to 1.
    expected = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(reference.project_distribution(probs, rewards, discounts, atoms), expected)
    projected = q_learning.project_distribution(*map(tensor, (probs, rewards, discounts, atoms)))
    np.testing.assert_allclose(projected.numpy(), expected)


def test_categorical_q_loss_by_hand():
    logits, target = np.log([[0.5, 0.25, 0.25]]), np.array([[0.5, 0.5, 0.0]])
    expected = 1.5 * np.log(2.0)
    np.testing.assert_allclose(reference.categorical_q_loss(logits, target), [expected])
    np.testing.assert_allclose(q_learning.categorical_q_loss(tensor(logits), tensor(target)).numpy(), [expected])


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


# --- the oracle against a second opinion ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_distributions_agree_with_torch(seed):
    rng = np.random.default_rng(seed)
    logits, other = rng.normal(size=(2, 6, 4)) * 2
    p, q = (torch.distributions.Categorical(logits=tensor(array)) for array in (logits, other))
    actions = rng.integers(0, 4, 6)
    np.testing.assert_allclose(reference.categorical_logp(logits, actions), p.log_prob(tensor(actions)))
    np.testing.assert_allclose(reference.categorical_entropy(logits), p.entropy())
    np.testing.assert_allclose(reference.categorical_kl(logits, other), torch.distributions.kl_divergence(p, q))
    mean, log_std, other_mean, other_log_std, x = rng.normal(size=(5, 6, 3))
    g, h = (
        torch.distributions.Normal(tensor(m), tensor(s).exp())
        for m, s in ((mean, log_std), (other_mean, other_log_std))
    )
    np.testing.assert_allclose(reference.diag_gaussian_logp(mean, log_std, x), g.log_prob(tensor(x)).sum(-1))
    np.testing.assert_allclose(reference.diag_gaussian_entropy(log_std), g.entropy().sum(-1))
    np.testing.assert_allclose(
        reference.diag_gaussian_kl(mean, log_std, other_mean, other_log_std),
        torch.distributions.kl_divergence(g, h).sum(-1),
    )


# --- frameworks against the oracle ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_double_q_td_error_agrees_with_oracle(seed):
    batch = q_batch(seed)
    got = q_learning.double_q_td_error(**{key: tensor(array) for key, array in batch.items()})
    np.testing.assert_allclose(got.numpy(), reference.double_q_td_error(**batch), rtol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_q_loss_and_its_gradient_agree_with_oracle(seed):
    batch = q_batch(seed)
    weights = np.random.default_rng(seed + 100).random(7)
    inputs = {key: tensor(array) for key, array in batch.items()}
    inputs["q_t"].requires_grad_(True)
    loss = (tensor(weights) * q_learning.huber(q_learning.double_q_td_error(**inputs))).mean()
    loss.backward()
    error = reference.double_q_td_error(**batch)
    assert loss.item() == pytest.approx(reference.q_loss(error, weights))
    gradient = np.zeros((7, 4))
    gradient[np.arange(7), batch["actions"]] = weights * np.clip(error, -1, 1) / 7
    np.testing.assert_allclose(inputs["q_t"].grad.numpy(), gradient, rtol=1e-10)


def test_double_q_td_error_gradient_flows_through_q_t_only():
    inputs = {key: tensor(array) for key, array in q_batch(0).items()}
    for key in ("q_t", "q_tp1_value", "q_tp1_selector"):
        inputs[key].requires_grad_(True)
    q_learning.double_q_td_error(**inputs).sum().backward()
    assert inputs["q_t"].grad is not None
    assert inputs["q_tp1_value"].grad is None
    assert inputs["q_tp1_selector"].grad is None


@pytest.mark.parametrize("key", ["q_t", "actions", "rewards", "discounts", "q_tp1_value", "q_tp1_selector"])
def test_double_q_td_error_rows_that_differ_are_refused(key):
    inputs = {name: tensor(array) for name, array in q_batch(0).items()}
    inputs[key] = inputs[key][:-1]
    with pytest.raises(ValueError, match=rf"{key} \(6"):
        q_learning.double_q_td_error(**inputs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("atoms", [2, 5, 51])
def test_project_distribution_agrees_with_oracle_and_keeps_mass(seed, atoms):
    rng = np.random.default_rng(seed)
    support = np.linspace(-10.0, 10.0, atoms)
    probs = rng.dirichlet(np.ones(atoms), size=6)
    rewards = np.array([0.0, 30.0, -30.0, 10.0, *rng.normal(size=2) * 3])
    discounts = np.array([1.0, 0.9, 0.9, 0.0, *rng.random(2)])
    got = q_learning.project_distribution(*map(tensor, (probs, rewards, discounts, support))).numpy()
    np.testing.assert_allclose(got, reference.project_distribution(probs, rewards, discounts, support), atol=1e-12)
    np.testing.assert_allclose(got.sum(axis=1), 1.0)
    np.testing.assert_allclose(got[0], probs[0], atol=1e-12)


def test_project_distribution_float32_at_the_edge_of_the_support_stays_inside():
    support = torch.linspace(-10.0, 10.0, 51)
    probs = torch.full((200, 51), 1 / 51)
    rewards = torch.linspace(-25.0, 25.0, 200)
    got = q_learning.project_distribution(probs, rewards, torch.full((200,), 0.99), support)
    torch.testing.assert_close(got.sum(1), torch.ones(200))
    assert (got >= 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_categorical_q_loss_agrees_with_oracle_and_is_at_least_the_entropy(seed):
    rng = np.random.default_rng(seed)
    logits, target = rng.normal(size=(6, 5)), rng.dirichlet(np.ones(5), size=6)
    got = q_learning.categorical_q_loss(tensor(logits), tensor(target)).numpy()
    np.testing.assert_allclose(got, reference.categorical_q_loss(logits, target))
    assert (got >= reference.categorical_entropy(np.log(target)) - 1e-9).all()


def test_categorical_q_loss_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(2, 4\)"):
        q_learning.categorical_q_loss(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"wanted \[B, Z\] and \[Z\]"):
        q_learning.project_distribution(torch.zeros(2, 3), torch.zeros(2), torch.zeros(2), torch.zeros(4))


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4)])
def test_dueling_and_select_by_action_agree_with_oracle(shape):
    rng = np.random.default_rng(0)
    advantages, values = rng.normal(size=shape), rng.normal(size=(5, 1, *shape[2:]))
    got = q_learning.dueling(tensor(values), tensor(advantages))
    expected = reference.dueling(values, advantages)
    np.testing.assert_allclose(got.numpy(), expected)
    actions = rng.integers(0, 3, 5)
    for dtype in (torch.int64, torch.int32, torch.uint8):
        chosen = q_learning.select_by_action(got, torch.as_tensor(actions).to(dtype))
        np.testing.assert_allclose(chosen.numpy(), expected[np.arange(5), actions])
