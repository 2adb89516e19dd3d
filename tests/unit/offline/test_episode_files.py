"""Files of whole episodes: what is written is read, others' layouts too, and each mistake is told with its place."""

from __future__ import annotations

import numpy as np
import pytest

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline import EpisodeReader, IOContext, ParquetWriter
from rlframe.offline.episode_reader import PoliciesReader, open_episodes
from rlframe.offline.sources import file_reader
from rlframe.utils.errors import ConfigError, DataError

LENGTHS = (5, 3, 4, 6)


def episodes(lengths=LENGTHS, width: int = 3) -> list[SampleBatch]:
    """Returns episodes that end by turns in a terminal state and at a time limit; each row's reward is its number."""
    made, first = [], 0
    for number, rows in enumerate(lengths):
        last = np.arange(rows) == rows - 1
        obs = (first + np.arange(rows + 1))[:, None] * np.ones(width, np.float32)
        made.append(
            SampleBatch(
                {
                    "obs": obs[:-1].astype(np.float32), "new_obs": obs[1:].astype(np.float32),
                    "actions": np.arange(rows), "rewards": (first + np.arange(rows)).astype(np.float32),
                    "terminateds": last & (number % 2 == 0), "truncateds": last & (number % 2 == 1), "dones": last,
                    "eps_id": np.full(rows, number), "t": np.arange(rows),
                }
            )
        )  # fmt: skip
        first += rows
    return made


def write(path, batches, **options) -> None:
    writer = ParquetWriter(str(path), **options)
    for batch in batches:
        writer.write(batch)
    writer.close()


def context(worker: int = 0, num_workers: int = 0, seed: int = 0, **input_config) -> IOContext:
    return IOContext(
        config={"seed": seed, "num_workers": num_workers, "input_config": input_config}, worker_index=worker
    )


def rewards(reader, count: int) -> list[float]:
    return [reward for _ in range(count) for reward in reader.next()["rewards"].tolist()]


def test_parquet_gives_back_dtypes_shapes_nests_and_infos(tmp_path):
    rows = SampleBatch(
        {
            "obs": {
                "a": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
                "b": (np.ones((2, 1), np.float16), np.zeros(2)),
            },
            "rewards": np.ones(2, np.float32),
            "dones": np.array([False, True]),
            "infos": np.array([{"speed": np.float32(1.5)}, {}], dtype=object),
        }
    )
    write(tmp_path, [rows], actions_normalized=True)
    (file,) = tmp_path.glob("*.parquet")
    back = open_episodes(str(file))
    assert back.actions_normalized is True
    batch = back.read(0)
    for got, wanted in (
        (batch["obs"]["a"], rows["obs"]["a"]), (batch["obs"]["b"][0], rows["obs"]["b"][0]),
        (batch["obs"]["b"][1], rows["obs"]["b"][1]), (batch["dones"], rows["dones"]),
    ):  # fmt: skip
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert batch["infos"].tolist() == [{"speed": 1.5}, {}]


def test_groups_hold_whole_episodes_also_where_environments_take_turns(tmp_path):
    one, two = episodes((6, 4))
    write(tmp_path, [one[:3], two[:2], one[3:], two[2:], *episodes((5,) * 4)], group_rows=5)
    (file,) = tmp_path.glob("*.parquet")
    back = open_episodes(str(file))
    for piece in range(back.pieces):
        batch = back.read(piece)
        starts = np.flatnonzero(np.append(True, batch["dones"][:-1]))
        np.testing.assert_array_equal(batch["t"][starts], 0)
        assert batch["dones"][-1]
    assert back.bounds[-1] == 30


def test_what_waits_in_memory_is_bounded_by_the_groups_not_the_episodes(tmp_path):
    (long,) = episodes((100,))
    writer = ParquetWriter(str(tmp_path), group_rows=4)
    for start in range(0, 100, 2):
        writer.write(long[start : start + 2])
        rows = writer._rows[None]
        assert rows.held == sum(batch.count for batch in rows._waiting) <= 9 * 4
    writer.close()
    assert EpisodeReader(str(tmp_path)).next()["rewards"].tolist() == list(
        range(EpisodeReader(str(tmp_path))._opened[0].bounds[1])
    )


