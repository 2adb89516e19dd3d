"""SampleBatch: access, rows, joining, sequences, copies, compression."""

import copy
import pickle

import numpy as np
import pytest

from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from tests.helpers.frameworks import needs_tf


def make(rows: int = 6, start: int = 0, eps_id: int = 1) -> SampleBatch:
    steps = np.arange(start, start + rows)
    return SampleBatch(
        {
            "obs": steps[:, None].astype(np.float32) + np.array([0.0, 0.5], np.float32),
            "rewards": steps.astype(np.float32),
            "eps_id": np.full(rows, eps_id),
            "t": steps,
        }
    )


def sequences(seq_lens: list[int], **flags: int | bool) -> SampleBatch:
    rows = sum(seq_lens)
    return SampleBatch(
        {
            "obs": np.arange(1, rows + 1, dtype=np.float32),
            "state_in_0": np.arange(len(seq_lens), dtype=np.float32)[:, None],
            "seq_lens": np.array(seq_lens, np.int32),
        },
        **flags,
    )


def test_data_are_the_columns_as_in_rllib_1_2():
    batch = make()
    batch.data["source"] = ["here"] * 6
    del batch.data["t"]
    assert "t" not in batch
    assert list(batch["source"]) == ["here"] * 6


def test_constructor_lists_become_arrays():
    batch = SampleBatch({"obs": [[1, 2], [3, 4]], "infos": [{"a": 1}, {}]})
    assert batch["obs"].shape == (2, 2)
    assert batch["infos"].dtype == object
    assert batch.count == len(batch) == 2


def test_constructor_unequal_rows_names_columns():
    with pytest.raises(ValueError, match=r"a: 2, b: 3"):
        SampleBatch({"a": np.zeros(2), "b": np.zeros(3)})


def test_constructor_ragged_list_names_column():
    with pytest.raises(ValueError, match="'obs'"):
        SampleBatch({"obs": [[1, 2], [3]]})


def test_constructor_underscore_flags_set_attributes():
    batch = sequences([2, 1], _max_seq_len=4, _zero_padded=True, _is_training=True, _time_major=False)
    assert (batch.max_seq_len, batch.zero_padded, batch.is_training, batch.time_major) == (4, True, True, False)


def test_constructor_seq_lens_without_max_takes_longest():
    assert sequences([2, 3, 1]).max_seq_len == 3


def test_from_columns_keeps_arrays_unconverted():
    array = np.zeros(3)
    batch = SampleBatch.from_columns({"a": array})
    assert batch["a"] is array
    assert batch.__dict__ == {}


def test_count_skips_per_sequence_columns():
    batch = SampleBatch.from_columns({"state_in_0": np.zeros((2, 4)), "obs": np.zeros((5, 3))})
    assert batch.count == 5


def test_count_with_seq_lens_is_their_sum():
    assert sequences([3, 2]).count == 5


def test_count_of_nested_and_empty_batches():
    assert SampleBatch({"obs": {"a": (np.zeros(4), np.zeros((4, 2)))}}).count == 4
    assert SampleBatch().count == 0
    assert not SampleBatch()


def test_count_passes_over_numbers_beside_columns():
    assert SampleBatch({"t": 7, "info": None, "gain": np.float32(2.0), "obs": [1, 2]}).count == 2
    assert SampleBatch({"a": 5, "b": np.array(3)}).count == 0


def test_count_time_major_is_time_times_batch():
    assert SampleBatch({"obs": np.zeros((5, 3, 2))}, _time_major=True).count == 15


def test_count_given_or_set_wins():
    batch = SampleBatch.from_columns({"a": np.zeros(3)}, count=2)
    assert batch.count == 2
    batch.count = 1
    assert len(batch) == batch.env_steps() == batch.agent_steps() == 1


def test_missing_column_error_lists_columns():
    with pytest.raises(KeyError, match=r"no column 'nope'.*'obs'"):
        make()["nope"]


def test_dones_from_terminateds_and_truncateds_are_their_union():
    batch = SampleBatch({"terminateds": np.array([0, 1, 0], bool), "truncateds": np.array([0, 0, 1], bool)})
    assert batch["dones"].tolist() == batch.get("dones").tolist() == [False, True, True]
    assert "dones" not in batch
    assert SampleBatch({"terminateds": np.array([True])})["dones"].tolist() == [True]


