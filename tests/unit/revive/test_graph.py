"""Graph files: what follows from them, and what is wrong in them."""

import copy
import json

import numpy as np
import pytest
import yaml

from rlframe.revive.data import GraphData
from rlframe.revive.graph import DecisionGraph
from rlframe.utils.errors import ConfigError

TANK = yaml.safe_load("""
metadata:
  graph:
    valve: [level]
    next_level: [level, valve, inflow]
  columns:
    - level_m:  {dim: level,  type: continuous, min: 0, max: 3}
    - valve_pc: {dim: valve,  type: discrete, min: 0, max: 100, num: 11}
    - inflow:   {dim: inflow, type: continuous}
    - mode:     {dim: inflow, type: category, values: [0, 1]}
""")


def tank(**changes):
    document = copy.deepcopy(TANK)
    document["metadata"].update(changes)
    return document


def tank_arrays():
    return {
        "level": np.arange(7)[:, None] * 0.5 % 3,
        "valve": np.arange(7)[:, None] * 10,
        "inflow": np.stack([np.linspace(-1, 1, 7), np.arange(7) % 2], -1),
        "index": [4, 7],
    }


def test_tank_has_a_leaf_with_a_transition_an_external_factor_and_a_policy():
    graph = DecisionGraph.from_dict(TANK)
    assert {node.name: node.role for node in graph.nodes.values()} == {
        "level": "leaf",
        "inflow": "external",
        "valve": "network",
        "next_level": "network",
    }
    assert graph.order == ("valve", "next_level")
    assert graph.transitions == {"next_level": "level"}
    assert graph.external == ("inflow",)
    assert graph.policy_node() == "valve"
    assert [column.name for column in graph.nodes["next_level"].columns] == ["level_m"]
    assert np.isinf(graph.space("inflow").high[0])


def test_order_puts_nodes_behind_their_inputs_whatever_the_file_says():
    graph = DecisionGraph.from_dict(tank(graph={"next_level": ["level", "valve", "inflow"], "valve": ["level"]}))
    assert graph.order == ("valve", "next_level")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"graph": {"valve": ["next_level"], "next_level": ["valve", "level", "inflow"]}},
            "a cycle, valve <- next_level <- valve",
        ),
        ({"grahp": {}}, "unknown key 'grahp'; did you mean 'graph'"),
        ({"columns": TANK["metadata"]["columns"][1:]}, "'next_level' is made of node 'level', which has no columns"),
        ({"columns": [*TANK["metadata"]["columns"], {"x": {"dim": "vlave"}}]}, "no node 'vlave'; did you mean 'valve'"),
        ({"columns": [{"level_m": {"dim": "level", "type": "contiguous"}}]}, "did you mean 'continuous'"),
        ({"columns": [{"level_m": {"dim": "level", "mim": 0}}]}, "'level_m': unknown key 'mim'.*did you mean 'min'"),
        ({"columns": [{"level_m": {"dim": "level", "min": 4, "max": 3}}]}, "'level_m': min 4 is above max 3"),
        (
            {"columns": [{"level_m": {"dim": "level", "type": "discrete", "min": 0, "max": 3, "num": 1}}]},
            "'level_m': num is 1 from 0 to 3; wanted 2 at least",
        ),
        ({"nodes": {"valve": {"tss": 3}}}, "nodes: valve: unknown key 'tss'"),
        ({"nodes": {"valev": {"ts": 3}}}, "no node 'valev'; did you mean 'valve'"),
        ({"nodes": {"inflow": {"freeze": True}}}, "'inflow' is no network"),
        ({"metric_nodes": ["level"]}, "metric_nodes: 'level' is no produced node"),
        ({"tunable": ["level"]}, "tunable: 'level' is no external factor"),
        ({"graph": {"valve": ["ts_level"], "next_level": ["level", "valve", "inflow"]}}, "'ts_level' needs a number"),
        ({"expert_functions": {"valve": {"node_function": "nodots"}}}, "wanted {node_function: FILE.FUNCTION}"),
        ({"expert_functions": {"inflow": {"node_function": "file.f"}}}, "the graph produces no node 'inflow'"),
        (
            {"nodes": {"valve": {"loss_type": "loss.f"}}},
            "valve: loss_type is 'loss.f'; wanted one of log_prob, mae, mse",
        ),
        (
            {
                "columns": [
                    {name: {**said, "fit": said["dim"] != "valve"}}
                    for column in TANK["metadata"]["columns"]
                    for name, said in column.items()
                ]
            },
            "all columns of node 'valve' have fit: false",
        ),
        ({"custom_nodes": {}}, "custom_nodes are classes of Revive's"),
        (
            {"columns": [{True: {"dim": "level"}}]},
            "columns: got the name True, which YAML reads as no text; .* in quotes",
        ),
        ({"graph": {"index": ["level"], "next_level": ["level", "index"]}}, "'index' is where trajectories end"),
        (
            {
                "graph": {**TANK["metadata"]["graph"], "done": ["next_level"]},
                "columns": [
                    *TANK["metadata"]["columns"],
                    {"alarm": {"dim": "done", "type": "category", "values": [1, 2]}},
                ],
            },
            r"node 'done' says whether the process ends; wanted one column, .* values: \[0, 1\]",
        ),
    ],
)
def test_graph_file_with_a_fault_names_it(changes, message):
    with pytest.raises(ConfigError, match=message) as caught:
        DecisionGraph.from_dict(tank(**changes), source="tank.yaml")
    assert str(caught.value).startswith("tank.yaml: ")
    assert "\n" not in str(caught.value)