def test_a_file_has_its_name_when_it_is_whole(tmp_path):
    writer = ParquetWriter(str(tmp_path), group_rows=2, max_file_size=1)
    writer.write(episodes()[0])
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    writer.write(episodes()[1][:1])
    writer.close()
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert not list(tmp_path.glob("*.part"))


def test_a_writer_that_nobody_closes_has_its_rows_on_disk_when_it_is_forgotten_or_the_program_ends(tmp_path):
    writer = ParquetWriter(str(tmp_path))
    writer.write(episodes()[0])
    assert writer._at_end.alive
    assert writer._at_end.atexit
    del writer
    assert EpisodeReader(str(tmp_path)).next()["rewards"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("group_rows", [2, 100])
def test_a_column_that_gets_fractions_keeps_them(group_rows, tmp_path):
    whole, after = episodes((3, 3))
    whole["rewards"], after["rewards"] = np.array([1, 0, 1]), np.array([0.5, 0.25, 3], np.float32)
    write(tmp_path, [whole, after, whole], group_rows=group_rows)
    got = rewards(EpisodeReader(str(tmp_path), context(batch_rows=1)), 3)
    assert sorted(got) == [0, 0, 0.25, 0.5, 1, 1, 1, 1, 3]


@pytest.mark.parametrize(
    ("numbers", "says"), [([2**24 + 1, 0, 1], "does not hold"), (np.array([{}, {}, {}]), "numbers or objects")]
)
def test_what_a_column_cannot_hold_is_not_written(numbers, says, tmp_path):
    floats, odd = episodes((3, 3))
    odd["rewards"] = np.asarray(numbers)
    with pytest.raises(DataError, match=f"column 'rewards': .*{says}"):
        write(tmp_path, [floats, odd])


def test_batches_are_whole_episodes_and_each_pass_gives_every_row(tmp_path):
    write(tmp_path, episodes(), group_rows=6)
    reader = EpisodeReader([str(tmp_path)], context(batch_rows=4))
    first = [reader.next() for _ in range(4)]
    assert [batch.count for batch in first] == [5, 3, 4, 6]
    assert sorted(rewards(reader, 4)) == list(range(18))


def test_rows_are_mixed_without_loss_and_within_bounds(tmp_path):
    write(tmp_path, episodes((4,) * 12), group_rows=4)
    reader = EpisodeReader(str(tmp_path), context(shuffle_rows=16, batch_rows=8))
    seen = []
    for _ in range(6):
        seen += reader.next()["rewards"].tolist()
        assert reader._block is None or reader._block.count <= 16 + 4
    assert sorted(seen) == list(range(48))
    assert seen != sorted(seen)
    assert max(np.abs(np.diff(seen[:16]))) > 1


@pytest.mark.parametrize("settings", [{"batch_rows": 4}, {"shuffle_rows": 10, "batch_rows": 3}])
def test_a_reader_goes_on_where_another_stood(tmp_path, settings):
    for number in range(2):
        write(tmp_path / str(number), episodes(), group_rows=4)
    sources = [str(tmp_path / "0"), str(tmp_path / "1")]
    one, other = EpisodeReader(sources, context(**settings)), EpisodeReader(sources, context(seed=9, **settings))
    rewards(one, 7)
    state = one.get_state()
    wanted = rewards(one, 30)
    rewards(other, 5)
    other.set_state(state)
    assert rewards(other, 30) == wanted
    one.set_state(state)
    one.close()
    assert rewards(one, 30) == wanted


def test_a_table_that_was_replaced_is_read_from_its_beginning(tmp_path, caplog):
    write_csv(tmp_path)
    settings = context(shuffle_rows=18, batch_rows=4)
    reader = EpisodeReader(str(tmp_path), settings)
    rewards(reader, 3)
    state = reader.get_state()
    table = tmp_path / "data.csv"
    table.write_text("\n".join(table.read_text().split("\n")[:6]) + "\n")
    reader = EpisodeReader(str(tmp_path), settings)
    reader.set_state(state)
    assert "not those of the checkpoint" in caplog.text
    assert sorted(rewards(reader, 2)) == [0, 1, 2, 3, 4]


def test_workers_begin_with_different_pieces(tmp_path):
    write(tmp_path, episodes((4,) * 6), group_rows=4)
    firsts = [
        EpisodeReader(str(tmp_path), context(worker, 3, batch_rows=4)).next()["eps_id"][0] for worker in (1, 2, 3)
    ]
    assert firsts == [0, 2, 4]


def arrays(names: dict[str, str], without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    rows = SampleBatch.concat_samples(episodes())
    return {names.get(name, name): column for name, column in rows.items() if name not in without}


D4RL = {"obs": "observations", "new_obs": "next_observations", "terminateds": "terminals", "truncateds": "timeouts"}


def write_npz(path):
    np.savez(path / "data.npz", **arrays({}), version=np.array(1))


def write_d4rl(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "data.hdf5", "w") as file:
        for name, column in arrays(D4RL, ("dones", "eps_id", "t")).items():
            file[name] = column
        file["metadata/algorithm"] = "none"


def write_minari(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "data.hdf5", "w") as file:
        for number, episode in enumerate(episodes()):
            group = file.create_group(f"episode_{number}")
            group["observations/a"] = np.concatenate([episode["obs"], episode["new_obs"][-1:]])[:, :2]
            group["observations/b"] = np.concatenate([episode["obs"], episode["new_obs"][-1:]])[:, 2:]
            group["actions"], group["rewards"] = episode["actions"], episode["rewards"].astype(np.float64)
            group["terminations"], group["truncations"] = episode["terminateds"], episode["truncateds"]


def write_csv(path):
    rows = arrays({})
    lines = ["x,y,z,x2,y2,z2,a,r,done,cut,episode"]
    for row in range(18):
        values = [*rows["obs"][row], *rows["new_obs"][row], *(rows[name][row] for name in ("actions", "rewards"))]
        values += [int(rows["terminateds"][row]), int(rows["truncateds"][row]), rows["eps_id"][row]]
        lines.append(",".join(str(value) for value in values))
    (path / "data.csv").write_text("\n".join(lines) + "\n")
    (path / "data.schema.yaml").write_text(
        "obs: [x, y, z]\nnew_obs: [x2, y2, z2]\nactions: {columns: a, dtype: int64}\nrewards: r\nterminateds: done\n"
        "truncateds: cut\neps_id: episode\n"
    )


def write_csv_with_json(path):
    import json

    import yaml

    write_csv(path)
    schema = path / "data.schema.yaml"
    (path / "data.schema.json").write_text(json.dumps(yaml.safe_load(schema.read_text())))
    schema.unlink()


@pytest.mark.parametrize("made", [write_npz, write_d4rl, write_minari, write_csv, write_csv_with_json])
def test_others_layouts_are_read(made, tmp_path):
    made(tmp_path)
    reader = EpisodeReader(str(tmp_path), context(batch_rows=1))
    for _ in range(2):
        got = sorted([reader.next() for _ in range(4)], key=lambda batch: batch["eps_id"][0])
        for batch, wanted in zip(got, episodes(), strict=True):
            for name in ("obs", "new_obs", "actions", "rewards", "terminateds", "truncateds", "dones", "eps_id"):
                np.testing.assert_array_equal(batch[name], wanted[name], err_msg=name)
                assert batch[name].dtype.kind == wanted[name].dtype.kind
            assert batch["obs"].dtype == batch["rewards"].dtype == np.float32


@pytest.mark.parametrize("name", ["minari:made/small-v0", "minari://made/small-v0"])
def test_a_minari_dataset_is_read_by_its_id(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    place = tmp_path / "made" / "small-v0" / "data"
    place.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"found no .*main_data\.hdf5; download it first"):
        EpisodeReader(name)
    (place / "metadata.json").write_text('{"data_format": "arrow"}')
    with pytest.raises(ConfigError, match="format 'arrow', wanted 'hdf5'; write it by"):
        EpisodeReader(name)
    (place / "metadata.json").write_text('{"data_format": "hdf5"}')
    write_minari(place)
    (place / "data.hdf5").rename(place / "main_data.hdf5")
    assert sum(batch.count for batch in EpisodeReader(name).read_all_files()) == 18


def write_flat_hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "data.h5", "w") as file:
        for name, column in arrays({**D4RL, "dones": "episode_terminals"}, ("new_obs", "truncateds", "t")).items():
            file[name] = column


def write_d3rlpy(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "data.h5", "w") as file:
        file["columns"], file["version"] = ["observations", "actions", "rewards", "terminated"], "2.1"
        file["num_episodes"] = len(LENGTHS)
        for number, episode in enumerate(episodes()):
            file[f"observations_{number}"], file[f"actions_{number}"] = episode["obs"], episode["actions"]
            file[f"rewards_{number}"] = episode["rewards"][:, None]
            file[f"terminated_{number}"] = bool(episode["terminateds"][-1])


@pytest.mark.parametrize("made", [write_flat_hdf5, write_d3rlpy])
def test_without_next_observations_only_rows_that_lead_somewhere_are_given(made, tmp_path):
    made(tmp_path)
    reader = EpisodeReader(str(tmp_path), context(batch_rows=100))
    batch = reader.next()
    # Rows 7 and 17 are the last before a time limit: what was seen after them is not in the file.
    assert batch["rewards"].tolist() == [row for row in range(18) if row not in (7, 17)]
    inside = ~batch["terminateds"]
    np.testing.assert_array_equal(batch["new_obs"][inside], batch["obs"][inside] + 1)
    assert np.flatnonzero(batch["terminateds"]).tolist() == [4, 10]
    # What is left of those episodes ends where it was cut off.
    assert batch["rewards"][batch["truncateds"]].tolist() == [6, 16]
    np.testing.assert_array_equal(batch["dones"], batch["terminateds"] | batch["truncateds"])


def test_episodes_of_one_file_that_are_counted_from_0_again_or_beyond_float32_stay_apart(tmp_path):
    made = SampleBatch.concat_samples(episodes((2, 2, 2, 2)))
    np.savez(tmp_path / "again.npz", **{**made, "eps_id": np.array([0, 0, 1, 1, 0, 0, 1, 1])})
    (batch,) = EpisodeReader(str(tmp_path / "again.npz")).read_all_files()
    assert batch["eps_id"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    numbers = np.repeat([2.0**24, 2.0**24 + 1], 4)
    np.savez(tmp_path / "large.npz", **{**made, "eps_id": numbers})
    (tmp_path / "large.csv").write_text("x,e\n" + "".join(f"1.0,{number}\n" for number in numbers))
    schema = {"obs": "x", "actions": "x", "rewards": "x", "new_obs": "x", "eps_id": "e"}
    for name, context_ in (("large.npz", context()), ("large.csv", context(schema=schema))):
        (batch,) = EpisodeReader(str(tmp_path / name), context_).read_all_files()
        assert batch["eps_id"].tolist() == numbers.tolist()


def cut_short(path):
    write(path, episodes())
    (file,) = path.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])