def test_dones_stored_are_not_derived():
    batch = SampleBatch({"terminateds": np.array([False]), "dones": np.array([True])})
    assert batch["dones"].tolist() == [True]


@pytest.mark.parametrize("key", ["terminateds", "truncateds"])
def test_terminateds_from_dones_are_not_guessed(key):
    batch = SampleBatch({"dones": np.array([True])})
    assert batch.get(key) is None
    with pytest.raises(KeyError):
        batch[key]


def test_is_training_is_a_flag_not_a_column():
    batch = make()
    assert batch["is_training"] is False
    batch["is_training"] = True
    assert batch.is_training is True
    batch.set_training(False)
    assert batch.get("is_training") is False
    assert "is_training" not in batch
    assert SampleBatch({"obs": np.zeros(1), "is_training": True}).is_training is True


def test_interceptor_converts_once_and_tracks_access():
    batch = make()
    calls = []
    batch.set_get_interceptor(lambda value: calls.append(1) or value + 1)
    assert batch["rewards"][0] == batch["rewards"][0] == 1.0
    assert len(calls) == 1
    batch["new"] = np.zeros(6)
    batch["rewards"] = np.zeros(6)
    assert batch["rewards"][0] == 1.0
    del batch["t"]
    assert batch.accessed_keys == {"rewards"}
    assert batch.added_keys == {"new"}
    assert batch.deleted_keys == {"t"}
    assert list(batch) == ["obs", "rewards", "eps_id", "new"]


def test_interceptor_update_pop_and_derived_dones_go_through_it():
    batch = SampleBatch({"terminateds": np.array([True]), "a": np.array([1])})
    batch.set_get_interceptor(lambda value: value.tolist())
    assert batch["dones"] == [True]
    assert batch["a"] == [1]
    batch.update({"a": np.array([2])}, b=np.array([3]))
    assert (batch["a"], batch.pop("b"), batch.pop("b", None), batch.setdefault("a")) == ([2], [3], None, [2])
    with pytest.raises(KeyError, match="no column"):
        batch.pop("b")
    assert "dones" in batch.accessed_keys


def test_interceptor_slice_and_shallow_copy_keep_it_but_convert_anew():
    batch = make()
    batch.set_get_interceptor(lambda value: value * 2)
    assert batch["rewards"][1] == 2.0
    assert batch[1:3]["rewards"].tolist() == [2.0, 4.0]
    assert batch.copy(shallow=True)["rewards"] is batch["rewards"]
    batch.set_get_interceptor(None)
    assert batch["rewards"][1] == 1.0
    assert batch.accessed_keys == set()


def test_track_access_without_interceptor_records():
    batch = make()
    batch.track_access()
    batch["obs"], batch.get("t"), batch["is_training"]
    assert batch.accessed_keys == {"obs", "t"}
    assert batch.get_interceptor is None


def test_slice_rows_are_views_of_nested_columns():
    batch = SampleBatch({"obs": {"a": np.arange(5), "b": (np.arange(5) * 2,)}, "r": np.arange(5)})
    part = batch[1:4]
    assert part["obs"]["b"][0].tolist() == [2, 4, 6]
    assert part["r"].base is not None
    assert batch[-2:]["r"].tolist() == [3, 4]
    assert batch[::2]["r"].tolist() == [0, 2, 4]


@pytest.mark.parametrize(("rows", "obs", "states"), [((0, 4), [1, 2, 3], [0]), ((3, 7), [4, 5, 6, 7], [1, 2])])
def test_slice_with_seq_lens_moves_to_sequence_starts(rows, obs, states):
    batch = sequences([3, 2, 2])
    part = batch[rows[0] : rows[1]]
    assert part["obs"].tolist() == obs
    assert part["state_in_0"][:, 0].tolist() == states
    assert part.count == len(obs)


def test_slice_of_padded_batch_keeps_padding():
    batch = sequences([3, 1]).right_zero_pad(4)
    part = batch[3:]
    assert part["obs"].tolist() == [4, 0, 0, 0]
    assert (part.count, part.zero_padded, part.max_seq_len) == (1, True, 4)


