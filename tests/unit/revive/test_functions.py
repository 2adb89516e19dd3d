"""Files of the user's functions: NumPy or torch, known by their content, run only when asked for."""

import numpy as np
import pytest
import torch

from rlframe.revive.data import GraphData
from rlframe.revive.functions import RewardFunction, load_function, load_reward
from rlframe.revive.functions_torch import differentiable
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.stages import check_functions_unchanged
from rlframe.utils.errors import ConfigError, DataError, NonFiniteError

GRAPH = """
metadata:
  graph:
    valve: [level]
    flow: [level, valve]
    next_level: [level, flow]
  columns:
    - level: {dim: level}
    - valve: {dim: valve}
    - flow: {dim: flow}
  expert_functions:
    flow: {node_function: flows.flow}
"""


def arrays():
    return {"level": np.arange(5.0)[:, None], "valve": np.full((5, 1), 2.0), "index": [5]}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "graph.yaml").write_text(GRAPH)
    (tmp_path / "flows.py").write_text("def flow(data):\n    return data['level'] * data['valve']\n")
    return tmp_path


def read(files, ignore_check=False, **more):
    graph = DecisionGraph.from_file(files / "graph.yaml").load_functions()
    return GraphData.from_arrays(arrays() | more, graph, ignore_check=ignore_check)


def test_function_node_is_computed_where_the_data_lack_it_and_nothing_is_written(files):
    there = sorted(files.rglob("*"))
    data = read(files)
    assert data.arrays["flow"][:, 0].tolist() == [0, 2, 4, 6]
    assert sorted(files.rglob("*")) == there


def test_function_that_disagrees_with_the_data_names_the_row(files):
    with pytest.raises(DataError, match=r"row 2, column 'flow' of node 'flow' is 4.1, but .*flows.py: flow gives 4"):
        read(files, flow=[[0], [2], [4.1], [6], [8]])
    with pytest.warns(UserWarning, match=r"row 2, column 'flow' of node 'flow' is 4.0001"):
        read(files, flow=[[0], [2], [4.0001], [6], [8]])
    with pytest.warns(UserWarning, match=r"row 2, column 'flow' of node 'flow' is 4.1"):
        read(files, ignore_check=True, flow=[[0], [2], [4.1], [6], [8]])


def test_function_that_gives_no_number_where_nothing_was_logged_is_told_with_its_inputs(files):
    (files / "flows.py").write_text(
        "import numpy as np\ndef flow(data):\n    return np.log(data['level'] + 1) * data['valve']\n"
    )
    graph = DecisionGraph.from_file(files / "graph.yaml").load_functions()
    rows = {"level": np.array([[0.0], [-2.0]], np.float32), "valve": np.ones((2, 1), np.float32)}
    with pytest.raises(
        NonFiniteError, match=r"flows.py: flow returned \[nan\] for node 'flow', .* level \[-2.0\], valve"
    ):
        graph.derive("flow", rows)


def test_function_that_changed_since_training_is_refused(files):
    saved = DecisionGraph.from_file(files / "graph.yaml").to_dict()
    DecisionGraph.from_dict(saved).load_functions(files)
    (files / "flows.py").write_text("raise SystemExit('this must not run')\n")
    with pytest.raises(ConfigError, match=r"flows.py: the file with 'flow' has changed since training"):
        DecisionGraph.from_dict(saved).load_functions(files)


def test_functions_other_than_those_of_training_are_not_run_for_a_report(files):
    trained = DecisionGraph.from_dict(DecisionGraph.from_file(files / "graph.yaml").to_dict())
    check_functions_unchanged(DecisionGraph.from_file(files / "graph.yaml"), trained)
    (files / "flows.py").write_text("raise SystemExit('this must not run')\n")
    with pytest.raises(ConfigError, match=r"'flow' of node 'flow' has changed since training"):
        check_functions_unchanged(DecisionGraph.from_file(files / "graph.yaml"), trained)


def test_what_a_function_writes_into_its_arguments_is_its_own():
    def clip_in_place(data):
        data["x"][data["x"] > 1] = 1
        return data["x"]

    given = {"x": np.arange(4.0, dtype=np.float32)[:, None]}
    assert RewardFunction("reward.py", "get_reward", "", clip_in_place)(given).tolist() == [0, 1, 1, 1]
    assert given["x"][:, 0].tolist() == [0, 1, 2, 3]


def test_graph_is_read_without_running_its_functions(files):
    (files / "flows.py").write_text("raise SystemExit('this must not run')\n")
    graph = DecisionGraph.from_file(files / "graph.yaml")
    with pytest.raises(DataError, match=r"'flow' is a function and not in the data; call graph.load_functions\(\)"):
        GraphData.from_arrays(arrays(), graph)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file"),
        ("def flwo(data): pass\n", "got no function 'flow'"),
        ("def flow(data)\n", "running the file failed with SyntaxError"),
        ("def flow(data):\n    return data['level'][..., 0]\n", "returned shape"),
        ("def flow(data):\n    return data['level'] - data['level'].mean()\n", "must follow from that row alone"),
        ("def flow(data):\n    return data['level'].nothing()\n", "works neither with NumPy .* nor with torch"),
    ],
)
def test_function_file_with_a_fault_names_it(files, text, message):
    (files / "flows.py").unlink()
    if text is not None:
        (files / "flows.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(files)


TORCH = "import torch\ndef flow(data):\n    return (data['level'] * data['valve']).clamp(max=3)\n"


def test_torch_is_found_by_calling_and_gradients_pass(files):
    (files / "flows.py").write_text(TORCH)
    graph = DecisionGraph.from_file(files / "graph.yaml")
    function = load_function(graph.nodes["flow"].function, files)
    assert function({"level": np.float32([1, 4])[:, None], "valve": np.ones((2, 1), np.float32)}).tolist() == [[1], [3]]
    assert function.kind == "torch"
    level = torch.ones(1, 1, requires_grad=True)
    differentiable(function.function, {"level": level, "valve": 2 * torch.ones(1, 1)}).sum().backward()
    assert level.grad.tolist() == [[2]]


def test_reward_file_needs_a_reward(files):
    path = files / "reward.py"
    path.write_text("def rewards(data): pass\n")
    with pytest.raises(ConfigError, match=r"reward.py: got neither get_reward nor reward"):
        load_reward(path)
    path.write_text("import torch\ndef reward(data):\n    return -torch.abs(data['level'])\n")
    reward = load_reward(path)
    assert [reward({"level": np.ones(shape, np.float32)}).shape for shape in [(1,), (4, 1), (3, 4, 1)]] == [
        (),
        (4,),
        (3, 4),
    ]


def test_numpy_function_says_that_it_cuts_gradients(files):
    (files / "flows.py").write_text(
        "import numpy as np\ndef flow(data):\n    return np.asarray(data['level'].detach())\n"
    )
    graph = DecisionGraph.from_file(files / "graph.yaml")
    function = load_function(graph.nodes["flow"].function, files)
    with pytest.raises(ConfigError, match=r"flows.py: flow cuts gradients"):
        differentiable(function.function, {"level": torch.ones(1, 1, requires_grad=True)}, function.where)