def npz_cut_short(path):
    write_npz(path)
    (path / "data.npz").write_bytes((path / "data.npz").read_bytes()[:-200])


def two_shapes(path):
    write(path, episodes())
    write(path, episodes(width=2))


def a_column_less(path):
    write(path, episodes())
    few = episodes((3,))
    del few[0]["t"]
    write(path, few)


def no_schema(path):
    write_csv(path)
    (path / "data.schema.yaml").unlink()


def a_word(path):
    write_csv(path)
    text = (path / "data.csv").read_text()
    assert "3.0,3.0,3.0,4.0" in text
    (path / "data.csv").write_text(text.replace("3.0,3.0,3.0,4.0", "3.0,none,3.0,4.0"))


def nothing_in(column):
    def made(path):
        write_csv(path)
        lines = (path / "data.csv").read_text().split("\n")
        values = lines[3].split(",")
        values[lines[0].split(",").index(column)] = ""
        lines[3] = ",".join(values)
        (path / "data.csv").write_text("\n".join(lines))

    return made


def another_header(path):
    write_csv(path)
    (path / "data.schema.yaml").write_text("obs: [x, speed]\nactions: a\nrewards: r\nterminateds: done\n")


def rows_differ(path):
    np.savez(path / "data.npz", **{**arrays({}), "rewards": np.zeros(3)})


