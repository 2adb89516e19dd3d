"""Datasets as a whole: what is converted reads alike, what is split keeps its episodes, and what is said is counted."""

from __future__ import annotations

import gc
import shutil

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline import EpisodeReader, JsonWriter
from rlframe.offline.datasets import convert_dataset, describe_dataset, read_dataset, split_dataset
from rlframe.offline.evaluation import read_episodes
from rlframe.offline.preparing import logged_log_likelihood
from rlframe.utils.errors import ConfigError, DataError
from tests.unit.offline.test_episode_files import LENGTHS, episodes, write


@pytest.fixture
def table(tmp_path):
    write(tmp_path / "table", episodes())
    return str(tmp_path / "table")


def rows_of(source) -> SampleBatch:
    return SampleBatch.concat_samples(list(read_dataset(source)))


@pytest.mark.parametrize("kind", ["parquet", "json", "npz", "hdf5"])
def test_what_is_converted_reads_alike(kind, table, tmp_path):
    if kind == "hdf5":
        pytest.importorskip("h5py")
    assert convert_dataset(table, str(tmp_path / "made"), kind) == 18
    made, wanted = rows_of(str(tmp_path / "made")), rows_of(table)
    assert set(made) == set(wanted)
    for name, column in wanted.items():
        np.testing.assert_array_equal(made[name], column, err_msg=name)
    with pytest.raises(ConfigError, match="exists; wanted a new directory"):
        convert_dataset(table, str(tmp_path / "made"), kind)


def test_what_is_split_keeps_its_episodes(tmp_path):
    writer = JsonWriter(str(tmp_path / "lines"))
    for episode in episodes((4,) * 10):  # each in two batches
        writer.write(episode[:1])
        writer.write(episode[1:])
    writer.close()
    counts = split_dataset(str(tmp_path / "lines"), str(tmp_path / "parts"), {"train": 0.8, "test": 0.2})
    assert counts == {"train": 8, "test": 2}
    parts = {name: rows_of(str(tmp_path / "parts" / name))["rewards"] for name in counts}
    assert [len(rewards) for rewards in parts.values()] == [32, 8]
    assert sorted(np.concatenate(list(parts.values()))) == list(range(40))


@pytest.mark.parametrize("kind", ["parquet", "json", "npz"])
def test_what_breaks_off_leaves_no_part_of_a_dataset_behind(kind, tmp_path):
    writer = JsonWriter(str(tmp_path / "lines"))
    for episode in episodes((4, 4)):
        writer.write(episode)
    writer.close()
    (file,) = (tmp_path / "lines").iterdir()
    whole = file.read_text()
    file.write_text(whole + '{"no": "batch"}\n')
    with pytest.raises(DataError, match="line 3: got a line that is no batch"):
        convert_dataset(str(tmp_path / "lines"), str(tmp_path / "made"), kind)
    gc.collect()
    assert not (tmp_path / "made").exists()
    file.write_text(whole)
    assert convert_dataset(str(tmp_path / "lines"), str(tmp_path / "made"), kind) == 8


@pytest.mark.parametrize("said", [True, False, None])
def test_what_a_file_says_of_its_actions_is_said_of_what_is_made_of_it(said, tmp_path):
    write(tmp_path / "table", episodes(), actions_normalized=said)
    source = str(tmp_path / "table")
    convert_dataset(source, str(tmp_path / "made"), "parquet")
    split_dataset(source, str(tmp_path / "parts"), {"one": 0.5, "other": 0.5})
    for made in ("made", "parts/one", "parts/other"):
        assert EpisodeReader(str(tmp_path / made)).actions_normalized is said
    write(tmp_path / "other", episodes(), actions_normalized=not said)
    with pytest.raises(DataError, match=f"got actions_normalized={not said}, wanted {said}, as in .*by itself"):
        convert_dataset([source, str(tmp_path / "other")], str(tmp_path / "both"), "parquet")


def test_part_without_an_episode_is_refused(table, tmp_path):
    with pytest.raises(DataError, match=r"4 episodes make parts of \{'all': 4, 'none': 0\}; wanted one episode"):
        split_dataset(table, str(tmp_path / "parts"), {"all": 0.95, "none": 0.05})
    assert not (tmp_path / "parts").exists()


def test_a_dataset_is_described_by_what_is_in_it(table, tmp_path):
    odd = episodes((3,))[0]
    odd["obs"][1, 0] = np.nan
    odd["action_prob"] = np.full(3, 0.5, np.float32)
    write(tmp_path / "odd", [odd])
    described = describe_dataset(table)
    assert (described["rows"], described["episodes"], described["terminal_rows"]) == (18, 4, 2)
    assert described["returns"]["max"] == 12 + 13 + 14 + 15 + 16 + 17
    assert described["columns"]["obs"] == {"dtype": "<f4", "shape": [3], "not_finite": 0, "min": 0.0, "max": 17.0}
    assert described["probabilities"] is None
    other = describe_dataset(str(tmp_path / "odd"))
    assert other["columns"]["obs"]["not_finite"] == 1
    assert other["probabilities"] == "action_prob"