def test_slice_refuses_what_would_tear_rows():
    with pytest.raises(ValueError, match="step 2"):
        sequences([3, 2])[::2]
    with pytest.raises(ValueError, match="time-major"):
        SampleBatch({"obs": np.zeros((2, 3))}, _time_major=True)[0:1]


def test_take_copies_rows_in_order_given():
    assert make().take([4, 0, 4])["rewards"].tolist() == [4, 0, 4]
    with pytest.raises(ValueError, match="take"):
        sequences([1, 2]).take([0])


def test_rows_yields_a_dict_per_valid_row():
    rows = list(SampleBatch({"obs": {"a": np.arange(2)}, "r": np.array([5, 6])}).rows())
    assert rows == [{"obs": {"a": 0}, "r": 5}, {"obs": {"a": 1}, "r": 6}]
    padded = sequences([2, 1]).right_zero_pad(3)
    assert [row["obs"] for row in padded.rows()] == [1, 2, 3]
    rows = list(sequences([2, 1]).rows())
    assert [row["obs"] for row in rows] == [1, 2, 3]
    assert [row["seq_lens"].tolist() for row in rows] == [[1], [1], [1]]


def test_columns_in_order_given():
    t, rewards = make().columns(["t", "rewards"])
    assert t.dtype.kind == "i"
    assert rewards.dtype == np.float32


def test_shuffle_keeps_rows_together_and_is_seeded():
    first, second = make(20), make(20)
    assert first.shuffle(np.random.default_rng(3)) is first
    second.shuffle(np.random.default_rng(3))
    np.testing.assert_array_equal(first["t"], second["t"])
    np.testing.assert_array_equal(first["obs"][:, 0], first["t"])
    assert sorted(first["t"]) == list(range(20))
    assert first["t"].tolist() != list(range(20))


def test_shuffle_global_seed_is_used_without_rng():
    orders = []
    for _ in range(2):
        np.random.seed(5)  # noqa: NPY002 - what RLlib programs do
        orders.append(make(20).shuffle()["t"].tolist())
    assert orders[0] == orders[1]


def test_shuffle_with_seq_lens_is_refused():
    with pytest.raises(ValueError, match="shuffle"):
        sequences([1, 2]).shuffle()


def test_split_by_episode_cuts_where_id_changes():
    batch = make(2, eps_id=1).concat(make(3, eps_id=2)).concat(make(1, eps_id=1))
    assert [part.count for part in batch.split_by_episode()] == [2, 3, 1]
    assert make(0).split_by_episode() == []


def test_split_by_episode_without_ids_goes_by_dones():
    batch = SampleBatch(
        {"a": [1, 2, 3, 4], "terminateds": [True, False, False, False], "truncateds": [False, False, True, False]}
    )
    assert [part["a"].tolist() for part in batch.split_by_episode()] == [[1], [2, 3], [4]]
    assert batch["eps_id"].tolist() == [0, 1, 1, 2]
    whole = SampleBatch({"a": [1, 2]})
    assert [part["a"].tolist() for part in whole.split_by_episode()] == [[1, 2]]
    assert whole["eps_id"].tolist() == [0, 0]


def test_timeslices_by_number_have_the_larger_pieces_last():
    assert [piece.count for piece in make(13).timeslices(num_slices=5)] == [2, 2, 3, 3, 3]
    assert [piece.count for piece in make(3).timeslices(num_slices=5)] == [1, 1, 1]


def test_lengths_given_as_a_list_are_int32():
    assert SampleBatch({"a": [1, 2, 3], "seq_lens": [1, 2]})["seq_lens"].dtype == np.int32


def test_timeslices_by_size_number_and_old_name():
    batch = make(7)
    assert [part.count for part in batch.timeslices(3)] == [3, 3, 1]
    assert [part.count for part in batch.timeslices(k=4)] == [4, 3]
    assert [part.count for part in batch.timeslices(num_slices=3)] == [2, 2, 3]
    assert [part.count for part in make(2).timeslices(num_slices=3)] == [1, 1]


def test_timeslices_with_seq_lens_end_at_sequences():
    parts = sequences([3, 2, 4]).timeslices(size=4)
    assert [part["seq_lens"].tolist() for part in parts] == [[3], [2], [4]]
    assert np.concatenate([part["obs"] for part in parts]).tolist() == list(range(1, 10))


