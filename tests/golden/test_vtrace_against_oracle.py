"""V-trace of both frameworks: numbers worked by hand, and the oracle."""

import numpy as np
import pytest

from rlframe.losses import vtrace as losses
from tests.helpers import loss_oracle as reference
from tests.helpers.frameworks import both_frameworks as both
from tests.helpers.frameworks import gradients_of, needs_tf
from tests.helpers.frameworks import to_tensor as tensor

SEEDS = range(4)
precisions = pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])


def by_hand():
    """Two trajectories of 3 and 2 rows, γ = 1/2, ratios 2, 1/2, 1 and 1/2, 4; the first was cut, the second terminated.

    deltas   1·(1 + 2 − 2) = 1,  ½·(2 + ½·6 − 4) = ½,  1·(0 + ½·8 − 6) = −2   and   ½·(1 + ½·2 − 4) = −1, 1·(3 − 2) = 1
    traces   c·γ = ½, ¼, –   and   ¼, –
    sums     1 + ½·0 = 1,  ½ + ¼·(−2) = 0,  −2   and   −1 + ¼·1 = −¾,  1
    """
    columns = {
        "logp": np.log([2.0, 0.5, 1.0, 0.5, 4.0]),
        "behaviour_logp": np.zeros(5),
        "rewards": np.array([1.0, 2.0, 0.0, 1.0, 3.0]),
        "values": np.array([2.0, 4.0, 6.0, 4.0, 2.0]),
        "values_next": np.array([4.0, 6.0, 8.0, 2.0, 0.0]),
        "discounts": np.array([0.5, 0.5, 0.5, 0.5, 0.0]),
        "ends": np.array([False, False, True, False, True]),
    }
    targets = [3.0, 4.0, 4.0, 3.25, 3.0]
    # r + γ v_next − V: 1 + 2 − 2, 2 + 2 − 4, 0 + 4 − 6, 1 + 1.5 − 4, 3 − 2; times the ratios, at most 1.
    advantages = [1.0, 0.0, -2.0, -0.75, 1.0]
    return columns, targets, advantages


def random_columns(seed, dtype="float64", rows=57):
    rng = np.random.default_rng(seed)
    ends = rng.random(rows) < 0.12
    ends[-1] = True
    terminated = ends & (rng.random(rows) < 0.5)
    values = rng.normal(size=rows)
    after = rng.normal(size=rows)
    columns = {
        "logp": rng.normal(-1.0, 0.5, rows),
        "behaviour_logp": rng.normal(-1.0, 0.5, rows),
        "rewards": rng.normal(size=rows),
        "values": values,
        "values_next": np.where(ends, after, np.roll(values, -1)),
        "discounts": 0.97 * ~terminated,
    }
    return {**{name: column.astype(dtype) for name, column in columns.items()}, "ends": ends}


def test_oracle_by_hand():
    columns, targets, advantages = by_hand()
    made = reference.vtrace(**columns)
    np.testing.assert_allclose(made[0], targets)
    np.testing.assert_allclose(made[1], advantages)


@pytest.mark.parametrize("lambda_", [0.0, 0.9, 1.0])
def test_oracle_on_policy_is_gae(lambda_):
    columns = random_columns(0)
    columns["logp"] = columns["behaviour_logp"]
    made, _ = reference.vtrace(**columns, lambda_=lambda_)
    terminated = columns["discounts"] == 0
    _, wanted = reference.gae(
        columns["rewards"], columns["values"], columns["values_next"], terminated, columns["ends"], 0.97, lambda_
    )
    np.testing.assert_allclose(made, wanted)


@both
def test_vtrace_by_hand_with_lambda_one_half(framework):
    """Only the first trajectory's first two sums change: ½ + ½·¼·(−2) = ¼, 1 + ½·½·¼; and −1 + ½·¼·1 = −⅞."""
    columns, _, _ = by_hand()
    columns = {name: tensor(framework, column) for name, column in columns.items()}
    made = losses.vtrace(**columns, lambda_=0.5)
    np.testing.assert_allclose(made.targets.numpy(), [3.0625, 4.25, 4.0, 3.125, 3.0])
    # 1 + ½·4.25 − 2, ½·(2 + ½·4 − 4), −2, ½·(1 + ½·3 − 4), 1
    np.testing.assert_allclose(made.advantages.numpy(), [1.125, 0.0, -2.0, -0.75, 1.0])


