"""Logged data of a decision graph: what is made of them, and how wrong files are answered."""

import copy
import csv

import numpy as np
import pytest

from rlframe.revive.data import GraphData
from rlframe.revive.drafting import draft_graph
from rlframe.revive.functions import RewardFunction, load_reward
from rlframe.revive.graph import DecisionGraph
from rlframe.utils.errors import ConfigError, DataError, NonFiniteError
from tests.unit.revive.test_graph import TANK, tank, tank_arrays


@pytest.fixture(scope="module")
def graph():
    return DecisionGraph.from_dict(TANK)


def test_next_steps_are_the_rows_after_and_last_rows_are_dropped(graph):
    data = GraphData.from_arrays(tank_arrays(), graph)
    np.testing.assert_allclose(data.arrays["level"][:, 0], [0, 0.5, 1, 2, 2.5])
    np.testing.assert_allclose(data.arrays["next_level"][:, 0], [0.5, 1, 1.5, 2.5, 0])
    assert data.ends.tolist() == [3, 5]
    assert data.steps.tolist() == [0, 1, 2, 0, 1]
    assert data.trajectory.tolist() == [0, 0, 0, 1, 1]


def test_given_next_steps_keep_all_rows(graph):
    arrays = tank_arrays() | {"next_level": [[0.5], [1], [1.5], [2.9], [2.5], [0], [2.9]]}  # 2.9: behind the ends
    assert len(GraphData.from_arrays(arrays, graph)) == 7


def changed(name, row, value, column=0):
    arrays = tank_arrays()
    arrays[name] = arrays[name].astype(float)
    arrays[name][row, column] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (tank_arrays() | {"inflow": np.zeros((7, 3))}, r"node 'inflow' has shape \(7, 3\); .*2 columns.*inflow, mode"),
        (tank_arrays() | {"valve": np.zeros((6, 1))}, "node 'valve' has 6 rows, node 'level' has 7"),
        (tank_arrays() | {"index": [0, 4]}, r"marks where trajectories begin; wanted where they end: \[4, 7\]"),
        (tank_arrays() | {"index": [0, 4, 7]}, r"begins with 0; wanted where trajectories end, .*: \[4, 7\]"),
        (tank_arrays() | {"index": [3, 4]}, r"says how long trajectories are; wanted where they end: \[3, 7\]"),
        (tank_arrays() | {"index": [4, 4, 7]}, "index must grow; its entry 1 is 4"),
        (tank_arrays() | {"index": [4, 9]}, "index ends at 9, but there are 7 rows"),
        (
            tank_arrays() | {"next_level": tank_arrays()["level"]},
            "row 0, column 'level_m' of node 'next_level' .* late",
        ),
        (changed("valve", 3, 37), "row 3, column 'valve_pc' of node 'valve' is 37; wanted one of 11 equally spaced"),
        (changed("inflow", 2, 5, 1), r"row 2, column 'mode' of node 'inflow' is 5; wanted one of \[0, 1\]"),
        (changed("level", 1, np.inf), "row 1, column 'level_m' of node 'level' is inf; wanted a finite"),
        ({key: value for key, value in tank_arrays().items() if key != "index"}, "every trajectory has one row"),
        ({key: value for key, value in tank_arrays().items() if key != "level"}, "no array for node 'level'"),
    ],
)
def test_wrong_arrays_are_refused_with_node_column_and_row(graph, arrays, message):
    with pytest.raises(DataError, match=message) as caught:
        GraphData.from_arrays(arrays, graph, source="tank.npz")
    assert str(caught.value).startswith("tank.npz: ")


def test_values_beyond_the_range_of_the_graph_file_are_told(graph):
    with pytest.warns(
        UserWarning, match=r"row 5, column 'level_m' of node 'level' is 4, beyond the max 3 .*1 such row"
    ):
        GraphData.from_arrays(changed("level", 5, 4), graph)
    ranged = copy.deepcopy(graph)
    ranged.fit_ranges(GraphData.from_arrays(tank_arrays(), ranged))
    GraphData.from_arrays(changed("inflow", 3, 99), ranged)  # of a last row, which is dropped: no warning


