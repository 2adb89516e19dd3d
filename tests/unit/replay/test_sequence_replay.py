"""Replay of sequences: where they begin and end, what they share, how they are drawn."""

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.train_ops import UpdatePriorities
from rlframe.replay.per_policy import LocalReplayBuffer
from rlframe.replay.sequence_store import SequenceStore
from rlframe.utils.errors import CheckpointError


def episodes(*lengths, pieces=4, first=0):
    """Episodes cut into pieces; each row says of which it is and at which step, each state where it was stored."""
    number = np.repeat(np.arange(first, first + len(lengths)), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])
    starts = np.flatnonzero(step % pieces == 0)
    lens = np.diff(np.append(starts, len(step))).astype(np.int32)
    obs = (100 * number + step).astype(np.float32)[:, None]
    dones = np.append(number[1:] != number[:-1], True)
    return SampleBatch(
        {
            "obs": obs, "new_obs": obs + 1, "eps_id": number, "t": step, "dones": dones, "seq_lens": lens,
            "state_in_0": obs[starts], "state_out_0": obs,
        }
    )  # fmt: skip


def parts_of(drawn):
    """Returns, for each sequence drawn: episode, steps, whether each row is burn-in, state."""
    ends = np.cumsum(drawn["seq_lens"])
    burn_in = drawn.get("burn_in", np.zeros(ends[-1], bool))
    for state, start, stop in zip(drawn["state_in_0"][:, 0], ends - drawn["seq_lens"], ends, strict=True):
        assert len(set(drawn["eps_id"][start:stop])) == 1
        np.testing.assert_array_equal(np.diff(drawn["t"][start:stop]), 1)
        yield drawn["eps_id"][start], drawn["t"][start:stop].tolist(), burn_in[start:stop].tolist(), state


@pytest.mark.parametrize(
    ("length", "burn_in", "pieces", "wanted"),
    [
        (4, 0, 4, [range(4), range(4, 8), range(8, 10)]),
        (4, 0, 2, [range(4), range(2, 6), range(4, 8), range(6, 10), range(8, 10)]),  # overlapping by a half
        (8, 4, 4, [range(4), range(8), range(4, 10)]),
        (6, 2, 4, [range(4), range(6), range(4, 10)]),
        (8, 6, 2, [range(2), range(8), range(4), range(2, 10), range(6)]),
    ],
)
def test_sequences_begin_at_the_pieces_and_every_row_is_learned_from(length, burn_in, pieces, wanted):
    store = SequenceStore(20, length, burn_in)
    store.add(episodes(10, pieces=pieces))
    store.check_invariants()
    drawn = SampleBatch.from_columns(store.gather(np.arange(len(store))))
    found, learned = [], set()
    for _, steps, warming, state in parts_of(drawn):
        assert state == steps[0]
        before = steps[warming.index(False)]
        assert warming == [index < min(burn_in, before) for index in range(len(steps))]
        found.append(range(steps[0], steps[-1] + 1))
        learned |= {step for step, warms in zip(steps, warming, strict=True) if not warms}
    assert found == wanted
    assert learned == set(range(10))
    np.testing.assert_array_equal(drawn["new_obs"], drawn["obs"] + 1)


def test_sequences_end_with_their_episode_and_share_its_rows():
    store = SequenceStore(50, 8, 4)
    batch = episodes(10, 3, 6)
    store.add(batch)
    for _, steps, _, state in parts_of(SampleBatch.from_columns(store.gather(np.arange(len(store))))):
        assert state % 100 == steps[0]
    sizes = store.bytes_by_column()
    assert sizes["obs"] == 4 * (19 + 3), "one more than rows, for the observation behind each episode's end"
    assert sizes["new_obs"] == 0
    assert store.size_bytes() == sum(sizes.values())
    assert "state_out_0" not in sizes
    batch["t"][:] = 99
    assert store.gather(np.array([0]))["t"].max() < 10, "a copy"


