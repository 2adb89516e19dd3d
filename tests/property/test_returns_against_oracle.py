"""Vectorised returns equal the oracle's explicit loops, for any rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlframe.data.column_dict import continues, trajectory_ends
from rlframe.data.n_step import n_step
from rlframe.data.returns import discount_cumsum, gae
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_advantages
from tests.helpers import loss_oracle as reference

unit = st.floats(0.0, 1.0, width=32)


@st.composite
def fragments(draw: st.DrawFn) -> SampleBatch:
    """Several trajectories, each ended by termination, truncation, or the end of its fragment."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pieces = draw(
        st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["terminated", "truncated", "cut"])), max_size=5)
    )
    lengths = [length for length, _ in pieces]
    rows = sum(lengths)
    lasts = np.cumsum(lengths, dtype=np.int64) - 1
    flags = {how: np.zeros(rows, bool) for how in ("terminated", "truncated", "cut")}
    for last, (_, how) in zip(lasts, pieces, strict=True):
        flags[how][last] = True
    starts = [int(rng.integers(0, 50)) for _ in lengths]
    steps = [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    # Neighbours may share an episode or an agent: any one label that differs must be enough.
    kind = draw(st.sampled_from(["eps_id", "agent_index", "t"]))
    numbers = np.repeat(np.arange(len(lengths)), lengths).astype(np.int64)
    return SampleBatch.from_columns(
        {
            "obs": np.arange(rows),
            "new_obs": np.arange(rows) + 1000,
            "rewards": rng.normal(size=rows).astype(np.float32),
            "terminateds": flags["terminated"],
            "truncateds": flags["truncated"],
            "dones": flags["terminated"] | flags["truncated"],
            "eps_id": numbers if kind == "eps_id" else np.zeros(rows, np.int64),
            "agent_index": numbers if kind == "agent_index" else np.zeros(rows, np.int64),
            "t": np.concatenate(steps) + (numbers * 100 if kind == "t" else 0) if rows else np.zeros(0, np.int64),
            "piece": numbers,
        }
    )


@given(fragments(), st.integers(1, 10), unit)
def test_n_step_equals_the_loop(batch, n, gamma):
    rows = batch.count
    follows = np.append(batch["piece"][1:] == batch["piece"][:-1], False)[:rows]
    expected = reference.n_step(batch["rewards"], batch["terminateds"], batch["dones"], follows, n, gamma)
    before = batch.copy()
    made = n_step(batch, n, gamma)
    last = expected["last"].astype(int)
    np.testing.assert_allclose(made["rewards"], expected["rewards"], rtol=1e-5, atol=1e-5)
    # Below the smallest normal float32 a product keeps fewer digits; that is the type, not the return.
    tiny = float(np.finfo(np.float32).tiny)
    np.testing.assert_allclose(made["discounts"], expected["discounts"], rtol=1e-6, atol=tiny)
    np.testing.assert_array_equal(made["n_steps"], expected["n_steps"])
    for key in ("new_obs", "terminateds", "truncateds", "dones"):
        np.testing.assert_array_equal(made[key], before[key][last])
    np.testing.assert_array_equal(made["obs"], before["obs"])
    assert (made["rewards"].dtype, made["discounts"].dtype, made["n_steps"].dtype) == (np.float32, np.float32, np.int32)


@given(fragments())
def test_trajectory_ends_are_where_pieces_end(batch):
    pieces = batch["piece"]
    assert continues(batch).tolist() == (pieces[1:] == pieces[:-1]).tolist()
    assert int(trajectory_ends(batch).sum()) == len(set(pieces.tolist()))


@given(fragments(), unit, unit, st.integers(0, 2**32 - 1))
def test_gae_equals_the_loop(batch, gamma, lambda_, seed):
    values, after = np.random.default_rng(seed).normal(size=(2, batch.count)).astype(np.float32)
    ends = trajectory_ends(batch)
    arguments = (batch["rewards"], values, after, batch["terminateds"], ends, gamma, lambda_)
    for got, wanted in zip(gae(*arguments), reference.gae(*arguments), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@given(st.lists(st.floats(-10, 10, width=32), max_size=20), unit)
def test_discount_cumsum_equals_the_sum_written_out(values, gamma):
    wanted = [sum(gamma**later * value for later, value in enumerate(values[t:])) for t in range(len(values))]
    np.testing.assert_allclose(discount_cumsum(np.array(values, np.float64), gamma), wanted, rtol=1e-6, atol=1e-6)


@given(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=12), unit, st.integers(0, 999))
def test_gae_with_lambda_one_gives_discounted_returns(rewards, gamma, seed):
    rng = np.random.default_rng(seed)
    columns = {"rewards": np.array(rewards, np.float32), "vf_preds": rng.normal(size=len(rewards)).astype(np.float32)}
    one, other = SampleBatch(dict(columns)), SampleBatch(dict(columns))
    compute_advantages(one, 2.0, gamma=gamma, lambda_=1.0)
    compute_advantages(other, 2.0, gamma=gamma, use_gae=False)
    for key in ("advantages", "value_targets"):
        np.testing.assert_allclose(one[key], other[key], rtol=1e-4, atol=1e-4)