def test_missing_values_are_masked_and_never_filled_from_other_trajectories(graph):
    arrays = changed("level", [2, 4], np.nan)
    data = GraphData.from_arrays(arrays, graph)
    assert data.mask["level"][:, 0].tolist() == [True, True, False, False, True]
    np.testing.assert_allclose(data.arrays["level"][:, 0], [0, 0.5, 0.5, 2.5, 2.5])  # 2.5: a later row of the second
    assert data.mask["next_level"][:, 0].tolist() == [True, False, True, True, True]
    whole = changed("level", [4, 5, 6], np.nan)
    assert GraphData.from_arrays(whole, graph).arrays["level"][3:, 0].tolist() == [1.5, 1.5]  # middle of 0 to 3


def test_window_repeats_the_first_frame_and_holds_past_actions_only():
    windows = DecisionGraph.from_dict(
        tank(
            graph={"valve": ["ts_level", "ts_valve"], "next_level": ["level", "valve", "inflow"]},
            nodes={"level": {"ts": 3, "ts_length": 2}, "valve": {"ts": 2}},
        )
    )
    data = GraphData.from_arrays(tank_arrays(), windows).arrays
    np.testing.assert_allclose(data["all_ts_level"][2:], [[0, 0.5, 1], [2, 2, 2], [2, 2, 2.5]])
    np.testing.assert_allclose(data["ts_level"], data["all_ts_level"][:, :2])
    np.testing.assert_allclose(data["ts_valve"], [[0, 0], [0, 0], [0, 10], [40, 40], [40, 40]])
    np.testing.assert_allclose(data["next_ts_valve"][:2], [[0, 0], [0, 10]])
    state = {name: values[1] for name, values in data.items()}
    np.testing.assert_allclose(windows.derive("next_all_ts_level", state), data["all_ts_level"][2])


def test_difference_is_learned_in_place_of_the_next_step():
    deltas = DecisionGraph.from_dict(tank(graph={"valve": ["level"], "delta_level": ["level", "valve", "inflow"]}))
    data = GraphData.from_arrays(tank_arrays(), deltas)
    assert deltas.order == ("valve", "delta_level", "next_level")
    assert deltas.nodes["next_level"].role == "derived"
    np.testing.assert_allclose(data.arrays["delta_level"][:, 0], [0.5, 0.5, 0.5, 0.5, -2.5])
    np.testing.assert_allclose(deltas.derive("next_level", data.arrays), data.arrays["next_level"])


def test_trajectories_end_where_the_process_did_and_the_environment_may_learn_it():
    ending = tank(graph={"valve": ["level"], "next_level": ["level", "valve", "inflow"], "done": ["next_level"]})
    ending["metadata"]["columns"].append({"done": {"dim": "done", "type": "category", "values": [0, 1]}})
    arrays = {**tank_arrays(), "index": [7], "done": [0, 0, 0, 1, 0, 0, 0]}
    graph = DecisionGraph.from_dict(ending)
    data = GraphData.from_arrays(arrays, graph)
    assert data.ends.tolist() == [3, 5]
    assert data.done[:, 0].tolist() == data.arrays["done"][:, 0].tolist() == [0, 0, 1, 0, 0]
    np.testing.assert_allclose(data.arrays["next_level"][:, 0], [0.5, 1.0, 1.5, 2.5, 0.0])
    assert graph.policy_node() == "valve"
    with pytest.warns(
        UserWarning, match="done says that the process ends, which the graph does not learn; add the node"
    ):
        GraphData.from_arrays(arrays, DecisionGraph.from_dict(TANK))


def test_split_gives_whole_trajectories_and_cuts_a_single_one_in_time(graph):
    arrays = tank_arrays() | {"index": [2, 4, 7]}
    first, second = GraphData.from_arrays(arrays, graph).split(0.4, seed=1)
    assert sorted([*first.trajectory, *second.trajectory]) == [0, 1, 2, 2]
    assert not set(first.trajectory) & set(second.trajectory)
    first, second = GraphData.from_arrays(arrays | {"index": [7]}, graph).split(0.5)
    assert (first.steps.tolist(), second.steps.tolist()) == ([0, 1, 2], [3, 4, 5])


