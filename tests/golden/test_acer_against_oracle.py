"""ACER's formulas by hand and against NumPy, and its losses and gradients against sums taken row by row."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.acer.acer_policy import ACERTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses import trust_region
from rlframe.losses.retrace import retrace
from tests.contract.test_policies import config_of
from tests.helpers import loss_oracle as reference
from tests.helpers.frameworks import both_frameworks as both
from tests.helpers.frameworks import gradients_of
from tests.helpers.frameworks import to_tensor as tensor

DISCRETE, BOX = gym.spaces.Discrete(3), gym.spaces.Box(-2, 2, (2,), np.float32)
OBS = gym.spaces.Box(-10, 10, (4,), np.float32)
LENS = np.array([4, 2, 1, 3], np.int32)


# --- Retrace ----------------------------------------------------------------------------------------------------------


def by_hand():
    """Two trajectories of 3 and 2 rows, γ = 1/2; the first was cut, the second terminated.

    errors   1 + ½·4 − 2 = 1,  2 + ½·6 − 4 = 1,  0 + ½·8 − 6 = −2   and   1 + ½·2 − 4 = −2,  3 − 2 = 1
    decays   ½·½ = ¼, ½·1 = ½, –   and   ½·0 = 0, –
    sums     1 + ¼·0 = 1,  1 + ½·(−2) = 0,  −2   and   −2 + 0,  1
    """
    columns = {
        "rewards": np.array([1.0, 2.0, 0.0, 1.0, 3.0]),
        "discounts": np.array([0.5, 0.5, 0.5, 0.5, 0.0]),
        "traces": np.array([1.0, 0.5, 1.0, 1.0, 0.0]),
        "q_taken": np.array([2.0, 4.0, 6.0, 4.0, 2.0]),
        "values_next": np.array([4.0, 6.0, 8.0, 2.0, 0.0]),
        "ends": np.array([False, False, True, False, True]),
    }
    return columns, [3.0, 4.0, 4.0, 2.0, 3.0]


def random_columns(seed, dtype="float64", rows=57):
    rng = np.random.default_rng(seed)
    ends = rng.random(rows) < 0.12
    ends[-1] = True
    terminated = ends & (rng.random(rows) < 0.5)
    columns = {
        "rewards": rng.normal(size=rows),
        "discounts": 0.97 * ~terminated,
        "traces": rng.random(rows),
        "q_taken": rng.normal(size=rows),
        "values_next": rng.normal(size=rows),
    }
    return {**{name: column.astype(dtype) for name, column in columns.items()}, "ends": ends}


def made_by(framework, columns):
    return retrace(*(tensor(framework, column) for column in columns.values())).numpy()


@both
def test_retrace_by_hand(framework):
    columns, targets = by_hand()
    np.testing.assert_allclose(made_by(framework, columns), targets)
    np.testing.assert_allclose(reference.retrace(**columns), targets)


@both
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
@pytest.mark.parametrize("rows", [1, 2, 33, 57])
def test_retrace_against_the_oracle(framework, dtype, tolerance, rows):
    columns = random_columns(rows, dtype, rows)
    made = made_by(framework, columns)
    np.testing.assert_allclose(made, reference.retrace(**columns), rtol=tolerance, atol=tolerance)
    assert made.dtype == dtype


def test_retrace_on_policy_is_n_step_returns_where_actions_are_worth_what_their_states_are():
    columns = random_columns(3)
    columns["traces"] = np.ones(57)
    columns["q_taken"][1:] = np.where(columns["ends"][:-1], columns["q_taken"][1:], columns["values_next"][:-1])
    returns, after = np.zeros(57), 0.0
    for t in reversed(range(57)):
        after = returns[t] = columns["rewards"][t] + columns["discounts"][t] * (
            columns["values_next"][t] if columns["ends"][t] else after
        )
    np.testing.assert_allclose(made_by("torch", columns), returns)


def test_retrace_is_cut_where_the_policy_would_never_have_acted_so():
    columns = random_columns(4)
    columns["traces"] = np.zeros(57)
    one_step = columns["rewards"] + columns["discounts"] * columns["values_next"]
    np.testing.assert_allclose(made_by("torch", columns), one_step)


# --- the trust region -------------------------------------------------------------------------------------------------


@both
def test_projection_by_hand(framework):
    """k·g is 8, 1 and 0 with ‖k‖² = 4: the first gives up (8 − 2) / 4 = 1.5 times k, the others are within δ = 2."""
    g, k = np.array([[4.0, 1.0], [0.5, 3.0], [7.0, 7.0]]), np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    made = trust_region.projected(tensor(framework, g), tensor(framework, k), 2.0).numpy()
    np.testing.assert_allclose(made, [[1.0, 1.0], [0.5, 3.0], [7.0, 7.0]])


@both
def test_projection_is_the_nearest_allowed_vector(framework):
    rng, delta = np.random.default_rng(0), 0.3
    g, k = rng.normal(size=(200, 5)), rng.normal(size=(200, 5))
    made = trust_region.projected(tensor(framework, g), tensor(framework, k), delta).numpy()
    slope = (k * g).sum(1)
    inside = slope <= delta
    assert 0.2 < inside.mean() < 0.8
    np.testing.assert_array_equal(made[inside], g[inside])
    np.testing.assert_allclose((k * made).sum(1)[~inside], delta)
    # Any other allowed vector is further away: those along the bound, and those within it.
    distance = np.linalg.norm(made - g, axis=1)
    for _ in range(20):
        other = made + rng.normal(scale=0.3, size=g.shape)
        surplus = np.maximum((k * other).sum(1) - delta, 0.0) / (k * k).sum(1)
        other -= surplus[:, None] * k
        assert (np.linalg.norm(other - g, axis=1) >= distance - 1e-12).all()


def kl_of_gaussians(mean, log_std, average_mean, average_log_std):
    return reference.diag_gaussian_kl(average_mean, average_log_std, mean, log_std)


def slopes(function, x, step=1e-6):
    """Returns d function / d x, number by number."""
    made = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        made[place] = (function(up).sum() - function(down).sum()) / (2.0 * step)
    return made


@both
def test_gradients_of_gaussians_are_finite_differences(framework):
    mean, log_std, other, log_other, x = np.random.default_rng(1).normal(scale=0.7, size=(5, 6, 3))
    given = [tensor(framework, array) for array in (mean, log_std, other, log_other)]
    both_statistics = np.concatenate([mean, log_std], axis=1)

    def kl(statistics):
        return kl_of_gaussians(statistics[:, :3], statistics[:, 3:], other, log_other)

    def logp(statistics):
        return reference.diag_gaussian_logp(statistics[:, :3], statistics[:, 3:], x)

    made = trust_region.gaussian_kl_gradient(*given).numpy()
    np.testing.assert_allclose(made, slopes(kl, both_statistics), rtol=1e-5, atol=1e-6)
    made = trust_region.gaussian_score(tensor(framework, x), *given[:2]).numpy()
    np.testing.assert_allclose(made, slopes(logp, both_statistics), rtol=1e-5, atol=1e-6)
    made = trust_region.gaussian_logp(tensor(framework, x), *given[:2]).numpy()
    constant = reference.diag_gaussian_logp(mean, log_std, x) - made
    np.testing.assert_allclose(constant, -1.5 * np.log(2.0 * np.pi))


@both
def test_gradient_of_the_divergence_of_choices(framework):
    rng = np.random.default_rng(2)
    probs, average = rng.dirichlet(np.ones(4), 5), rng.dirichlet(np.ones(4), 5)
    made = trust_region.categorical_kl_gradient(tensor(framework, probs), tensor(framework, average), 0.0).numpy()
    wanted = slopes(lambda p: (average * np.log(average / p)).sum(1), probs)
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


# --- whole losses -----------------------------------------------------------------------------------------------------


def policy_of(space, **overrides):
    name = "ACER" if space is DISCRETE else "continuous ACER"
    policy = ACERTorchPolicy(OBS, space, config_of(name, framework="torch", **overrides))
    for seed in range(3):  # the average policy lags behind
        policy.learn_on_batch(sequences(space, seed))
    assert any((a != b).any() for a, b in zip(weights_of(policy), weights_of(policy, average=True), strict=True))
    return policy


def weights_of(policy, *, average=False):
    found = (policy.target_network if average else policy).get_weights()
    return [found[f"actor.{name}"] for name in ("output.weight", "output.bias")]


def sequences(space, seed):
    rng, rows = np.random.default_rng(seed), int(LENS.sum())
    actions = rng.integers(3, size=rows) if space is DISCRETE else rng.uniform(-0.95, 0.95, (rows, 2))
    obs = rng.normal(size=(rows, 4)).astype(np.float32)
    next_obs, begin = rng.normal(size=(rows, 4)).astype(np.float32), 0
    for length in LENS:
        next_obs[begin : begin + length - 1] = obs[begin + 1 : begin + length]
        begin += length
    return SampleBatch(
        {
            "obs": obs,
            "new_obs": next_obs,
            "actions": actions if space is DISCRETE else actions.astype(np.float32),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "discounts": (0.9 * (rng.random(rows) > 0.3)).astype(np.float32),
            "action_dist_inputs": rng.normal(scale=0.4, size=(rows, 3 if space is DISCRETE else 4)).astype(np.float32),
            "seq_lens": LENS,
        }
    )


def network(weights, name, x):
    x = np.asarray(x, np.float64)
    for layer, activation in (("hidden_0", np.tanh), ("hidden_1", np.tanh), ("output", lambda y: y)):
        x = activation(x @ weights[f"{name}.{layer}.weight"].T.astype(np.float64) + weights[f"{name}.{layer}.bias"])
    return x


def sequence_ends():
    return np.isin(np.arange(LENS.sum()), np.cumsum(LENS) - 1)


def trusted(g, k, delta):
    surplus = max(0.0, (float(k @ g) - delta) / float(k @ k))
    return g - surplus * k


@pytest.mark.parametrize(
    "overrides",
    [{"importance_c": 1.2, "delta": 0.5}, {"trust_region": False, "lambda": 0.7, "entropy_coeff": 0.1}],
    ids=["trust region", "none"],
)
def test_the_loss_of_choices_is_that_taken_row_by_row(overrides):
    policy, batch = policy_of(DISCRETE, **overrides), sequences(DISCRETE, 9)
    config, weights, average = policy.config, policy.get_weights(), policy.target_network.get_weights()
    pi, q = reference.softmax(network(weights, "actor", batch["obs"])), network(weights, "critic", batch["obs"])
    next_pi = reference.softmax(network(weights, "actor", batch["new_obs"]))
    next_values = (next_pi * network(weights, "critic", batch["new_obs"])).sum(1)
    held_by, mu = (
        reference.softmax(network(average, "actor", batch["obs"])),
        reference.softmax(batch["action_dist_inputs"]),
    )
    rows, actions = np.arange(len(pi)), batch["actions"]
    ratio, value = (pi / mu)[rows, actions], (pi * q).sum(1)
    targets = reference.retrace(
        batch["rewards"], batch["discounts"], config["lambda"] * np.minimum(ratio, 1.0), q[rows, actions], next_values,
        sequence_ends(),
    )  # fmt: skip
    bias_gradient, held = np.zeros(3), 0
    for t in rows:
        g, c = np.zeros(3), config.importance_c
        g[actions[t]] = min(c, ratio[t]) * (targets[t] - value[t]) / pi[t, actions[t]]
        for a in range(3):
            g[a] += max(0.0, 1.0 - c / (pi[t, a] / mu[t, a])) * (q[t, a] - value[t])
            g[a] -= config.entropy_coeff * (np.log(pi[t, a]) + 1.0)
        k = -held_by[t] / pi[t]
        held += k @ g > config.delta
        z = trusted(g, k, config.delta) if config.trust_region else g
        bias_gradient -= pi[t] * (z - pi[t] @ z) / len(rows)  # through softmax
    vf_loss = np.mean(0.5 * (targets - q[rows, actions]) ** 2)
    gradients, info = policy.compute_gradients(batch)
    stats = info["learner_stats"]
    assert stats["vf_loss"] == pytest.approx(vf_loss, rel=1e-4)
    assert stats["mean_q_target"] == pytest.approx(targets.mean(), rel=1e-4)
    assert stats["mean_ratio"] == pytest.approx(ratio.mean(), rel=1e-4)
    assert stats["beyond_trust_region"] == pytest.approx(held / len(rows))
    assert 0 < held < len(rows)
    assert stats["entropy"] == pytest.approx(-(pi * np.log(pi)).sum(1).mean(), rel=1e-4)
    np.testing.assert_allclose(of_bias(policy, gradients), bias_gradient, rtol=2e-3, atol=1e-5)


def of_bias(policy, gradients):
    """Returns the gradient of the actor's last biases."""
    names = list(policy.model.trainable_variables(as_dict=True))
    return np.asarray(gradients[names.index("actor.output.bias")])