@pytest.mark.parametrize("wanted", [{}, {"size": 0}, {"size": 1, "num_slices": 2}])
def test_timeslices_bad_request_is_refused(wanted):
    with pytest.raises(ValueError, match="wanted one of them"):
        make().timeslices(**wanted)


def test_concat_samples_joins_and_skips_empty():
    joined = SampleBatch.concat_samples([make(0), make(2), make(3, start=2)])
    np.testing.assert_array_equal(joined["t"], np.arange(5))
    assert SampleBatch.concat_samples([]).count == 0
    assert list(SampleBatch.concat_samples([make(0), make(0)])) == ["obs", "rewards", "eps_id", "t"]


def test_concat_samples_different_columns_names_them():
    other = make()
    other["extra"] = np.zeros(6)
    with pytest.raises(ValueError, match=r"\['extra'\]"):
        SampleBatch.concat_samples([make(), other])


def test_concat_samples_different_shapes_names_column():
    other = make()
    other["obs"] = np.zeros((6, 3), np.float32)
    with pytest.raises(ValueError, match="'obs'"):
        make().concat(other)


def test_concat_samples_nested_columns_are_joined():
    batch = SampleBatch({"obs": {"a": np.arange(2), "b": (np.zeros((2, 1)),)}})
    joined = batch.concat(batch)
    assert joined["obs"]["a"].tolist() == [0, 1, 0, 1]
    assert joined["obs"]["b"][0].shape == (4, 1)


def test_concat_samples_sequences_add_up():
    joined = sequences([2, 1]).concat(sequences([3]))
    assert joined["seq_lens"].tolist() == [2, 1, 3]
    assert (joined.count, joined.max_seq_len) == (6, 3)


def test_concat_samples_sequences_without_a_longest_length_join_those_with_one():
    cut = SampleBatch.from_columns(dict(sequences([4])))  # as a worker cuts them
    for joined in (cut.concat(sequences([2, 1])), sequences([2, 1]).concat(cut)):
        assert sorted(joined["seq_lens"].tolist()) == [1, 2, 4]
        assert (joined.count, joined.max_seq_len) == (7, 4)
    assert cut.concat(cut).max_seq_len is None


def test_concat_samples_mixed_layouts_are_refused():
    plain, padded = sequences([2, 1]), sequences([2, 1]).right_zero_pad(2)
    with pytest.raises(ValueError, match="zero-padded"):
        plain.concat(padded)
    with pytest.raises(ValueError, match="padded to 2 and 3"):
        padded.concat(sequences([1]).right_zero_pad(3))
    with pytest.raises(ValueError, match="max_seq_len"):
        SampleBatch({"obs": np.zeros(3)}).concat(SampleBatch({"obs": np.zeros(3)}, _max_seq_len=2))


def test_concat_samples_time_major_joins_along_batch():
    batch = SampleBatch({"obs": np.zeros((4, 2, 3))}, _time_major=True)
    assert batch.concat(batch)["obs"].shape == (4, 4, 3)


def test_copy_deep_owns_arrays_shallow_shares():
    batch = make()
    deep, shallow = batch.copy(), copy.copy(batch)
    batch["rewards"][0] = 99
    assert deep["rewards"][0] == 0
    assert shallow["rewards"] is batch["rewards"]
    shallow["rewards"] = np.ones(6)
    assert batch["rewards"][0] == 99


def test_copy_and_pickle_keep_flags():
    batch = sequences([2, 1]).right_zero_pad(3)
    batch.set_training(True)
    batch.set_get_interceptor(lambda value: value)
    for clone in (batch.copy(), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch, 5))):
        assert (clone.zero_padded, clone.max_seq_len, clone.is_training, clone.count) == (True, 3, True, 3)
        np.testing.assert_array_equal(clone["obs"], batch["obs"])


def test_right_zero_pad_pads_every_row_column():
    batch = sequences([2, 3])
    batch["infos"] = np.array([{"n": i} for i in range(5)])
    batch["names"] = np.array(["a", None, "c", "d", "e"], dtype=object)
    padded = batch.right_zero_pad(4)
    assert padded is batch
    assert padded["obs"].tolist() == [1, 2, 0, 0, 3, 4, 5, 0]
    assert padded["infos"].tolist() == [{"n": 0}, {"n": 1}, {}, {}, {"n": 2}, {"n": 3}, {"n": 4}, {}]
    assert padded["names"].tolist() == ["a", None, None, None, "c", "d", "e", None]
    assert padded["state_in_0"].shape == (2, 1)
    assert padded.count == 5
    assert padded.right_zero_pad(4) is padded


