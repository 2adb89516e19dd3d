"""Cutting rows into sequences, padding, overlap."""

import numpy as np
import pytest

from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import (
    add_time_dimension,
    chop_into_sequences,
    pad_batch_to_sequences_of_same_size,
    sequence_lengths,
    timeslice_along_seq_lens_with_overlap,
)
from rlframe.data.view_requirements import ViewRequirement


def recurrent(eps_ids: list[int]) -> SampleBatch:
    rows = len(eps_ids)
    return SampleBatch(
        {
            "obs": np.arange(1, rows + 1, dtype=np.float32),
            "infos": np.array([{"row": row} for row in range(1, rows + 1)]),
            "eps_id": np.array(eps_ids),
            "state_in_0": np.arange(rows, dtype=np.float32)[:, None],
            "state_out_0": np.arange(1, rows + 1, dtype=np.float32)[:, None],
        }
    )


def test_sequence_lengths_cut_at_changes_and_maximum():
    eps = np.array([1, 1, 1, 1, 1, 2, 2, 2])
    assert sequence_lengths(3, eps).tolist() == [3, 2, 3]
    assert sequence_lengths(3, eps, None, np.array([0, 0, 0, 0, 0, 0, 1, 1])).tolist() == [3, 2, 1, 2]
    assert sequence_lengths(10, eps).dtype == np.int32
    with pytest.raises(ValueError, match="label"):
        sequence_lengths(3)


def test_chop_into_sequences_pads_right_and_reduces_states():
    features, states, lens = chop_into_sequences(
        feature_columns=[np.arange(1, 6), {"a": np.ones((5, 2))}],
        state_columns=[np.arange(5)[:, None]],
        max_seq_len=4,
        episode_ids=np.array([1, 1, 1, 2, 2]),
    )
    assert lens.tolist() == [3, 2]
    assert features[0].tolist() == [1, 2, 3, 4, 5, 0]
    assert features[1]["a"].sum() == 10
    assert states[0].tolist() == [[0], [3]]


def test_chop_into_sequences_gives_the_leaves_of_nested_features_when_told():
    (leaves,), _, _ = chop_into_sequences(
        feature_columns=[{"a": np.array([1, 2, 3]), "b": (np.array([4, 5, 6]),)}],
        state_columns=[],
        max_seq_len=2,
        seq_lens=[2, 1],
        handle_nested_data=True,
    )
    assert [leaf.tolist() for leaf in leaves] == [[1, 2, 3, 0], [4, 5, 6, 0]]


def test_chop_into_sequences_static_length_and_last_row_padding():
    features, _, _ = chop_into_sequences(
        feature_columns=[np.array([1, 2, 3])],
        state_columns=[],
        max_seq_len=3,
        seq_lens=[1, 2],
        dynamic_max=False,
        padding="last",
    )
    assert features[0].tolist() == [1, 1, 1, 2, 3, 3]


def test_chop_into_sequences_states_already_reduced_are_kept():
    _, states, _ = chop_into_sequences(
        feature_columns=[np.zeros(3)],
        state_columns=[np.array([[7.0], [8.0]])],
        max_seq_len=2,
        seq_lens=[1, 2],
        states_already_reduced_to_init=True,
    )
    assert states[0].tolist() == [[7.0], [8.0]]


def test_chop_into_sequences_shuffle_moves_whole_sequences():
    eps = np.repeat(np.arange(10), 3)
    features, states, lens = chop_into_sequences(
        feature_columns=[eps, np.tile(np.arange(3), 10)],
        state_columns=[eps[:, None]],
        max_seq_len=3,
        episode_ids=eps,
        shuffle=True,
        rng=np.random.default_rng(1),
    )
    order = features[0].reshape(10, 3)
    assert (order == order[:, :1]).all()
    assert (features[1].reshape(10, 3) == np.arange(3)).all()
    np.testing.assert_array_equal(states[0][:, 0], order[:, 0])
    assert order[:, 0].tolist() != list(range(10))
    assert lens.tolist() == [3] * 10


def test_pad_batch_recurrent_keeps_all_columns_aligned():
    batch = recurrent([1, 1, 1, 2, 2])
    pad_batch_to_sequences_of_same_size(batch, max_seq_len=2)
    assert batch["seq_lens"].tolist() == [2, 1, 2]
    assert batch["obs"].tolist() == [1, 2, 3, 0, 4, 5]
    assert [info.get("row") for info in batch["infos"]] == [1, 2, 3, None, 4, 5]
    assert batch["state_out_0"][:, 0].tolist() == [1, 2, 3, 0, 4, 5]
    assert batch["state_in_0"][:, 0].tolist() == [0, 2, 3]
    assert (batch.count, batch.zero_padded, batch.max_seq_len) == (5, True, 2)


def test_pad_batch_padded_batch_is_left_alone():
    batch = recurrent([1, 1, 2])
    pad_batch_to_sequences_of_same_size(batch, 4)
    before = batch.copy()
    pad_batch_to_sequences_of_same_size(batch, 2)
    np.testing.assert_array_equal(batch["obs"], before["obs"])


def test_pad_batch_recurrent_rows_meet_divisibility():
    batch = recurrent([1, 1, 1, 2, 2])
    pad_batch_to_sequences_of_same_size(batch, max_seq_len=3, batch_divisibility_req=4)
    assert batch["obs"].tolist() == [1, 2, 3, 0, 4, 5, 0, 0]


def test_pad_batch_known_seq_lens_are_used():
    batch = SampleBatch({"obs": np.arange(1, 4), "state_in_0": np.array([[5.0], [6.0]]), "seq_lens": [1, 2]})
    pad_batch_to_sequences_of_same_size(batch, max_seq_len=20)
    assert batch["obs"].tolist() == [1, 0, 2, 3]
    assert batch["state_in_0"][:, 0].tolist() == [5.0, 6.0]