def no_ends(path):
    np.savez(path / "data.npz", **arrays({}, ("dones", "terminateds", "truncateds", "eps_id")))


def with_column(name, change):
    def write(path):
        np.savez(path / "data.npz", **{**arrays({}), name: change(arrays({})[name])})

    return write


def named_twice(path):
    made = arrays({})
    np.savez(path / "data.npz", **made, observations=made["obs"])


def interleaved(path):
    made = arrays({}, ("dones", "terminateds", "truncateds", "new_obs"))
    np.savez(path / "data.npz", **{**made, "eps_id": np.arange(len(made["obs"])) % 2})


def half_an_action(path):
    write_csv(path)
    lines = (path / "data.csv").read_text().split("\n")
    values = lines[3].split(",")
    values[lines[0].split(",").index("a")] = "0.5"
    lines[3] = ",".join(values)
    (path / "data.csv").write_text("\n".join(lines))


def schema_says_twice(path):
    write_csv(path)
    with (path / "data.schema.yaml").open("a") as file:
        file.write("\nactions: x\n")


def pickles(path):
    np.savez(path / "data.npz", obs=np.array([object()]))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (cut_short, r"output-.*parquet: got no Parquet file, or one that is cut short"),
        (npz_cut_short, r"data\.npz: got no npz file of numbers, or one that is cut short"),
        (
            two_shapes,
            r"output-.*column 'obs': got rows of shape \(2,\), wanted \(3,\), as in .*output-",
        ),
        (a_column_less, r"column 't' is missing, which .* has"),
        (no_schema, r"data\.csv: got a table without its schema, wanted .*data\.schema\.yaml"),
        (a_word, r"data\.csv: column 'y': got 'none' in row 5, wanted a number"),
        (nothing_in("done"), r"data\.csv: column 'done': got nan or nothing in row 4, wanted a whole number"),
        (nothing_in("a"), r"data\.csv: column 'a': got nan or nothing in row 4, wanted a whole number"),
        (
            another_header,
            r"data\.csv: column 'speed' is missing, which .*data\.schema\.yaml names; the table has x, y",
        ),
        (rows_differ, r"data\.npz: got arrays of different numbers of rows"),
        (no_ends, r"data\.npz: got no array that tells where episodes end"),
        (pickles, r"data\.npz: got no npz file of numbers"),
        (with_column("obs", lambda rows: rows.astype(str)), r"data\.npz: 'obs' has dtype <U\d+, wanted real numbers"),
        (with_column("actions", lambda rows: rows.astype(complex)), r"'actions' has dtype complex\d+, wanted real"),
        (
            with_column("rewards", lambda rows: np.stack([rows, rows], 1)),
            r"'rewards' has rows of shape \(2,\), wanted one number for each step",
        ),
        (named_twice, r"data\.npz: got 'observations' and 'obs', which are one column"),
        (interleaved, r"'eps_id': got rows of the episode 0 in several places, up to row 0 and from row 2 on"),
        (with_column("eps_id", lambda rows: rows + 0.5), r"'eps_id': got 0\.5 in row 0, wanted whole numbers"),
        (with_column("dones", lambda rows: rows * np.nan), r"'dones': got nan in row 0, wanted 0 or 1"),
        (half_an_action, r"data\.csv: column 'a': got 0\.5 in row 4, wanted a whole number"),
        (schema_says_twice, r"data\.schema\.yaml: cannot be read: line \d+: 'actions' is there twice"),
    ],
)
def test_a_broken_file_is_told_with_its_place(kind, says, tmp_path):
    kind(tmp_path)
    with pytest.raises((ConfigError, DataError), match=says):
        EpisodeReader(str(tmp_path)).next()


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"shuffle_rows": -1}, "shuffle_rows: got -1"), ({"batch_rows": "all"}, "batch_rows: got 'all'"),
     ({"n_step": 0}, "n_step: got 0")],
)  # fmt: skip
def test_settings_that_mean_nothing_are_told(settings, says, tmp_path):
    write(tmp_path, episodes())
    with pytest.raises(ConfigError, match=says):
        EpisodeReader(str(tmp_path), context(**settings))


