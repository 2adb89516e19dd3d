"""Whatever a graph file says, it is a graph or a fault that is told; whatever a node's columns, values come back."""

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.revive.columns import Column, NodeScaler
from rlframe.revive.data import GraphData
from rlframe.revive.graph import DecisionGraph
from rlframe.utils.errors import ConfigError, DataError

NODES = st.sampled_from(["a", "b", "next_a", "ts_a", "next_ts_a", "delta_a", "next_b", "ts_b"])
PLAIN = st.one_of(NODES, st.sampled_from([None, True, 0, 1, 3, -1, 0.5, float("nan"), "x.f", ""]))
ANYTHING = st.one_of(PLAIN, st.lists(PLAIN, max_size=2))
COLUMN = st.one_of(
    st.builds(
        lambda node, kind, more: {"dim": node, "type": kind, **more},
        st.sampled_from(["a", "a", "b"]),
        st.sampled_from(["continuous", "discrete", "category", 3]),
        st.dictionaries(st.sampled_from(["min", "max", "num", "values", "fit"]), ANYTHING, max_size=2),
    ),
    PLAIN,
)
OPTIONS = st.dictionaries(st.sampled_from(["ts", "ts_length", "step_input", "freeze", "loss_type"]), PLAIN, max_size=2)
DOCUMENTS = st.fixed_dictionaries(
    {
        "graph": st.dictionaries(NODES, st.one_of(st.lists(NODES, max_size=3, unique=True), PLAIN), max_size=4),
        "columns": st.lists(st.dictionaries(st.sampled_from("pqr"), COLUMN, max_size=1), max_size=4),
    },
    optional={
        "nodes": st.one_of(st.dictionaries(NODES, OPTIONS, max_size=2), PLAIN),
        "metric_nodes": ANYTHING,
        "tunable": ANYTHING,
        "expert_functions": st.one_of(st.dictionaries(NODES, st.just({"node_function": "x.f"}), max_size=1), PLAIN),
    },
)

A_COLUMN = st.sampled_from([{"type": "continuous"}, {"min": 0}, {"type": "category", "values": [0, 1]}])
LIKELY = st.fixed_dictionaries(
    {
        "graph": st.dictionaries(
            st.sampled_from(["b", "next_a", "next_a", "delta_a", "next_ts_a", "c"]),
            st.lists(st.sampled_from(["a", "b", "c", "ts_a", "ts_b", "delta_a"]), min_size=1, max_size=3, unique=True),
            min_size=1,
            max_size=3,
        ),
        "columns": st.tuples(*(A_COLUMN.map(lambda kind, n=n: {n: {"dim": n, **kind}}) for n in "abc")),
    }
).map(lambda document: with_mentioned(document))


def with_mentioned(document):
    """Leaves out columns of nodes that the graph does not have, and says how long windows are."""
    said = str(document["graph"])
    options = {"a": {"ts": 3, "ts_length": 2}, "b": {"ts": 2}}
    return {
        **document,
        "columns": [column for column in document["columns"] if next(iter(column)) in re.findall(r"_?([abc])'", said)],
        "nodes": {node: options[node] for node in "ab" if f"ts_{node}" in said},
    }


def or_fault(error, call):
    """Returns what a call gives, or None where it raises an error of one line."""
    try:
        return call()
    except error as fault:
        message = str(fault)
    assert message
    assert "\n" not in message
    return None


@settings(max_examples=200, deadline=None)
@given(st.one_of(LIKELY, LIKELY, DOCUMENTS))
def test_any_document_is_a_graph_or_a_fault_in_one_line(document):
    graph = or_fault(ConfigError, lambda: DecisionGraph.from_dict(document))
    if graph is None:
        return
    made = {node.name for node in graph.nodes.values() if not node.inputs}
    for name in graph.order:  # each behind its inputs
        assert set(graph.nodes[name].inputs) <= made
        made.add(name)
    assert DecisionGraph.from_dict(graph.to_dict()).to_dict() == graph.to_dict()
    arrays = {name: np.zeros((4, len(node.columns))) for name, node in graph.nodes.items() if name in "abc"}
    data = or_fault(DataError, lambda: GraphData.from_arrays(arrays | {"index": [2, 4]}, graph))
    if data is not None:
        assert {name: values.shape for name, values in data.arrays.items()} == {
            name: (len(data), len(node.columns)) for name, node in graph.nodes.items()
        }
        graph.fit_ranges(data)
        assert set(graph.scalers) == set(graph.nodes)


CONTINUOUS = st.builds(
    lambda low, width: Column("c", "n", "continuous", low, low + width),
    st.sampled_from([-100.0, 0.0, 3.5]),
    st.sampled_from([0.0, 0.5, 200.0]),
)
DISCRETE = st.builds(
    lambda low, num: Column("d", "n", "discrete", low, low + 2.0 * num, num),
    st.sampled_from([-7.0, 0.0]),
    st.integers(2, 5),
)
CATEGORY = st.builds(
    lambda values: Column("k", "n", "category", values=tuple(values)),
    st.lists(st.sampled_from([-1.0, 0.0, 3.0, 9.0]), min_size=1, max_size=4, unique=True),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(CONTINUOUS, DISCRETE, CATEGORY), min_size=1, max_size=4), st.integers(0, 99))
def test_values_come_back_from_the_learned_space(columns, seed):
    rng = np.random.default_rng(seed)
    scaler = NodeScaler(columns)
    values = np.stack([_some(column, rng) for column in columns], -1)
    scaled = scaler.scale(values)
    assert scaled.shape == (2, 3, scaler.width)
    assert np.abs(scaled).max() <= 1 + 1e-6
    np.testing.assert_allclose(scaler.unscale(scaled), values, rtol=1e-4, atol=1e-4)
    outside = scaler.unscale(rng.normal(0, 3, (50, scaler.width)))
    for place, column in enumerate(columns):
        assert column.on_grid(outside[:, place]).all()
        assert (outside[:, place] >= scaler.low[place]).all()
        assert (outside[:, place] <= scaler.high[place]).all()
    again = NodeScaler.from_dict(scaler.to_dict())
    np.testing.assert_array_equal(again.scale(values), scaled)


def _some(column, rng):
    if column.values is not None:
        return rng.choice(column.values, (2, 3))
    if column.num is not None:
        return rng.choice(np.linspace(column.low, column.high, column.num), (2, 3))
    return rng.uniform(column.low, column.high, (2, 3))
