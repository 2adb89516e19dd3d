"""Batches as JSON: what is written is read, files of RLlib 1.x too, and nothing in them is executed."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import zipfile

import fsspec
import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.evaluation.sample_batch_builder import SampleBatchBuilder
from rlframe.offline import IOContext, JsonReader, JsonWriter, ShuffledInput
from rlframe.offline.data_files import find_files
from rlframe.offline.json_format import from_line, to_line, unpack
from rlframe.utils.errors import ConfigError, DataError


def make_batch(rows: int = 4, first: float = 0.0) -> SampleBatch:
    rng = np.random.default_rng(rows)
    return SampleBatch(
        {
            "obs": rng.normal(size=(rows, 3)).astype(np.float32),
            "actions": np.arange(rows),
            "rewards": (first + np.arange(rows)).astype(np.float32),
            "dones": np.arange(rows) == rows - 1,
            "eps_id": np.full(rows, 2**40),
        }
    )


def same(one, other):
    assert set(one) == set(other)
    for name, column in one.items():
        np.testing.assert_array_equal(np.asarray(other[name]), np.asarray(column), err_msg=name)
        if isinstance(column, np.ndarray):
            assert other[name].dtype == column.dtype, name


def rewards_of(reader, count: int) -> list[float]:
    return [float(reader.next()["rewards"][0]) for _ in range(count)]


def write(path, batches, **options) -> None:
    writer = JsonWriter(str(path), **options)
    for batch in batches:
        writer.write(batch)
    writer.close()


@pytest.mark.parametrize("packed", [(), ("obs", "rewards")])
def test_a_batch_comes_back_bit_for_bit(packed):
    batch = make_batch()
    same(batch, from_line(to_line(batch, packed)))


@given(
    st.sampled_from([np.float32, np.float64, np.int8, np.uint8, np.int64, np.bool_]),
    st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=3),
)
def test_packed_columns_keep_dtype_and_shape(dtype, shape):
    column = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    back = from_line(to_line(SampleBatch({"obs": column}), ("obs",)))["obs"]
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, column)


def test_nested_columns_several_policies_and_infos_come_back():
    nested = SampleBatch(
        {
            "obs": {"a": np.ones((2, 3), np.float32), "b": (np.zeros(2, np.float32), np.ones((2, 1), np.float32))},
            "rewards": np.ones(2, np.float32),
            "infos": np.array([{"speed": np.float32(1.5), "who": object}, {}], dtype=object),
        }
    )
    back = from_line(to_line(MultiAgentBatch({"left": nested, "right": make_batch()}, 3), ("obs",)))
    assert isinstance(back, MultiAgentBatch)
    assert back.env_steps() == 3
    same(make_batch(), back.policy_batches["right"])
    left = back.policy_batches["left"]
    np.testing.assert_array_equal(left["obs"]["b"][1], np.ones((2, 1)))
    assert left["infos"][0] == {"speed": 1.5, "who": str(object)}


class Explosive:
    def __reduce__(self):
        return os.mkdir, ("explosion",)


def as_rllib_packs(value, protocol: int = 5) -> str:
    """Returns text as RLlib 1.x's `pack` made it: a pickle in an LZ4 frame."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(pickle.dumps(value, protocol=protocol))
    return base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "array", [np.arange(6, dtype=np.uint8).reshape(2, 3), np.ones((2, 2), np.float32).T, np.array([True, False])]
)
def test_pickled_arrays_of_rllib_are_read(protocol, array):
    line = json.dumps({"type": "SampleBatch", "obs": as_rllib_packs(array, protocol), "rewards": [0.0, 1.0]})
    back = from_line(line)["obs"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_rllibs_nested_observations_are_read():
    back = unpack(as_rllib_packs({"a": np.ones(2), "b": (np.zeros(1), np.float32(2.0))}))
    np.testing.assert_array_equal(back["a"], np.ones(2))
    assert back["b"][1] == 2.0


def test_a_column_of_nothing_is_left_out_as_demonstrations_written_by_hand_have_it():
    builder = SampleBatchBuilder()
    for t in range(3):
        builder.add_values(t=t, eps_id=0, obs=np.ones(2, np.float32), actions=t, action_dist_inputs=None, rewards=1.0)
    back = from_line(to_line(builder.build_and_reset()))
    assert "action_dist_inputs" not in back
    assert back["actions"].tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="column 'rewards': rows of several shapes"):
        from_line(b'{"type": "SampleBatch", "rewards": [1.0, null]}')