def of_two_policies() -> list[MultiAgentBatch]:
    left, right = episodes((4, 3, 5)), episodes((4, 3, 5), width=2)
    return [
        MultiAgentBatch({"left": one, "the right/one": other}, one.count)
        for one, other in zip(left, right, strict=True)
    ]


def test_rows_of_several_policies_are_written_apart_and_come_back_as_theirs(tmp_path):
    write(tmp_path, of_two_policies(), group_rows=4)
    assert sorted(path.name.split(".", 1)[1] for path in tmp_path.iterdir()) == [
        "left.parquet", "the_right_one.parquet",
    ]  # fmt: skip
    reader = file_reader(str(tmp_path), context(batch_rows=100))
    assert isinstance(reader, PoliciesReader)
    parts = list(reader.read_all_files())
    for policy, width in (("left", 3), ("the right/one", 2)):
        rows = SampleBatch.concat_samples(
            [part.policy_batches[policy] for part in parts if policy in part.policy_batches]
        )
        assert rows["obs"].shape == (12, width)
        assert rows["eps_id"].tolist() == [0] * 4 + [1] * 3 + [2] * 5
    batch = reader.next()
    assert {policy: set(rows["eps_id"]) <= {0, 1, 2} for policy, rows in batch.policy_batches.items()} == {
        "left": True, "the right/one": True,
    }  # fmt: skip
    assert batch.count == max(rows.count for rows in batch.policy_batches.values())
    with pytest.raises(DataError, match="rows of the policies left, the right/one, wanted those of one that has no"):
        EpisodeReader(str(tmp_path))
    alone = EpisodeReader(str(tmp_path), context(batch_rows=1), "left")
    assert alone.next()["obs"].shape[1] == 3