def test_the_loss_of_numbers_is_that_taken_row_by_row():
    policy, batch = (
        policy_of(BOX, importance_c=1.2, delta=0.5, num_dueling_samples=3, grad_clip=None),
        sequences(BOX, 9),
    )
    config, weights, average = policy.config, policy.get_weights(), policy.target_network.get_weights()
    drawn = {}
    keep_noise(policy, drawn)
    gradients, info = policy.compute_gradients(batch)
    stats = info["learner_stats"]
    padded = np.concatenate([np.arange(length) + 5 * number for number, length in enumerate(LENS)])
    noise, dueling_noise = drawn["action_noise"][padded], drawn["dueling_noise"][padded]

    def split(inputs):
        return inputs[:, :2], np.clip(inputs[:, 2:], -20.0, 2.0)

    (mean, log_std), mu = split(network(weights, "actor", batch["obs"])), split(batch["action_dist_inputs"])
    held_by = split(network(average, "actor", batch["obs"]))
    values = network(weights, "value", batch["obs"])[:, 0]
    next_values = network(weights, "value", batch["new_obs"])[:, 0]
    raw, rows = np.arctanh(batch["actions"].astype(np.float64)), np.arange(LENS.sum())
    own = mean + np.exp(log_std) * noise

    def advantages(actions):
        return network(weights, "advantage", np.concatenate([batch["obs"], actions], axis=1))[:, 0]

    def ratio_of(x):
        return np.exp(reference.diag_gaussian_logp(mean, log_std, x) - reference.diag_gaussian_logp(*mu, x))

    compared = [np.tanh(mean + np.exp(log_std) * dueling_noise[:, 2 * i : 2 * i + 2]) for i in range(3)]
    baseline = np.mean([advantages(actions) for actions in compared], axis=0)
    q, own_q = (values + advantages(actions) - baseline for actions in (batch["actions"], np.tanh(own)))
    ratio, own_ratio = ratio_of(raw), ratio_of(own)
    columns = (batch["rewards"], batch["discounts"])
    targets = reference.retrace(*columns, np.minimum(1.0, np.sqrt(ratio)), q, next_values, sequence_ends())
    uncorrected = reference.retrace(*columns, np.ones_like(ratio), q, next_values, sequence_ends())

    def score(x, t):
        apart = (x[t] - mean[t]) / np.exp(2.0 * log_std[t])
        return np.concatenate([apart, apart * (x[t] - mean[t]) - 1.0])

    bias_gradient, c, corrected = np.zeros(4), config.importance_c, 0
    for t in rows:
        g = min(c, ratio[t]) * (uncorrected[t] - values[t]) * score(raw, t)
        g += max(0.0, 1.0 - c / own_ratio[t]) * (own_q[t] - values[t]) * score(own, t)
        g += config.entropy_coeff * np.array([0.0, 0.0, 1.0, 1.0])
        variance = np.exp(2.0 * log_std[t])
        apart = mean[t] - held_by[0][t]
        k = np.concatenate([apart / variance, 1.0 - (np.exp(2.0 * held_by[1][t]) + apart**2) / variance])
        bias_gradient -= trusted(g, k, config.delta) / len(rows)
        corrected += own_ratio[t] > c
    assert 0 < corrected < len(rows)
    value_targets = values + np.minimum(1.0, ratio) * (targets - q)
    vf_loss = np.mean(0.5 * (targets - q) ** 2 + 0.5 * (value_targets - values) ** 2)
    assert stats["vf_loss"] == pytest.approx(vf_loss, rel=1e-3)
    assert stats["mean_ratio"] == pytest.approx(ratio.mean(), rel=1e-3)
    assert stats["mean_q_target"] == pytest.approx(targets.mean(), rel=1e-3)
    np.testing.assert_allclose(of_bias(policy, gradients), bias_gradient, rtol=2e-3, atol=1e-5)


