"""Parameters of a graph are found in an environment whose best ones are known."""

import numpy as np
import pytest

from rlframe.revive.data import GraphData
from rlframe.revive.functions import RewardFunction
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.parameter_tuning import read_initial_state, tune_parameters
from rlframe.utils.errors import ConfigError, DataError

DOCUMENT = {
    "graph": {"next_x": ["x", "gain", "kind", "wind"]},
    "columns": [
        {"x": {"dim": "x", "min": -10, "max": 10}},
        {"gain": {"dim": "gain", "min": -2, "max": 3}},
        {"notch": {"dim": "gain", "type": "discrete", "min": 0, "max": 1, "num": 5}},
        {"kind": {"dim": "kind", "type": "category", "values": [7, 3, 5]}},
        {"wind": {"dim": "wind", "min": 0, "max": 1}},
    ],
    "tunable": ["gain", "kind"],
}
START = {"x": [0.0], "wind": np.ones((4, 1))}


class KnownEnv:
    """Ends in 0 with gain 1.2, notch 0.75 and kind 3, under the wind that blows."""

    def __init__(self):
        self.graph = DecisionGraph.from_dict(DOCUMENT)
        ones = np.zeros((2, 1))
        self.graph.fit_ranges(
            GraphData.from_arrays(
                {"x": ones, "next_x": ones, "gain": np.zeros((2, 2)), "kind": 7 + ones, "wind": ones}, self.graph
            )
        )

    def infer_one_step(self, state, deterministic=True, clip=True):
        gain, notch = state["gain"][:, :1], state["gain"][:, 1:]
        off = np.abs(gain - 1.2) + np.abs(notch - 0.7) + (state["kind"] != 3) + np.abs(state["wind"] - 1)
        return {**state, "next_x": state["x"] + off}


REWARD = RewardFunction("reward.py", "get_reward", "", lambda data: -data["next_x"])


@pytest.mark.parametrize(("algorithm", "gain_within"), [("evolution", 0.03), ("random", 0.3)])
def test_best_parameters_are_found_on_their_grids(algorithm, gain_within):
    env, seen = KnownEnv(), []
    initial = read_initial_state(START, env.graph, 1800)
    result = tune_parameters(
        [env], REWARD, initial, algorithm=algorithm, budget=1000, population=100, report=lambda r: seen.append(r)
    )
    assert result.parameters["gain"] == pytest.approx([1.2, 0.75], abs=gain_within)
    assert result.parameters["gain"][1] == 0.75
    assert result.parameters["kind"] == 3
    assert result.searched == 1000
    assert [r.metric for r in seen] == sorted(r.metric for r in seen)
    off = abs(result.parameters["gain"][0] - 1.2) + 0.05
    assert result.metric == pytest.approx(-off * (1 + 2 + 3 + 4) / 4, rel=1e-4)  # x grows in each of four steps


def test_search_for_the_smallest_stops_when_asked():
    env = KnownEnv()
    result = tune_parameters(
        [env, env], REWARD, read_initial_state(START, env.graph, 2), mode="min", population=50, report=lambda r: True
    )
    assert (result.searched, result.stopped) == (50, True)
    assert result.by_env == [result.metric] * 2
    assert result.parameters["gain"][0] < 0


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"wind": START["wind"]}, "no array for node 'x'"),
        ({**START, "x": [0.0, 1.0]}, r"node 'x' has shape \(2,\); wanted \(1,\)"),
        ({**START, "wind": [1.0]}, r"node 'wind' has shape \(1,\); wanted \(T, 1\)"),
        ({**START, "x": [np.nan]}, "node 'x' has values that are no numbers"),
    ],
)
def test_wrong_initial_state_names_the_node(start, message):
    with pytest.raises(DataError, match=message):
        read_initial_state(start, KnownEnv().graph, 100)


def test_graph_without_tunable_nodes_is_refused(tmp_path):
    graph = DecisionGraph.from_dict({**DOCUMENT, "tunable": []})
    with pytest.raises(ConfigError, match=r"nothing is tunable; name .* `tunable: \[...\]`, of gain, kind, wind"):
        read_initial_state(tmp_path / "start.npz", graph, 100)


def test_initial_state_is_read_from_a_file(tmp_path):
    np.savez(tmp_path / "start.npz", **START)
    initial = read_initial_state(tmp_path / "start.npz", KnownEnv().graph, 1800)
    assert (initial.horizon, initial.state["x"].tolist()) == (4, [0.0])
    (tmp_path / "start.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"start.npz: got no archive of np.savez"):
        read_initial_state(tmp_path / "start.npz", KnownEnv().graph, 1800)