@both
def test_vtrace_by_hand(framework):
    columns, targets, advantages = by_hand()
    made = losses.vtrace(**{name: tensor(framework, column) for name, column in columns.items()})
    np.testing.assert_allclose(made.targets.numpy(), targets)
    np.testing.assert_allclose(made.advantages.numpy(), advantages)


@both
@precisions
@pytest.mark.parametrize("options", [(1.0, 1.0), (2.0, 0.7, 0.9), (None, None, 0.0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_vtrace_against_the_oracle(framework, dtype, tolerance, options, seed):
    columns = random_columns(seed, dtype)
    made = losses.vtrace(*(tensor(framework, column) for column in columns.values()), *options)
    targets, advantages = reference.vtrace(*columns.values(), *options)
    np.testing.assert_allclose(made.targets.numpy(), targets, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(made.advantages.numpy(), advantages, rtol=tolerance, atol=tolerance)
    assert made.targets.numpy().dtype == dtype


@both
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 31, 32, 33, 200])
def test_one_trajectory_of_any_length(framework, rows):
    columns = random_columns(rows, rows=max(rows, 1))
    columns = {name: column[:rows] for name, column in columns.items()}
    columns["ends"] = np.arange(rows) == rows - 1
    made = losses.vtrace(*(tensor(framework, column) for column in columns.values()))
    np.testing.assert_allclose(made.targets.numpy(), reference.vtrace(*columns.values())[0], atol=1e-10)


def batch_of(framework, seed, dtype="float64"):
    columns = random_columns(seed, dtype)
    after = np.where(columns["ends"] & (columns["discounts"] > 0), columns["values_next"], 0.0).astype(dtype)
    batch = {
        "action_logp": columns["behaviour_logp"],
        "rewards": columns["rewards"],
        "discounts": columns["discounts"],
        "trajectory_ends": columns["ends"],
        "values_after": after,
    }
    return columns, {name: tensor(framework, column) for name, column in batch.items()}


@both
@pytest.mark.parametrize("seed", SEEDS)
def test_batches_bootstrap_with_what_was_sampled(framework, seed):
    columns, batch = batch_of(framework, seed)
    logp, values = tensor(framework, columns["logp"]), tensor(framework, columns["values"])
    made, counts = losses.batch_vtrace(batch, logp, values, drop_last=False)
    assert counts is None
    targets, advantages = reference.vtrace(*columns.values())
    np.testing.assert_allclose(made.targets.numpy(), targets, atol=1e-10)
    np.testing.assert_allclose(made.advantages.numpy(), advantages, atol=1e-10)


@both
@pytest.mark.parametrize("seed", SEEDS)
def test_last_rows_of_cut_trajectories_give_their_value_and_no_more(framework, seed):
    columns, batch = batch_of(framework, seed)
    logp, values = tensor(framework, columns["logp"]), tensor(framework, columns["values"])
    made, counts = losses.batch_vtrace(batch, logp, values, drop_last=True)
    cut = columns["ends"] & (columns["discounts"] > 0)
    assert 0 < cut.sum() < columns["ends"].sum()
    np.testing.assert_array_equal(counts.numpy(), ~cut)
    # The same by leaving the rows out: the row before ends there, and is followed by the value of the row left out.
    kept = {name: column[~cut] for name, column in columns.items()}
    kept["ends"] = (columns["ends"] | np.append(cut[1:], False))[~cut]
    targets, advantages = reference.vtrace(*kept.values())
    np.testing.assert_allclose(made.targets.numpy()[~cut], targets, atol=1e-10)
    np.testing.assert_allclose(made.advantages.numpy()[~cut], advantages, atol=1e-10)


@both
@pytest.mark.parametrize("drop_last", [False, True])
def test_padding_rows_change_nothing(framework, drop_last):
    columns, plain = batch_of(framework, 1)
    rows = len(columns["ends"])
    padded, position = [], []
    for row in range(rows):
        position.append(len(padded))
        padded += [row] + [-1] * (3 if columns["ends"][row] else 0)
    padded = np.array(padded)

    def pad(column, value):
        wide = np.full(len(padded), value, column.dtype)
        wide[position] = column
        return tensor(framework, wide)

    batch = {name: pad(column.numpy(), 0) for name, column in plain.items()}
    batch["valid_mask"] = tensor(framework, padded >= 0)
    logp, values = tensor(framework, columns["logp"]), tensor(framework, columns["values"])
    wanted, wanted_counts = losses.batch_vtrace(plain, logp, values, drop_last=drop_last)
    # What a network says of padding is anything.
    made, counts = losses.batch_vtrace(
        batch, pad(columns["logp"], -3.0), pad(columns["values"], 7.0), drop_last=drop_last
    )
    expected = np.ones(rows, bool) if wanted_counts is None else wanted_counts.numpy()
    np.testing.assert_array_equal(counts.numpy()[position], expected)
    assert counts.numpy().sum() == expected.sum()
    np.testing.assert_allclose(made.targets.numpy()[position][expected], wanted.targets.numpy()[expected])
    np.testing.assert_allclose(made.advantages.numpy()[position][expected], wanted.advantages.numpy()[expected])


@both
def test_next_values_are_the_next_rows_within_a_trajectory(framework):
    made = losses.next_values(
        tensor(framework, np.array([1.0, 2.0, 3.0, 4.0])),
        tensor(framework, np.array([0.0, 9.0, 0.0, 8.0])),
        tensor(framework, np.array([False, True, False, True])),
    )
    assert made.numpy().tolist() == [2.0, 9.0, 4.0, 8.0]


@both
def test_no_gradient_flows(framework):
    *columns, ends = random_columns(0).values()
    for part in ("targets", "advantages"):
        made = gradients_of(framework, lambda *x: getattr(losses.vtrace(*x, tensor(framework, ends)), part), columns)  # noqa: B023
        assert made[0] is made[1] is made[3] is made[4] is None


@needs_tf
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_trace_serves_all_sizes(jit_compile):
    import tensorflow as tf

    traces = []

    @tf.function(
        autograph=False,
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec([None], tf.bool if i == 6 else tf.float64) for i in range(7)],
    )
    def run(*columns):
        traces.append(1)
        return losses.vtrace(*columns)

    for rows in (3, 57, 200):
        columns = random_columns(rows, rows=rows)
        made = run(*(tf.constant(column) for column in columns.values()))
        np.testing.assert_allclose(made.targets.numpy(), reference.vtrace(*columns.values())[0], atol=1e-10)
    assert len(traces) == 1


@both
def test_rllibs_columns_give_the_same_numbers(framework):
    rng = np.random.default_rng(3)
    log_rhos, rewards, values = (rng.normal(size=(7, 3)) for _ in range(3))
    discounts = 0.9 * (rng.random((7, 3)) > 0.2)
    bootstrap = rng.normal(size=3)
    made = losses.from_importance_weights(
        *(tensor(framework, array) for array in (log_rhos, discounts, rewards, values, bootstrap)), 1.0, 0.8
    )
    for column in range(3):
        targets, advantages = reference.vtrace(
            log_rhos[:, column],
            np.zeros(7),
            rewards[:, column],
            values[:, column],
            np.append(values[1:, column], bootstrap[column]),
            discounts[:, column],
            np.arange(7) == 6,
            1.0,
            0.8,
        )
        np.testing.assert_allclose(made.vs.numpy()[:, column], targets, atol=1e-10)
        np.testing.assert_allclose(made.pg_advantages.numpy()[:, column], advantages, atol=1e-10)
