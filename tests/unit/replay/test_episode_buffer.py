"""The replay buffer of whole episodes."""

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.replay.episode import EpisodeReplayBuffer
from rlframe.utils.errors import CheckpointError


def batch(*lens, first=0):
    """Episodes of these lengths; each row says of which it is, and which of its rows."""
    number = np.concatenate([np.full(length, first + index) for index, length in enumerate(lens)])
    step = np.concatenate([np.arange(length) for length in lens])
    states = np.arange(first, first + len(lens), dtype=np.float32)[:, None]
    return SampleBatch(
        {
            "episode": number, "step": step, "state_in_0": states, "seq_lens": np.array(lens, np.int32),
            "infos": np.array([{}] * len(step), dtype=object), "state_out_0": np.zeros((len(step), 1)),
        }
    )  # fmt: skip


def make(**overrides):
    return EpisodeReplayBuffer(**{"capacity": 4, "learning_starts": 0, "replay_batch_size": 6, "seed": 1, **overrides})


def test_episodes_come_back_whole_with_their_states():
    buffer = make(capacity=10)
    buffer.add_batch(batch(3, 1, 5, 2))
    for _ in range(20):
        drawn = buffer.replay()
        assert set(drawn) == {"episode", "step", "state_in_0", "seq_lens"}
        assert drawn.count >= 6
        assert drawn.count - drawn["seq_lens"][-1] < 6, "no more than are needed"
        begin = 0
        for number, length in enumerate(drawn["seq_lens"].tolist()):
            rows = slice(begin, begin + length)
            episode = drawn["episode"][begin]
            assert length == (3, 1, 5, 2)[episode]
            assert drawn["state_in_0"][number, 0] == episode
            assert (drawn["episode"][rows] == episode).all()
            np.testing.assert_array_equal(drawn["step"][rows], np.arange(length))
            begin += length


def test_all_episodes_are_as_likely_and_the_oldest_go():
    buffer = make(replay_batch_size=1)
    buffer.add_batch(batch(1, 1, 1))
    buffer.add_batch(batch(1, 1, 1, first=3))
    buffer.check_invariants()
    assert len(buffer) == 4
    seen = np.bincount([buffer.replay()["episode"][0] for _ in range(4000)], minlength=6)
    assert (seen[:2] == 0).all()
    assert (np.abs(seen[2:] - 1000) < 120).all(), seen


def test_nothing_before_learning_starts():
    buffer = make(learning_starts=5)
    assert buffer.replay() is None
    buffer.add_batch(batch(3, 1))
    assert buffer.replay() is None
    buffer.add_batch(batch(1))
    assert buffer.replay() is not None


def test_each_policy_has_its_own_episodes():
    buffer = make()
    buffer.add_batch(MultiAgentBatch({"a": batch(2), "b": batch(3, 3)}, 3))
    drawn = buffer.replay()
    assert drawn.count == 6
    assert (drawn.policy_batches["a"].count, drawn.policy_batches["b"].count) == (6, 6)
    stats = buffer.stats()
    assert stats["policy_b"]["num_entries"] == 2
    assert stats["policy_b"]["num_steps"] == 6
    assert stats["policy_a"]["est_size_bytes"] == 2 * (8 + 8) + 4


def test_a_restored_buffer_draws_the_same():
    one, other = make(), make(seed=9)
    one.add_batch(batch(3, 1, 2, 2, 5))
    one.replay()
    other.set_state(one.get_state())
    other.check_invariants()
    for _ in range(3):
        for buffer in (one, other):
            buffer.add_batch(batch(2, first=9))
        a, b = one.replay(), other.replay()
        assert set(a) == set(b)
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
    make().set_state(make().get_state())
    with pytest.raises(CheckpointError, match="capacity 4, this one 5; set it to 4"):
        make(capacity=5).set_state(one.get_state())
    with pytest.raises(CheckpointError, match="saved replay buffer is a LocalReplayBuffer, this one a Episode"):
        make().set_state({"num_added": 0, "seed": 1, "buffers": {}})


def test_stored_rows_do_not_change_with_the_batch_they_came_in():
    buffer = make()
    rows = batch(2)
    buffer.add_batch(rows)
    rows["step"][:] = 99
    assert buffer.replay()["step"].max() == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (SampleBatch({"obs": np.zeros(3)}), "not cut into sequences .* use LocalReplayBuffer"),
        (SampleBatch({"step": np.array([{}], object), "seq_lens": np.ones(1, np.int32)}), "'step' holds objects"),
    ],
)
def test_what_cannot_be_stored_is_named(rows, message):
    with pytest.raises(ValueError, match=message):
        make().add_batch(rows)


def test_batches_must_be_alike():
    buffer = make()
    buffer.add_batch(batch(2))
    other = batch(2)
    del other["episode"]
    with pytest.raises(ValueError, match="Column 'episode': got none, wanted"):
        buffer.add_batch(other)
    other["episode"] = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"Column 'episode'.*make all batches alike"):
        buffer.add_batch(other)


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"learning_starts": -1}, {"replay_batch_size": 0}])
def test_arguments_out_of_range_are_named(wrong):
    with pytest.raises(ValueError, match=rf"{next(iter(wrong))} must be at least"):
        make(**wrong)