def test_readers_of_several_policies_go_on_where_they_were(tmp_path):
    write(tmp_path, of_two_policies(), group_rows=4)
    one, other = (file_reader(str(tmp_path), context(seed=seed, batch_rows=1)) for seed in (0, 5))
    one.next()
    other.set_state(one.get_state())
    for _ in range(5):
        expected, got = one.next().policy_batches, other.next().policy_batches
        for policy in expected:
            assert expected[policy]["rewards"].tolist() == got[policy]["rewards"].tolist()


def test_files_that_say_whose_they_are_are_not_mixed_with_others(tmp_path):
    write(tmp_path, of_two_policies())
    write(tmp_path, episodes())
    with pytest.raises(DataError, match=r"holds rows of the policy '.*', and .*parquet does not say whose it has"):
        file_reader(str(tmp_path), context())


def test_rows_of_two_shapes_are_not_written(tmp_path):
    batch = episodes()[0]
    with pytest.raises(DataError, match=r"column 'obs': got rows of shape \(2,\), wanted \(3,\)"):
        write(tmp_path, [batch, episodes(width=2)[0]])


def test_addresses_are_listed_read_and_written():
    fsspec = pytest.importorskip("fsspec")
    address = "memory://rlframe-test/data"
    try:
        write(address, episodes(), group_rows=6)
        write(address, episodes())
        assert [len(EpisodeReader(source).files) for source in (address, f"{address}/*.parquet")] == [2, 2]
        assert sorted(rewards(EpisodeReader(address, context(batch_rows=100)), 3)) == sorted([*range(18)] * 2)
    finally:
        fsspec.filesystem("memory").rm("/rlframe-test", recursive=True)