def test_windows_stay_within_trajectories(graph):
    windows = GraphData.from_arrays(tank_arrays(), graph).windows(2)
    assert windows.rows.T.tolist() == [[0, 1], [2, 2], [3, 4]]
    assert windows.valid.T.tolist() == [[True, True], [True, False], [True, True]]
    drawn = GraphData.from_arrays(tank_arrays(), graph).windows(2, 50, np.random.default_rng(0))
    assert drawn.arrays["inflow"].shape == (2, 50, 2)
    assert drawn.valid.all()
    assert set(drawn.rows[0]) == {0, 1, 3}


def write_csv(path, **columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def table(tmp_path):
    arrays = tank_arrays()
    return write_csv(
        tmp_path / "tank.csv",
        episode=[0, 0, 0, 0, 1, 1, 1],
        level_m=arrays["level"][:, 0],
        valve_pc=arrays["valve"][:, 0],
        inflow=arrays["inflow"][:, 0],
        mode=arrays["inflow"][:, 1],
    )


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_every_format_reads_the_same(graph, table, tmp_path, suffix):
    wanted, path = GraphData.from_arrays(tank_arrays(), graph), (tmp_path / "tank").with_suffix(suffix)
    if suffix == ".npz":
        np.savez(path, **tank_arrays())
    elif suffix == ".h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            for name, values in tank_arrays().items():
                file[name] = values
    elif suffix == ".parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pytest.importorskip("pyarrow.csv").read_csv(table), path)
    there = sorted(tmp_path.iterdir())
    data = GraphData.from_file(path, graph)
    assert data.ends.tolist() == wanted.ends.tolist()
    for name, values in wanted.arrays.items():
        np.testing.assert_array_equal(data.arrays[name], values)
    assert sorted(tmp_path.iterdir()) == there


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".csv", ".parquet"])
def test_file_that_is_cut_short_is_named(graph, table, tmp_path, suffix):
    path = (tmp_path / "short").with_suffix(suffix)
    if suffix == ".csv":
        path.write_text(table.read_text()[:-10])
    else:
        np.savez(tmp_path / "whole.npz", **tank_arrays())
        path.write_bytes((tmp_path / "whole.npz").read_bytes()[:-100])
    with pytest.raises(DataError, match=r"short\.\w+.*cut short"):
        GraphData.from_file(path, graph)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("semicolons.csv", b"level_m;valve_pc\n1,5;0\n", "cells with ';' between them; wanted commas"),
        (
            "latin.csv",
            "Füllstand,valve_pc\n1,0\n".encode("latin-1"),
            "byte 1 is no UTF-8; save the table as CSV in UTF-8",
        ),
        ("text.npz", b"no archive", "got no archive of np.savez"),
    ],
)
def test_file_that_another_program_wrote_says_how_to_write_it(graph, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: .*{message}"):
        GraphData.from_file(tmp_path / name, graph)


def test_array_of_objects_is_named(graph, tmp_path):
    np.savez(tmp_path / "objects.npz", **{**tank_arrays(), "valve": tank_arrays()["valve"].astype(object)})
    with pytest.raises(DataError, match=r"array 'valve' holds Python's objects .*valve\.astype\(np\.float32\)"):
        GraphData.from_file(tmp_path / "objects.npz", graph)


def test_table_without_a_column_or_with_text_says_so(graph, tmp_path):
    with pytest.raises(DataError, match=r"no column 'level_m', which node 'level' has; did you mean 'level'"):
        GraphData.from_file(write_csv(tmp_path / "a.csv", level=[1.0, 2.0], valve_pc=[0, 0]), graph)
    columns = {"level_m": ["1", "high"], "valve_pc": [0, 0], "inflow": [0, 0], "mode": [0, 0]}
    with pytest.raises(DataError, match=r"b.csv, row 1: column 'level_m' of node 'level' is 'high'"):
        GraphData.from_file(write_csv(tmp_path / "b.csv", **columns), graph)


def test_table_with_rows_of_no_trajectory_with_lists_or_long_cells_says_so(graph, table, tmp_path):
    text = table.read_text()
    (tmp_path / "a.csv").write_text(text.replace("\n1,", "\n,", 1))
    with pytest.raises(DataError, match=r"a.csv, row 4: column 'episode' is empty; wanted the row's trajectory"):
        GraphData.from_file(tmp_path / "a.csv", graph)
    (tmp_path / "b.csv").write_text(text + "1," + "1" * 200_000 + ",0,0,0\n")
    with pytest.raises(DataError, match=r"b.csv: the file cannot be read.*field larger than"):
        GraphData.from_file(tmp_path / "b.csv", graph)
    columns = {"level_m": [[1.0], [2.0]], "valve_pc": [0, 0], "inflow": [0, 0], "mode": [0, 0]}
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c.parquet, row 0: column 'level_m' of node 'level' is .*; wanted a number"):
        GraphData.from_file(tmp_path / "c.parquet", graph)


def test_truth_values_of_a_table_are_ones_and_zeros_as_pandas_writes_them(graph, tmp_path):
    columns = {"level_m": [1.0, 2.0, 1.5], "valve_pc": [0, 0, 0], "inflow": [0, 0, 0], "mode": ["True", "", "False"]}
    path = write_csv(tmp_path / "a.csv", **columns, done=["False", "False", "True"])
    with pytest.warns(UserWarning, match="done says that the process ends"):
        data = GraphData.from_file(path, graph)
    assert data.arrays["inflow"][:, 1].tolist() == [1, 1]
    assert data.mask["inflow"][:, 1].tolist() == [True, False]
    assert data.done[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("done", 5.0, "row 2 of done is 5; wanted 1 where the process ends, else 0"),
        ("level", 1e300, r"row 2, column 'level_m' of node 'level' is 1e\+300; wanted a finite number"),
    ],
)
def test_values_that_mean_nothing_are_refused(graph, name, value, message):
    arrays = {**tank_arrays(), "done": np.zeros((7, 1))}
    arrays[name] = np.array(arrays[name], np.float64)
    arrays[name][2] = value
    with pytest.raises(DataError, match=message):
        GraphData.from_arrays(arrays, graph)