@pytest.mark.parametrize(
    "value", [Explosive(), {"a": Explosive()}, np.array([Explosive()], dtype=object), "text", None]
)
def test_pickles_of_anything_else_are_refused_and_nothing_is_run(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="wanted arrays of numbers"):
        unpack(as_rllib_packs(value))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "no JSON"),
        ("[1]", "got list, wanted an object"),
        ('{"type": "Parquet"}', "'Parquet', wanted"),
        ('{"type": "SampleBatch"}', "without columns"),
        ('{"type": "SampleBatch", "obs": [[1], [1, 2]]}', "column 'obs'"),
        ('{"type": "SampleBatch", "obs": [1, 2], "rewards": [1]}', "rows"),
        ('{"type": "SampleBatch", "obs": "AAAA"}', "no packed array"),
        ('{"type": "SampleBatch", "obs": 3}', "wanted a list"),
        ('{"type": "MultiAgentBatch", "policy_batches": {}}', "without"),
    ],
)
def test_a_line_that_is_no_batch_is_told_with_its_file(line, says, tmp_path):
    path = tmp_path / "data.json"
    path.write_text(f"{line}\n")
    with pytest.raises(DataError, match=says) as raised:
        JsonReader(str(path)).next()
    assert str(path) in str(raised.value)
    if line.endswith("}"):  # whole, so it is no line that a writer was killed at
        path.write_text(line)
        with pytest.raises(DataError, match=says):
            JsonReader(str(path)).next()


def test_a_last_line_that_is_cut_short_is_left_out(tmp_path, caplog):
    line = to_line(make_batch())
    (tmp_path / "data.json").write_text(f"{line}\n{line[:50]}")
    reader = JsonReader(str(tmp_path))
    assert rewards_of(reader, 3) == [0.0] * 3
    assert "cut short" in caplog.text
    assert len(list(reader.read_all_files())) == 1


def test_a_zip_file_that_is_cut_short_is_told(tmp_path):
    (tmp_path / "data.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"data\.zip: got no zip file, or one that is cut short"):
        JsonReader(str(tmp_path))


@pytest.mark.parametrize("content", [None, "", "\n\n"])
def test_no_files_and_empty_ones_are_told(content, tmp_path):
    if content is None:
        with pytest.raises(ConfigError, match="found no file"):
            JsonReader(str(tmp_path))
        return
    (tmp_path / "empty.json").write_text(content)
    with pytest.raises(DataError, match="found no batch"):
        JsonReader(str(tmp_path)).next()


def test_each_pass_reads_every_file_once_and_workers_begin_with_others(tmp_path):
    for number in range(4):
        write(tmp_path / str(number), [make_batch(first=number * 10), make_batch(first=number * 10 + 1)])
    sources = [str(tmp_path / str(number)) for number in range(4)]
    reader = JsonReader(sources, IOContext(config={"seed": 0}, worker_index=2))
    first, second, third = (rewards_of(reader, 8) for _ in range(3))
    assert first == [10, 11, 20, 21, 30, 31, 0, 1]
    assert sorted(second) == sorted(third) == sorted(first)
    assert second != third


def test_workers_that_share_a_file_begin_at_different_places_in_it(tmp_path):
    for number in range(2):
        write(tmp_path / str(number), [make_batch(first=number * 10 + line) for line in range(4)])
    sources = [str(tmp_path / str(number)) for number in range(2)]
    config = {"seed": 0, "num_workers": 4}
    readers = [JsonReader(sources, IOContext(config=config, worker_index=index)) for index in (1, 2, 3, 4)]
    other = JsonReader(sources, IOContext(config=config, worker_index=4))
    other.set_state(readers[3].get_state())
    assert [rewards_of(reader, 3) for reader in readers] == [[0, 1, 2], [10, 11, 12], [2, 3, 10], [12, 13, 0]]
    assert rewards_of(other, 3) == [12, 13, 0]
    first_passes = [rewards_of(reader, 8) for reader in readers]
    assert {reward for rewards in first_passes for reward in rewards} == {0, 1, 2, 3, 10, 11, 12, 13}


def test_empty_lines_are_no_places_to_begin_at_and_empty_files_no_end(tmp_path):
    write(tmp_path / "full", [make_batch(first=line) for line in range(8)])
    path = next((tmp_path / "full").glob("*.json"))
    path.write_bytes(path.read_bytes() + b"\n" * 20)
    (tmp_path / "full.json").write_bytes(b"")
    config = {"seed": 0, "num_workers": 4}
    readers = [JsonReader(str(path), IOContext(config=config, worker_index=index)) for index in (1, 2, 3, 4)]
    assert [rewards_of(reader, 1) for reader in readers] == [[0], [2], [4], [6]]
    beside = JsonReader([str(path), str(tmp_path / "full.json")], IOContext(config={"seed": 0}, worker_index=1))
    assert rewards_of(beside, 24) == list(range(8)) * 3


def test_a_reader_goes_on_where_another_stood(tmp_path):
    for number in range(3):
        write(tmp_path, [make_batch(first=number * 10 + line) for line in range(3)])
    one = ShuffledInput(JsonReader(str(tmp_path), IOContext(config={"seed": 1})), n=3, seed=5)
    rewards_of(one, 7)
    state = one.get_state()
    other = ShuffledInput(JsonReader(str(tmp_path), IOContext(config={"seed": 2})), n=3, seed=6)
    other.set_state(state)
    assert rewards_of(other, 20) == rewards_of(one, 20)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda reader: pickle.loads(pickle.dumps(reader))])