@pytest.mark.parametrize(
    ("without", "given"),
    [
        (("rewards",), {}),
        (("dones", "terminateds", "truncateds"), {}),
        ((), {"n_steps": np.array([3, 2, 1])}),
        ((), {"rewards": np.full(3, np.nan, np.float32)}),
    ],
)
def test_returns_are_left_out_where_rows_do_not_tell_them(without, given, tmp_path):
    (rows,) = episodes((3,))
    JsonWriter(str(tmp_path)).write(SampleBatch({k: v for k, v in {**rows, **given}.items() if k not in without}))
    described = describe_dataset(str(tmp_path))
    assert described["returns"] is None
    assert described["rows"] == 3
    assert "obs" in described["columns"]


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_nested_columns_are_not_left_out_of_arrays(kind, tmp_path):
    (rows,) = episodes((3,))
    JsonWriter(str(tmp_path / "lines"), compress_columns=()).write(SampleBatch({**rows, "obs": {"a": rows["obs"]}}))
    with pytest.raises(DataError, match=r"column 'obs': got nested values.*wanted --format parquet or json"):
        convert_dataset(str(tmp_path / "lines"), str(tmp_path / "made"), kind)


def test_the_command_line_says_what_the_functions_do(table, tmp_path):
    from typer.testing import CliRunner

    from rlframe.cli.commands import app

    def said(*words: str) -> str:
        result = CliRunner().invoke(app, ["data", *words])
        return f"{result.exit_code}: {result.output}"

    assert said("inspect", table).startswith("0: 18 rows, 4 episodes")
    assert said("convert", table, "-o", str(tmp_path / "c"), "--format", "json").endswith(", 18 rows\n")
    assert "train, 3 episodes" in said("split", table, "-o", str(tmp_path / "s"), "--parts", "train=0.75,test=0.25")
    assert "got 'train', wanted names with shares" in said(
        "split", table, "-o", str(tmp_path / "x"), "--parts", "train"
    )
    assert "got 'csv', wanted one of" in said("convert", table, "-o", str(tmp_path / "x"), "--format", "csv")


@pytest.mark.parametrize("kind", ["parquet", "json", "npz"])
def test_episodes_of_several_files_stay_apart_though_each_counts_them_from_0(kind, tmp_path):
    for name in ("a", "b", "c"):
        write(tmp_path / "one", episodes())
        convert_dataset(str(tmp_path / "one"), str(tmp_path / name), kind)
        shutil.rmtree(tmp_path / "one")
    sources = [str(tmp_path / name) for name in ("a", "b", "c")]
    described = describe_dataset(sources)
    assert (described["rows"], described["episodes"], described["episodes_ended"]) == (54, 12, 12)
    assert described["returns"]["max"] == 12 + 13 + 14 + 15 + 16 + 17
    assert split_dataset(sources, str(tmp_path / "parts"), {"x": 0.75, "y": 0.25}) == {"x": 9, "y": 3}
    convert_dataset(sources, str(tmp_path / "made"), "parquet")
    ids = rows_of(str(tmp_path / "made"))["eps_id"]
    assert (np.flatnonzero(np.diff(ids)) + 1).tolist() == np.cumsum(LENGTHS * 3)[:-1].tolist()
    assert len(set(ids.tolist())) == 12
    read = read_episodes(EpisodeReader(str(tmp_path / "made")).read_all_files())
    assert (read.lengths.tolist(), read.left_out) == ([5, 4] * 3, 6)  # those that were cut have several lengths


def test_an_episode_that_goes_on_in_the_next_file_stays_one(tmp_path):
    (episode,) = episodes((12,))
    writer = JsonWriter(str(tmp_path), max_file_size=1)  # a file for each batch
    for row in range(12):
        writer.write(episode[row : row + 1])
    described = describe_dataset(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 12
    assert (described["episodes"], described["returns"]["mean"]) == (1, 66.0)
    writer = JsonWriter(str(tmp_path / "other"))
    for part in (episode[5:], episode[:5]):  # a beginning of another one behind the end
        writer.write(part)
        writer.close()
    assert describe_dataset(str(tmp_path / "other"))["episodes"] == 2


def test_rows_of_several_policies_are_converted_and_elsewhere_refused_with_what_to_do(tmp_path):
    left, right = episodes(LENGTHS), episodes(LENGTHS, width=2)
    writer = JsonWriter(str(tmp_path / "json"))
    for one, other in zip(left, right, strict=True):
        writer.write(MultiAgentBatch({"left": one, "right": other}, one.count))
    writer.close()
    rows = sum(LENGTHS)
    assert convert_dataset(str(tmp_path / "json"), str(tmp_path / "table"), "parquet") == 2 * rows
    assert describe_dataset_of(tmp_path / "table", "right") == (rows, 2)
    assert convert_dataset(str(tmp_path / "table"), str(tmp_path / "again"), "json") == 2 * rows
    with pytest.raises(DataError, match=r"policies \['left', 'right'\], wanted one policy's; `rlframe data convert`"):
        describe_dataset(str(tmp_path / "json"))


def describe_dataset_of(path, policy):
    rows = SampleBatch.concat_samples(list(EpisodeReader(str(path), policy=policy).read_all_files()))
    return rows.count, rows["obs"].shape[1]


def test_densities_that_float32_cannot_hold_are_known_by_their_logarithms():
    logp = np.array([-0.5, -120.0, 95.0])
    with np.errstate(over="ignore"):
        rows = SampleBatch({"action_prob": np.exp(logp).astype(np.float32), "action_logp": logp})
    np.testing.assert_allclose(logged_log_likelihood(rows), logp, rtol=1e-6)
    np.testing.assert_allclose(
        logged_log_likelihood(SampleBatch({"action_prob": [0.25, 0.0]})), [np.log(0.25), -np.inf]
    )
    assert logged_log_likelihood(SampleBatch({"obs": [0.0]})) is None