def test_drafted_graph_reads_its_table(table, tmp_path):
    path = tmp_path / "graph.yaml"
    path.write_text(draft_graph(table, ["valve_pc"], ["inflow"]))
    graph = DecisionGraph.from_file(path)
    assert graph.order == ("action", "next_state")
    assert graph.external == ("external",)
    assert {column.name: column.kind for node in graph.nodes.values() for column in node.columns} == {
        "level_m": "continuous",
        "mode": "category",
        "valve_pc": "continuous",
        "inflow": "continuous",
    }
    assert len(GraphData.from_file(table, graph)) == 5
    with pytest.raises(ConfigError, match="no column looks like an action"):
        draft_graph(table)
    with pytest.raises(ConfigError, match="column 'inflow' is named as decided, and as what nothing here changes"):
        draft_graph(table, ["valve_pc", "inflow"], ["inflow"])


def test_drafted_graph_quotes_names_and_leaves_out_what_has_no_values(tmp_path):
    names = ['a "q"', "back\\slash", "two\nlines", "yes", "größe", "a: #b"]
    with (tmp_path / "log.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*names, "action", "none"])
        rows.writerows([*(row / 7 + place for place in range(7)), ""] for row in range(6))
    (tmp_path / "graph.yaml").write_text(draft_graph(tmp_path / "log.csv"), encoding="utf-8")
    graph = DecisionGraph.from_file(tmp_path / "graph.yaml")
    assert [column.name for column in graph.nodes["state"].columns] == names
    assert len(GraphData.from_file(tmp_path / "log.csv", graph)) == 5


@pytest.mark.parametrize(
    "values",
    [
        np.tile([1234567.0, 2345678.0, 3e6], 8),  # as 1.23457e+06 it is another number, and 3e+06 a text
        np.tile(np.linspace(0, 1, 7) * 1234.5678, 4),
        np.tile([16777216.0, 16777217.0], 12),  # one number in float32
        np.tile([1e-5, 2e-5, 3e-5, 4e-5], 6),
        1e6 + np.tile(np.arange(8) / 100, 3),
    ],
)
def test_drafted_columns_take_the_numbers_of_their_table(values, tmp_path):
    rng = np.random.default_rng(0)
    rows = len(values)
    done = np.arange(rows) == rows - 1
    write_csv(tmp_path / "log.csv", x=rng.normal(size=rows), y=values, action=rng.permutation(values), done=done * 1.0)
    (tmp_path / "graph.yaml").write_text(draft_graph(tmp_path / "log.csv"))
    graph = DecisionGraph.from_file(tmp_path / "graph.yaml")
    data = GraphData.from_file(tmp_path / "log.csv", graph)
    graph.fit_ranges(data)
    assert (graph.order, len(data)) == (("action", "next_state", "done"), rows - 1)
    np.testing.assert_allclose(data.arrays["state"][:, 1], values[:-1], rtol=1e-6)
    assert data.arrays["done"][:, 0].tolist() == [0.0] * (rows - 2) + [1.0]


def reward_of(function):
    return RewardFunction("tank_reward.py", "get_reward", "", function)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda data: data["level"].mean(), ConfigError, "wanted one value per row"),
        (lambda data: data["inflow"], ConfigError, "wanted one value per row"),
        (lambda data: data["level"] - data["level"].mean(), ConfigError, "must follow from that row alone"),
        (lambda data: np.log(-1 - data["level"]), NonFiniteError, "returned nan"),
        (lambda data: None, ConfigError, "returned None; wanted an array: has it no `return`"),
        (lambda data: np.squeeze(data["level"]), ConfigError, r"returned shape \(\) for rows of shape \(1,\)"),
    ],
)
def test_reward_that_is_not_one_finite_value_per_row_is_refused(graph, function, error, message):
    with pytest.raises(error, match=message) as caught:
        GraphData.from_arrays(tank_arrays(), graph).mean_reward(reward_of(function))
    assert str(caught.value).startswith("tank_reward.py: get_reward")