def test_right_zero_pad_states_of_rows_when_asked():
    batch = SampleBatch({"obs": np.ones(3), "state_in_0": np.ones((3, 2)), "seq_lens": [1, 2]})
    assert batch.right_zero_pad(2, exclude_states=False)["state_in_0"][:, 0].tolist() == [1, 0, 1, 1]


def test_right_zero_pad_impossible_says_why():
    with pytest.raises(ValueError, match="seq_lens"):
        make().right_zero_pad(3)
    with pytest.raises(ValueError, match="sequence of 3 rows"):
        sequences([3]).right_zero_pad(2)
    with pytest.raises(ValueError, match="padded to 3 rows already"):
        sequences([3]).right_zero_pad(3).right_zero_pad(4)


@pytest.mark.parametrize("bulk", [True, False])
def test_compress_shrinks_slices_and_comes_back(bulk):
    batch = SampleBatch({"obs": np.zeros((8, 400), np.float32), "new_obs": {"a": np.arange(8)}, "r": np.arange(8)})
    original = batch.copy()
    assert batch.compress(bulk=bulk) is batch
    if bulk:
        assert batch.size_bytes() < original.size_bytes() / 10
    assert batch.count == 8
    part = batch[2:5].decompress_if_needed()
    np.testing.assert_array_equal(part["obs"], original["obs"][2:5])
    joined = batch.concat(batch).decompress_if_needed()
    np.testing.assert_array_equal(joined["new_obs"]["a"], np.tile(np.arange(8), 2))
    batch.decompress_if_needed()
    np.testing.assert_array_equal(batch["obs"], original["obs"])
    assert batch["obs"].dtype == np.float32
    batch["obs"][0, 0] = 1.0


def test_size_bytes_counts_nested_arrays():
    assert SampleBatch({"a": np.zeros(4, np.float32), "b": {"c": np.zeros((4, 2))}}).size_bytes() == 16 + 64


def test_to_device_unknown_framework_is_refused():
    with pytest.raises(ValueError, match="'torch'"):
        make().to_device("cpu", framework="jax")


@needs_tf
def test_a_batch_of_a_traced_function_can_be_printed():
    import tensorflow as tf

    shown = []

    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32)])
    def loss(obs, lens):
        recurrent = SampleBatch.from_columns({"obs": obs, "seq_lens": lens})  # as policies make them
        shown.extend([repr(SampleBatch(obs=obs)), repr(recurrent)])
        return obs

    loss(tf.zeros((3, 2)), tf.constant([3]))
    assert shown == ["SampleBatch(? rows: ['obs'])", "SampleBatch(? rows, ? sequences: ['obs', 'seq_lens'])"]


def test_repr_shows_rows_and_columns():
    assert repr(make(2)) == "SampleBatch(2 rows: ['obs', 'rewards', 'eps_id', 't'])"
    assert "2 sequences" in repr(sequences([1, 2]))


def two_policies() -> MultiAgentBatch:
    first = SampleBatch({"eps_id": np.array([1, 1, 1, 2]), "t": np.array([0, 1, 2, 0]), "x": np.arange(4)})
    second = SampleBatch({"eps_id": np.array([1, 1, 1, 1]), "t": np.array([0, 0, 2, 2]), "x": np.arange(4) + 10})
    return MultiAgentBatch({"a": first, "b": second}, 4)


def test_multi_agent_counts_env_and_agent_steps():
    batch = two_policies()
    assert (batch.count, len(batch), batch.env_steps(), batch.agent_steps()) == (4, 4, 4, 8)
    assert batch.as_multi_agent() is batch
    assert "4 env steps" in repr(batch)


