"""Cutting collected rows into sequences, and padding them for learning."""

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import cut_into_sequences, padded_sequences
from rlframe.execution.train_ops import sequence_minibatches


def collected():
    """Two episodes of 5 and 3 rows."""
    return SampleBatch(
        {
            "obs": np.arange(1.0, 9.0),
            "eps_id": np.array([1] * 5 + [2] * 3),
            "state_in_0": np.arange(8.0)[:, None] * 10,
            "state_out_0": np.arange(1.0, 9.0)[:, None] * 10,
        }
    )


def test_rows_are_cut_at_episodes_and_at_the_longest_length_and_keep_first_states():
    batch = cut_into_sequences(collected(), 2, keep_states_out=False)
    assert batch["seq_lens"].tolist() == [2, 2, 1, 2, 1]
    assert batch["state_in_0"][:, 0].tolist() == [0, 20, 40, 50, 70]
    assert "state_out_0" not in batch
    assert batch.count == 8
    assert cut_into_sequences(batch, 3) is batch


def test_padding_is_zero_and_marked():
    batch = padded_sequences(collected(), 3)
    assert batch["obs"].tolist() == [1, 2, 3, 4, 5, 0, 6, 7, 8]
    assert batch["valid_mask"].tolist() == [True] * 5 + [False] + [True] * 3
    assert batch["state_in_0"][:, 0].tolist() == [0, 30, 50]
    assert batch["seq_lens"].tolist() == [3, 2, 3]
    assert batch.count == 8
    assert batch.zero_padded


def test_chosen_sequences_are_padded_to_the_longest_of_them():
    batch = padded_sequences(cut_into_sequences(collected(), 4), chosen=np.array([1, 2]))
    assert batch["seq_lens"].tolist() == [1, 3]
    assert batch["obs"].tolist() == [5, 0, 0, 6, 7, 8]


@pytest.mark.parametrize(("drop", "rows"), [(False, [4, 3, 1]), (True, [4, 3])])
def test_minibatches_hold_whole_sequences_each_once(drop, rows):
    batch = cut_into_sequences(collected(), 2)  # lengths 2 2 1 2 1
    made = list(sequence_minibatches(batch, 3, np.array([0, 1, 3, 4, 2]), drop_remainder=drop))
    assert [part.count for part in made] == rows
    seen = np.concatenate([part["obs"][part["valid_mask"]] for part in made])
    assert sorted(seen.tolist()) == sorted(set(seen.tolist()))
    if not drop:
        assert sorted(seen.tolist()) == list(range(1, 9))


def test_one_short_minibatch_is_kept():
    batch = cut_into_sequences(collected(), 2)
    assert [part.count for part in sequence_minibatches(batch, 100, np.arange(5), drop_remainder=True)] == [8]