def test_reward_that_is_nan_somewhere_is_told_with_the_place(graph):
    data = GraphData.from_arrays(tank_arrays(), graph)
    row = len(data) - 1
    odd = data.arrays["level"][row, 0]
    reward = reward_of(lambda values: np.where(values["level"][..., 0] == odd, np.nan, 1.0))
    place = f"step {data.steps[row]} of trajectory {data.trajectory[row]}, counted from 0, where there is .*level "
    with pytest.raises(NonFiniteError, match=f"tank_reward.py: get_reward returned nan for {place}"):
        data.check_rewards(reward)


def test_column_without_a_number_is_refused_by_name(graph):
    arrays = tank_arrays()
    inflow = np.array(arrays["inflow"], float)
    inflow[:, 0] = np.nan
    with pytest.raises(DataError, match=r"column 'inflow' of node 'inflow' is NaN in all rows"):
        GraphData.from_arrays({**arrays, "inflow": inflow}, graph)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("data['nextlevel'][..., 0]", r"get_reward, line 2: there is no node 'nextlevel'; did you mean"),
        ("data['next_level'][..., 3]", r"line 2: IndexError: index 3 is out of bounds .* next_level \(1,\)"),
    ],
)  # fmt: skip
def test_reward_that_fails_is_told_with_its_line_and_what_it_was_given(graph, tmp_path, line, message):
    (tmp_path / "reward.py").write_text(f"def get_reward(data):\n    return {line}\n")
    data = GraphData.from_arrays(tank_arrays(), graph)
    with pytest.raises(ConfigError, match=message):
        data.mean_reward(load_reward(tmp_path / "reward.py"))


def test_mean_reward_is_that_of_the_data_it_is_asked_of(graph):
    first, second = GraphData.from_arrays(tank_arrays(), graph).split()
    assert [data.mean_reward(reward_of(lambda data: data["valve"][..., 0])) for data in (first, second)] == [
        data.arrays["valve"].mean() for data in (first, second)
    ]
