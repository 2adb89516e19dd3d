"""Whatever the rows: slicing, splitting, joining, padding and compressing lose, double and reorder nothing."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.data.sequences import pad_batch_to_sequences_of_same_size


@st.composite
def batches(draw: st.DrawFn, min_rows: int = 0) -> SampleBatch:
    """Rows numbered in `id`, with nested columns and trajectories of random lengths."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1 if min_rows else 0, max_size=5))
    ids = np.arange(sum(lengths))
    return SampleBatch.from_columns(
        {
            "obs": {"a": ids[:, None] * np.ones((1, 2), np.float32), "b": (ids * 3,)},
            "id": ids,
            "eps_id": np.repeat(np.arange(len(lengths)), lengths).astype(np.int64),
            "t": np.concatenate([np.arange(length) for length in lengths] or [np.zeros(0, np.int64)]),
        }
    )


@st.composite
def sequence_batches(draw: st.DrawFn) -> SampleBatch:
    """Unpadded sequences, some of length 0, whose state is their number."""
    lens = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    ids = np.arange(sum(lens))
    return SampleBatch(
        {"id": ids, "state_in_0": np.arange(len(lens))[:, None] * 1.0, "seq_lens": np.array(lens, np.int32)},
        _max_seq_len=5,
    )


def check_aligned(batch: SampleBatch) -> None:
    np.testing.assert_array_equal(batch["obs"]["a"][:, 0], batch["id"])
    np.testing.assert_array_equal(batch["obs"]["b"][0], batch["id"] * 3)


def ids_of(parts: list[SampleBatch]) -> list[int]:
    return [int(number) for part in parts for number in part["id"]]


@given(batches(), st.integers(1, 9))
def test_timeslices_by_size_then_concat_is_identity(batch, size):
    parts = batch.timeslices(size)
    assert all(part.count == size for part in parts[:-1])
    joined = SampleBatch.concat_samples(parts) if parts else batch
    check_aligned(joined)
    assert joined["id"].tolist() == batch["id"].tolist()


@given(batches(), st.integers(1, 9))
def test_timeslices_by_number_differ_by_at_most_one_row(batch, number):
    parts = batch.timeslices(num_slices=number)
    assert ids_of(parts) == batch["id"].tolist()
    assert len({part.count for part in parts} | {batch.count // number}) <= 2


@given(batches(), st.lists(st.integers(0, 30), max_size=4))
def test_any_cuts_then_concat_is_identity(batch, cuts):
    edges = [0, *sorted(min(cut, batch.count) for cut in cuts), batch.count]
    parts = [batch[start:stop] for start, stop in pairwise(edges)]
    joined = SampleBatch.concat_samples(parts)
    assert joined["id"].tolist() == batch["id"].tolist()
    check_aligned(joined)


@given(batches())
def test_split_by_episode_then_concat_is_identity(batch):
    parts = batch.split_by_episode()
    assert ids_of(parts) == batch["id"].tolist()
    assert all(len(set(part["eps_id"].tolist())) == 1 for part in parts)


@given(batches(), st.integers(0, 2**32 - 1))
def test_shuffle_is_a_permutation_of_whole_rows(batch, seed):
    shuffled = batch.copy().shuffle(np.random.default_rng(seed))
    check_aligned(shuffled)
    assert sorted(shuffled["id"].tolist()) == batch["id"].tolist()


@given(batches())
def test_rows_rebuild_the_batch(batch):
    rows = list(batch.rows())
    assert [row["id"] for row in rows] == batch["id"].tolist()
    assert [row["obs"]["b"][0] for row in rows] == (batch["id"] * 3).tolist()


@given(batches(min_rows=1), st.booleans())
def test_compress_then_decompress_is_identity(batch, bulk):
    packed = batch.copy()
    packed.compress(bulk=bulk, columns=["obs", "id"])
    packed.decompress_if_needed(["obs", "id"])
    check_aligned(packed)
    assert packed["id"].dtype == batch["id"].dtype


@given(batches(), sequence_batches())
def test_copy_and_pickle_are_equal(plain, cut):
    for batch in (plain, cut):
        for clone in (batch.copy(), batch.copy(shallow=True), pickle.loads(pickle.dumps(batch, 5))):
            assert list(clone) == list(batch)
            assert clone["id"].tolist() == batch["id"].tolist()
            assert clone.max_seq_len == batch.max_seq_len
            assert clone.count == batch.count


@given(sequence_batches(), st.integers(1, 12), st.booleans())
def test_timeslices_of_sequences_lose_no_sequence_that_has_rows(batch, size, padded):
    valid = [length for length in batch["seq_lens"].tolist() if length]
    if padded:
        batch.right_zero_pad(5)
    parts = batch.timeslices(size)
    assert [length for part in parts for length in part["seq_lens"].tolist() if length] == valid
    assert [row["id"] for part in parts for row in part.rows()] == list(range(sum(valid)))


@given(sequence_batches(), st.integers(5, 9))
def test_right_zero_pad_keeps_valid_rows_and_fills_with_zeros(batch, length):
    ids, lens = batch["id"].copy(), batch["seq_lens"]
    grid = batch.right_zero_pad(length)["id"].reshape(len(lens), length)
    mask = np.arange(length) < lens[:, None]
    assert grid[mask].tolist() == ids.tolist()
    assert not grid[~mask].any()


@given(batches(min_rows=1), st.integers(1, 7), st.integers(1, 3))
def test_pad_batch_recurrent_keeps_every_row_and_its_state(batch, max_seq_len, multiple):
    batch["state_in_0"] = batch["id"][:, None] * 1.0
    rows = batch.count
    pad_batch_to_sequences_of_same_size(batch, max_seq_len, batch_divisibility_req=multiple)
    assert [row["id"] for row in batch.rows()] == list(range(rows))
    assert batch["seq_lens"].max() <= max_seq_len
    assert len(batch["id"]) % multiple == 0
    starts = np.cumsum(batch["seq_lens"]) - batch["seq_lens"]
    assert batch["state_in_0"][:, 0].tolist() == starts.tolist()
    for number, length in enumerate(batch["seq_lens"]):
        first = number * batch.max_seq_len
        assert len(set(batch["eps_id"][first : first + length].tolist())) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=20), st.data())
def test_multi_agent_timeslices_tile_the_environment_steps(rows, data):
    size = data.draw(st.integers(1, 5))
    policies = {
        name: SampleBatch.from_columns(
            {
                "eps_id": np.array([row[0] for row in rows if row[2] == number], np.int64),
                "t": np.array([row[1] for row in rows if row[2] == number], np.int64),
            }
        )
        for number, name in enumerate(("a", "b"))
    }
    steps = {row[:2] for row in rows}
    parts = MultiAgentBatch(policies, len(steps)).timeslices(size)
    assert [part.count for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert sum(part.count for part in parts) == len(steps)
    assert sum(part.agent_steps() for part in parts) == len(rows)
    owners = [
        {(e, t) for b in p.policy_batches.values() for e, t in zip(b["eps_id"], b["t"], strict=True)} for p in parts
    ]
    assert sum(len(owned) for owned in owners) == len(steps)
    joined = MultiAgentBatch.concat_samples(parts)
    assert joined.agent_steps() == len(rows)


@pytest.mark.parametrize("rows", [1, 2])
def test_concat_of_a_batch_with_itself_doubles_it(rows):
    batch = SampleBatch({"id": np.arange(rows)})
    assert batch.concat(batch)["id"].tolist() == [*range(rows)] * 2