def test_multi_agent_timeslices_keep_steps_together():
    parts = two_policies().timeslices(2)
    assert [part.count for part in parts] == [2, 2]
    assert parts[0].policy_batches["a"]["x"].tolist() == [0, 1]
    assert parts[0].policy_batches["b"]["x"].tolist() == [10, 11]
    assert parts[1].policy_batches["a"]["x"].tolist() == [2, 3]
    assert parts[1].policy_batches["b"]["x"].tolist() == [12, 13]
    assert MultiAgentBatch({}, 0).timeslices(3) == []
    with pytest.raises(ValueError, match="at least 1"):
        two_policies().timeslices(0)


def test_multi_agent_concat_takes_plain_batches_as_default_policy():
    joined = SampleBatch.concat_samples([two_policies(), make(3), two_policies()])
    assert isinstance(joined, MultiAgentBatch)
    assert joined.count == 11
    assert joined.policy_batches["a"].count == 8
    assert joined.policy_batches[DEFAULT_POLICY_ID].count == 3
    assert two_policies().concat(make(1)).count == 5


def test_multi_agent_wrap_as_needed_unwraps_default_only():
    plain = make()
    assert MultiAgentBatch.wrap_as_needed({DEFAULT_POLICY_ID: plain}, 6) is plain
    assert isinstance(MultiAgentBatch.wrap_as_needed({"a": plain}, 6), MultiAgentBatch)
    assert plain.as_multi_agent().policy_batches == {DEFAULT_POLICY_ID: plain}


def test_multi_agent_copy_compress_and_size():
    batch = MultiAgentBatch({"a": {"obs": np.zeros((50, 100))}}, 50)
    clone = batch.copy()
    clone.policy_batches["a"]["obs"][0] = 1
    assert batch.policy_batches["a"]["obs"].sum() == 0
    size = batch.size_bytes()
    batch.compress(bulk=True)
    assert batch.size_bytes() < size
    assert batch.decompress_if_needed().size_bytes() == size
    assert pickle.loads(pickle.dumps(batch)).count == 50


@pytest.mark.parametrize(
    ("start", "end", "seq_lens", "states"),
    [
        (0, 3, [3], [0]),
        (1, 3, [2], [0]),
        (2, 5, [1, 2], [0, 1]),
        (4, 6, [2], [1]),
        (5, 10, [2, 3], [1, 2]),
        (7, 7, [], []),
    ],
)
def test_slice_cuts_within_sequences_which_keep_the_state_they_began_with(start, end, seq_lens, states):
    cut = sequences([3, 4, 3]).slice(start, end)
    assert cut["obs"].tolist() == list(range(start + 1, end + 1))
    assert cut["seq_lens"].tolist() == seq_lens
    assert cut["state_in_0"][:, 0].tolist() == states


def test_slice_from_a_negative_row_puts_zeros_before_the_first_sequence():
    part = sequences([1, 2, 3]).slice(-2, 3)
    assert part["obs"].tolist() == [0, 0, 1, 2, 3]
    assert part["seq_lens"].tolist() == [3, 2]
    assert part["seq_lens"].dtype == np.int32
    assert part["state_in_0"].tolist() == [[0], [1]]
    assert make(6).slice(-2, 6)["t"].tolist() == [4, 5]


def test_slice_takes_known_sequences_and_plain_rows():
    cut = sequences([3, 4, 3]).slice(3, 6, 1, 2)
    assert (cut["seq_lens"].tolist(), cut["state_in_0"].tolist()) == ([3], [[1.0]])
    assert SampleBatch(obs=np.arange(5)).slice(1, 9)["obs"].tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="state_start=1, state_end=None; wanted both or none"):
        sequences([3]).slice(0, 2, 1)
    with pytest.raises(ValueError, match="zero-padded batch"):
        sequences([2, 1]).zero_pad(2).slice(0, 1)


def test_a_batch_reads_as_that_of_the_default_policy_and_cannot_be_replaced_in_it():
    batch = make()
    assert dict(batch.policy_batches) == {DEFAULT_POLICY_ID: batch}
    with pytest.raises(TypeError):
        batch.policy_batches[DEFAULT_POLICY_ID] = make()


def test_a_batch_of_ray_1_8_is_told_that_it_is_learned_from():
    class Part(SampleBatch):
        def __init__(self, whole):
            self.is_training = whole.is_training

    batch = SampleBatch({"obs": np.zeros(2)})
    batch.is_training = True
    assert batch["is_training"] is True
    assert Part(batch).is_training is True