def keep_noise(policy, drawn):
    original = policy.random_columns
    policy.random_columns = lambda rows, rng: drawn.update(made := original(rows, rng)) or made


def test_values_of_both_critics_move_to_their_targets():
    """∂/∂V of both terms is −(Q^ret − Q) and −min(1, ρ)(Q^ret − Q); the advantage network's bias moves nothing."""
    policy, batch = policy_of(BOX, grad_clip=None, vf_loss_coeff=1.0), sequences(BOX, 4)
    gradients, _ = policy.compute_gradients(batch)
    names = list(policy.model.trainable_variables(as_dict=True))
    assert abs(float(np.asarray(gradients[names.index("advantage.output.bias")])[0])) < 1e-6
    assert abs(float(np.asarray(gradients[names.index("value.output.bias")])[0])) > 1e-3


@both
def test_nothing_flows_into_targets(framework):
    columns, _ = by_hand()
    ends = tensor(framework, columns.pop("ends"))
    arrays = [columns[name] for name in ("traces", "values_next")]
    floats = [tensor(framework, columns[name]) for name in ("rewards", "discounts", "q_taken")]

    def targets(traces, values_next):
        return retrace(floats[0], floats[1], traces, floats[2], values_next, ends) + 0.0 * traces

    flows, nothing = gradients_of(framework, targets, arrays)
    np.testing.assert_array_equal(flows, 0.0)
    assert nothing is None