def test_pad_batch_without_states_only_fills_up_to_the_multiple():
    batch = SampleBatch({"obs": np.arange(1, 6), "eps_id": np.array([1, 1, 2, 2, 2])})
    pad_batch_to_sequences_of_same_size(batch, max_seq_len=20, batch_divisibility_req=4)
    assert batch["obs"].tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    assert batch["seq_lens"].tolist() == [4, 1]
    assert batch.count == 5
    untouched = SampleBatch({"obs": np.arange(4)})
    pad_batch_to_sequences_of_same_size(untouched, max_seq_len=20, batch_divisibility_req=4)
    pad_batch_to_sequences_of_same_size(untouched, max_seq_len=20)
    assert "seq_lens" not in untouched


def test_pad_batch_columns_not_wanted_are_dropped():
    batch = recurrent([1, 1, 2])
    views = {"infos": ViewRequirement(used_for_training=False)}
    pad_batch_to_sequences_of_same_size(batch, 4, view_requirements=views)
    assert set(batch) == {"obs", "eps_id", "state_out_0", "state_in_0", "seq_lens"}
    batch = recurrent([1, 1, 2])
    pad_batch_to_sequences_of_same_size(batch, 4, feature_keys=["obs"])
    assert set(batch) == {"obs", "state_in_0", "seq_lens"}


def test_pad_batch_shuffle_keeps_states_with_their_sequences():
    batch = recurrent(sorted([*range(8)] * 2))
    batch["state_in_0"] = batch["obs"][:, None].copy()
    pad_batch_to_sequences_of_same_size(batch, 2, shuffle=True)
    np.testing.assert_array_equal(batch["obs"][::2], batch["state_in_0"][:, 0])


def test_add_time_dimension_by_lengths_by_maximum_and_time_major():
    rows = np.arange(12).reshape(6, 2)
    by_lens = add_time_dimension(rows, seq_lens=np.array([3, 2]))
    assert by_lens.shape == (2, 3, 2)
    np.testing.assert_array_equal(by_lens, add_time_dimension(rows, 3))
    np.testing.assert_array_equal(by_lens, add_time_dimension(rows, max_seq_len=3, framework="torch"))
    np.testing.assert_array_equal(add_time_dimension(rows, 3, time_major=True)[:, 1], rows[3:])


def test_add_time_dimension_of_tensorflow_in_a_graph_without_sizes():
    tf = pytest.importorskip("tensorflow")
    signature = [tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)]
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    for time_major in (False, True):
        cut = tf.function(lambda x, lens, m=time_major: add_time_dimension(x, lens, time_major=m), signature)
        wanted = add_time_dimension(rows, np.array([3, 2]), time_major=time_major)
        np.testing.assert_array_equal(cut(rows, np.array([3, 2], np.int32)), wanted)
    np.testing.assert_array_equal(add_time_dimension(tf.constant(rows), 3), add_time_dimension(rows, 3))


def test_add_time_dimension_torch_tensor_stays_one():
    torch = pytest.importorskip("torch")
    shaped = add_time_dimension(torch.arange(6), seq_lens=torch.tensor([2, 3]), framework="torch", time_major=True)
    assert shaped.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_add_time_dimension_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="7 rows"):
        add_time_dimension(np.zeros((7, 2)), 3)
    with pytest.raises(ValueError, match="neither"):
        add_time_dimension(np.zeros((6, 2)))


def test_timeslice_borrows_rows_of_the_same_episode_only():
    batch = recurrent([1, 1, 1, 1, 2, 2])
    first, second, third = timeslice_along_seq_lens_with_overlap(batch, seq_lens=[2, 2, 2], pre_overlap=1)
    assert first["obs"].tolist() == [0, 1, 2]
    assert second["obs"].tolist() == [2, 3, 4]
    assert third["obs"].tolist() == [0, 5, 6]
    assert [part["seq_lens"].tolist() for part in (first, second, third)] == [[3]] * 3
    assert second["state_in_0"].tolist() == [[0.0]]
    assert first["infos"][0] == {}


def test_timeslice_stored_states_start_at_the_first_row_borrowed():
    batch = recurrent([1, 1, 1, 1, 2, 2])
    parts = timeslice_along_seq_lens_with_overlap(
        batch, seq_lens=[2, 2, 2], pre_overlap=1, zero_init_states=False, zero_pad_max_seq_len=4
    )
    assert [part["state_in_0"].tolist() for part in parts] == [[[0.0]], [[1.0]], [[4.0]]]
    assert parts[1]["obs"].tolist() == [2, 3, 4, 0]
    assert parts[1].zero_padded


def test_timeslice_states_per_sequence_come_from_state_out_where_rows_are_borrowed():
    batch = recurrent([1, 1, 1, 1])
    batch["state_in_0"] = np.array([[10.0], [20.0]])
    batch["seq_lens"] = np.array([2, 2], np.int32)
    plain = timeslice_along_seq_lens_with_overlap(batch, zero_init_states=False)
    assert [part["state_in_0"].tolist() for part in plain] == [[[10.0]], [[20.0]]]
    borrowed = timeslice_along_seq_lens_with_overlap(batch, pre_overlap=1, zero_init_states=False)
    assert borrowed[1]["state_in_0"].tolist() == [[1.0]]


def test_timeslice_lengths_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="6 rows"):
        timeslice_along_seq_lens_with_overlap(recurrent([1] * 6), seq_lens=[2, 2])