def test_a_reader_that_has_begun_can_be_copied_and_the_copy_goes_on_from_there(tmp_path, copied):
    for number in range(3):
        write(tmp_path / str(number), [make_batch(first=10.0 * number + part) for part in range(2)])
    reader = JsonReader(str(tmp_path / "*" / "*.json"))
    rewards_of(reader, 3)
    other = copied(reader)
    assert rewards_of(other, 5) == rewards_of(reader, 5)
    other.close()
    reader.close()


def test_globs_zips_and_lists_are_read(tmp_path):
    write(tmp_path / "a", [make_batch(first=1)])
    write(tmp_path / "b", [make_batch(first=2)])
    (made,) = (tmp_path / "b").iterdir()
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.write(made, "inside/c.json")
    reader = JsonReader([str(tmp_path / "a" / "*.json"), str(tmp_path / "c.zip")], IOContext(config={"seed": 0}))
    assert rewards_of(reader, 2) == [1, 2]
    assert sorted(rewards_of(reader, 2)) == [1, 2]


def test_the_directory_of_a_run_stands_for_what_was_written_of_its_experience(tmp_path):
    write(tmp_path / "written", [make_batch(first=0.0)])
    (source,) = (tmp_path / "written").iterdir()
    source.rename(tmp_path / source.name)
    (tmp_path / "params.json").write_text('{"lr": 0.1}')
    (tmp_path / "result.json").write_text('{"episode_reward_mean": 3.0}\n')
    (tmp_path / "progress.csv").write_text("episode_reward_mean\n3.0\n")
    wanted = [str(tmp_path / source.name)]
    assert JsonReader(str(tmp_path)).files == JsonReader(str(tmp_path / "*.json")).files == wanted
    assert find_files(str(tmp_path / "progress.csv")) == [str(tmp_path / "progress.csv")]


def test_files_are_rolled_and_none_is_overwritten(tmp_path):
    for _ in range(2):
        write(tmp_path, [make_batch()] * 3, max_file_size=1)
    assert len(list(tmp_path.iterdir())) == 6
    assert len(list(JsonReader(str(tmp_path)).read_all_files())) == 6


def test_what_json_has_no_form_for_is_told_and_nothing_is_written(tmp_path):
    batch = make_batch(1)
    batch["secret"] = np.array([object()], dtype=object)
    with pytest.raises(DataError, match="'secret'"):
        write(tmp_path, [batch])
    assert list(tmp_path.iterdir()) == []


def test_folders_with_files_of_the_same_names_are_not_taken_for_each_other(tmp_path, caplog):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data.json").write_text(to_line(make_batch(first=ord(folder))) + "\n")
    one = JsonReader(str(tmp_path / "a"))
    one.next()
    JsonReader(str(tmp_path / "b")).set_state(one.get_state())
    assert "not those of the checkpoint" in caplog.text
    (tmp_path / "moved").mkdir()
    (tmp_path / "a" / "data.json").rename(tmp_path / "moved" / "data.json")
    caplog.clear()
    JsonReader(str(tmp_path / "moved")).set_state(one.get_state())
    assert not caplog.text


def test_columns_of_two_shapes_are_told_with_both_places(tmp_path):
    lines = [to_line(SampleBatch({"obs": np.zeros((2, width), np.float32)})) for width in (3, 4)]
    (tmp_path / "data.json").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"data\.json: line 2: column 'obs': got rows of shape \(4,\), .*line 1"):
        list(JsonReader(str(tmp_path)).read_all_files())


def test_addresses_are_written_read_and_listed_and_old_files_ended(tmp_path):
    address = "memory://rlframe-json/data"
    try:
        writer = JsonWriter(address, remote_interval_s=0.0)
        for first in range(3):
            writer.write(make_batch(first=first))
            # A worker that is killed now leaves what it wrote.
            assert len(JsonReader(address).files) == first + 1
        assert sorted(rewards_of(JsonReader(f"{address}/*.json"), 3)) == [0, 1, 2]
        with pytest.raises(ConfigError, match="found no file"):
            JsonReader("memory://rlframe-json/nothing")
    finally:
        fsspec.filesystem("memory").rm("/rlframe-json", recursive=True)


def test_episodes_of_two_runs_in_one_directory_are_told_apart_for_all_policies(tmp_path):
    batch = MultiAgentBatch({"left": make_batch(), "right": make_batch()}, 4)
    for _ in range(2):
        write(tmp_path, [batch])
    ids = [
        {policy: set(rows["eps_id"].tolist()) for policy, rows in read.policy_batches.items()}
        for read in JsonReader(str(tmp_path)).read_all_files()
    ]
    assert [one["left"] == one["right"] for one in ids] == [True, True]
    assert not ids[0]["left"] & ids[1]["left"]