def test_graph_file_that_says_a_node_twice_is_refused_with_its_line(tmp_path):
    path = tmp_path / "tank.yaml"
    path.write_text("metadata:\n  graph:\n    valve: [level]\n    valve: [inflow]\n")
    with pytest.raises(ConfigError, match=r"tank.yaml: .*line 4: 'valve' is there twice"):
        DecisionGraph.from_file(path)


def test_graph_file_is_read_as_other_files_of_settings_with_merged_maps_and_numbers_like_1e5(tmp_path):
    path = tmp_path / "tank.yaml"
    path.write_text(
        "wide: &wide {dim: level, type: continuous, max: 3}\n"
        "metadata:\n"
        "  graph: {valve: [level], next_level: [level, valve]}\n"
        "  columns:\n"
        "    - level_m: {<<: *wide, max: 1e5}\n"
        "    - valve_pc: {dim: valve}\n"
    )
    (level,) = DecisionGraph.from_file(path).nodes["level"].columns
    assert (level.kind, level.high) == ("continuous", 1e5)
    path.write_text("? [a, b]\n: 1\n")
    with pytest.raises(ConfigError, match=r"tank.yaml: cannot be read: .*unhashable"):
        DecisionGraph.from_file(path)


def test_saved_graph_is_the_same_again_with_its_ranges():
    graph = DecisionGraph.from_dict(tank(nodes={"level": {"ts": 2}}, tunable=["inflow"]))
    fingerprint = graph.fingerprint
    graph.fit_ranges(GraphData.from_arrays(tank_arrays(), graph))
    again = DecisionGraph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert again.fingerprint == fingerprint == graph.fingerprint
    assert again.to_dict() == graph.to_dict()
    assert DecisionGraph.from_dict(tank(tunable=["inflow"])).fingerprint != fingerprint
    np.testing.assert_allclose(again.scalers["inflow"].low, [-1, 0])


def test_scaler_puts_categories_first_and_brings_values_back():
    graph = DecisionGraph.from_dict(TANK)
    data = GraphData.from_arrays(tank_arrays(), graph)
    scaler = graph.fit_ranges(data).scalers["inflow"]
    assert [(block.kind, block.where) for block in scaler.blocks] == [
        ("category", slice(0, 2)),
        ("continuous", slice(2, 3)),
    ]
    np.testing.assert_allclose(scaler.scale([0.5, 1]), [0, 1, 0.8], atol=1e-6)  # the last row is dropped: -1 to 2/3


NATURE = tank(graph={"next_level": ["level", "valve", "inflow"]})


def test_policy_may_be_added_to_the_graph_of_a_learned_environment():
    nature = DecisionGraph.from_dict(NATURE)
    assert nature.external == ("valve", "inflow")
    assert DecisionGraph.from_dict(TANK).check_completes(nature) == ("valve",)
    assert DecisionGraph.from_dict(TANK).check_completes(DecisionGraph.from_dict(TANK)) == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph": {"valve": ["level"], "next_level": ["level", "inflow"]}}, "'next_level' is made of level, inflow"),
        ({"columns": [{"x": {"dim": name}} for name in ("level", "valve", "inflow")]}, "'level' has other columns"),
    ],
)
def test_policy_graph_that_changes_nature_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        DecisionGraph.from_dict(tank(**changes)).check_completes(DecisionGraph.from_dict(NATURE))


def test_discrete_values_are_exactly_those_of_their_grid():
    graph = DecisionGraph.from_dict(TANK)
    scaler = graph.fit_ranges(GraphData.from_arrays(tank_arrays(), graph)).scalers["valve"]
    near = np.linspace(-1, 1, 11)[:, None] + [0.05, -0.05]
    assert (scaler.unscale(near[..., None])[..., 0] == np.arange(0, 101, 10)[:, None]).all()