def test_observations_that_do_not_follow_each_other_are_stored_as_they_are():
    batch = episodes(6)
    batch["new_obs"] = batch["new_obs"] + 0.5
    store = SequenceStore(5, 4)
    store.add(batch)
    np.testing.assert_array_equal(store.gather(np.array([0]))["new_obs"][:, 0], [1.5, 2.5, 3.5, 4.5])


def make(**overrides):
    options = {"learning_starts": 0, "capacity": 8, "replay_batch_size": 32, "replay_sequence_length": 8,
               "replay_burn_in": 4, "replay_zero_init_states": False, "seed": 1}  # fmt: skip
    return LocalReplayBuffer(**{**options, **overrides})


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_buffer_of_sequences_draws_as_many_as_make_the_batch_and_goes_on_exactly(prioritized):
    one, other = make(prioritized=prioritized), make(prioritized=prioritized, seed=9)
    for first in range(4):
        one.add_batch(episodes(10, 7, first=2 * first))
    assert len(one) == 8
    one.check_invariants()
    other.set_state(one.get_state())
    other.check_invariants()
    for first in (8, 10):
        for buffer in (one, other):
            buffer.add_batch(episodes(9, first=first))
        a, b = one.replay(), other.replay()
        assert len(a["seq_lens"]) == 32 // 8
        assert a.count == a["seq_lens"].sum() == len(a["obs"])
        assert set(a) == set(b)
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
        assert min(a["eps_id"]) >= 2, "the oldest are gone"
    assert one.stats()["policy_default_policy"]["num_entries"] == 8
    with pytest.raises(CheckpointError, match="has burn_in 4, this one 2; set it to 4"):
        make(prioritized=prioritized, replay_burn_in=2).set_state(one.get_state())


def test_priorities_are_those_of_sequences():
    buffer = make(replay_burn_in=0, replay_sequence_length=4, prioritized_replay_alpha=1.0)
    buffer.add_batch(episodes(8, 2))
    drawn = buffer.replay()
    starts = np.cumsum(drawn["seq_lens"]) - drawn["seq_lens"]
    for number, start, length in zip(drawn["batch_indexes"][starts], starts, drawn["seq_lens"], strict=True):
        assert (drawn["batch_indexes"][start : start + length] == number).all()
    numbers = drawn["batch_indexes"][starts]
    info = {"default_policy": {"td_error": np.where(numbers == 1, 1000.0, 1e-9)}}
    UpdatePriorities(buffer)((drawn, info))
    again = buffer.replay()
    assert set(again["eps_id"]) == {0}
    assert set(again["t"]) == {4, 5, 6, 7}


def test_zero_states_are_wished_for_and_policies_without_memory_keep_their_rows():
    buffer = make(replay_zero_init_states=True)
    buffer.add_batch(episodes(10))
    assert not buffer.replay()["state_in_0"].any()
    rows = make()
    rows.add_batch(SampleBatch({"obs": np.zeros((5, 2), np.float32), "new_obs": np.ones((5, 2), np.float32)}))
    assert "seq_lens" not in rows.replay()


def test_compressed_observations_are_stored_as_numbers():
    buffer = make()
    packed = episodes(10)
    packed["obs"] = packed["obs"].astype(np.uint8)
    packed["new_obs"] = packed["new_obs"].astype(np.uint8)
    packed.compress(columns={"obs", "new_obs"})
    assert packed["obs"].dtype == object
    buffer.add_batch(packed)
    drawn = buffer.replay()
    assert drawn["obs"].dtype == np.uint8
    np.testing.assert_array_equal(drawn["obs"][:, 0], drawn["t"])


def test_what_is_not_cut_is_refused_by_sequences_and_what_is_cut_by_transitions():
    with pytest.raises(
        ValueError, match=r"not cut into sequences .* use LocalReplayBuffer with replay_sequence_length=1"
    ):
        SequenceStore(4, 4).add({"obs": np.zeros(3)})
    with pytest.raises(ValueError, match=r"stores single transitions.*replay_sequence_length"):
        make(replay_sequence_length=1, replay_burn_in=0).add_batch(episodes(5))
