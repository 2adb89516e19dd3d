"""Distributions of nodes, learned environments, their errors, and how they are learned."""

import copy
import json
from importlib import import_module

import numpy as np
import pytest

from rlframe.models.spec import Dense, Network, Sum, dense_layers
from rlframe.revive.columns import Column, NodeScaler
from rlframe.revive.configuration import read_configuration
from rlframe.revive.data import GraphData
from rlframe.revive.distributions import (
    NodeDistribution,
    NodeLayout,
    divergence,
    linear_start,
    log_prob,
    numpy_math,
    raw_deviation,
)
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.metrics import scores
from rlframe.revive.supervised import GraphBCTrainer, graph_trainer_config, learned_member
from rlframe.revive.venv_model import NodeModel, VirtualEnv, node_inputs
from rlframe.revive.venv_training import train_virtual_env
from rlframe.tensor import ops
from rlframe.utils.errors import CheckpointError, DataError
from tests.helpers.chains import run_chain
from tests.helpers.frameworks import both_frameworks, to_tensor

MIXED = NodeScaler(
    [
        Column("x", "n", "continuous", -1.0, 1.0),
        Column("c", "n", "category", values=(2.0, 5.0, 7.0)),
        Column("d", "n", "discrete", 0.0, 4.0, num=5),
        Column("y", "n", "continuous", 0.0, 10.0),
    ]
)

SPRING = {
    "metadata": {
        "graph": {"force": ["x"], "next_x": ["x", "force", "push"]},
        "columns": [
            {"place": {"dim": "x", "type": "continuous"}},
            {"speed": {"dim": "x", "type": "continuous"}},
            {"newton": {"dim": "force", "type": "continuous"}},
            {"push": {"dim": "push", "type": "continuous"}},
        ],
    }
}


def spring_data(trajectories=8, steps=25, seed=0, noise=0.0):
    """A linear system without noise, with a linear controller and a push from outside."""
    graph, rng = DecisionGraph.from_dict(SPRING), np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (trajectories, 2))
    rows = {"x": [], "force": [], "push": []}
    for _ in range(steps):
        force, push = x @ [[-0.6], [-0.4]], rng.uniform(-0.2, 0.2, (trajectories, 1))
        force = force + noise * rng.normal(size=force.shape)
        for name, value in (("x", x), ("force", force), ("push", push)):
            rows[name].append(value)
        x = x + 0.2 * np.concatenate([x[:, 1:], force - 0.5 * x[:, :1] + push], 1)
    arrays = {name: np.stack(values, 1).reshape(trajectories * steps, -1) for name, values in rows.items()}
    data = GraphData.from_arrays({**arrays, "index": np.arange(1, trajectories + 1) * steps}, graph)
    graph.fit_ranges(data)
    return data


def linear_member(data, bias=0.0):
    """Models of least squares, of which the transition's is off by `bias` in the learned space."""
    member = {}
    for name in ("force", "next_x"):
        scaler = data.graph.scalers[name]
        layout = NodeLayout.of(scaler, squash=False)
        values = scaler.scale(data.arrays[name])
        weight, start = linear_start(
            layout, node_inputs(data.graph, data.graph.nodes[name], data.arrays), values, np.ones_like(values)
        )
        start[: layout.width] += bias if name == "next_x" else 0.0
        layers = [Dense("l", "linear", layout.inputs).to_spec()]
        member[name] = NodeModel(layout, layers, {"l.weight": weight, "l.bias": start})
    return member


@pytest.fixture(scope="module")
def data():
    return spring_data()


@pytest.fixture(scope="module")
def venv(data):
    return VirtualEnv(data.graph, [linear_member(data)])


# --- distributions -----------------------------------------------------------------------------------------------


def test_log_prob_of_one_block_by_hand():
    continuous = NodeLayout.of(NodeScaler([Column("x", "n", "continuous", -1.0, 1.0)]), squash=True)
    params = np.array([[np.arctanh(0.5), raw_deviation(np.array(0.1))]])
    # mean 0.5, deviation 0.1; one deviation away: -1/2 - log 0.1 - log(2 pi) / 2
    assert log_prob(continuous, params, np.array([[0.6]]), numpy_math) == pytest.approx(0.8836, abs=1e-3)
    assert NodeDistribution(params, layout=continuous).std() == pytest.approx(0.1)
    category = NodeLayout.of(NodeScaler([Column("c", "n", "category", values=(0.0, 1.0))]), squash=True)
    params = np.log([[0.25, 0.75]])
    assert np.exp(log_prob(category, params, np.array([[0.0, 1.0]]), numpy_math)) == pytest.approx(0.75)


@pytest.mark.parametrize("mean", [-3.0, 0.1, 0.9])
def test_discrete_probabilities_sum_to_one_and_are_largest_next_to_the_mean(mean):
    layout = NodeLayout.of(NodeScaler([Column("d", "n", "discrete", 0.0, 10.0, num=5)]), squash=False)
    grid = np.linspace(-1, 1, 5)
    params = np.tile([[mean, raw_deviation(np.array(0.3))]], (5, 1))
    p = np.exp(NodeDistribution(params, layout=layout).logp(grid[:, None]))
    assert p.sum() == pytest.approx(1.0, abs=1e-5)
    assert p.argmax() == np.abs(grid - mean).argmin()
    assert NodeDistribution(params[:1], layout=layout).deterministic_sample()[0, 0] == grid[p.argmax()]


@both_frameworks
def test_mixed_distributions_agree_with_numpy_and_their_draws_are_values_of_the_columns(framework):
    layout, rng = NodeLayout.of(MIXED, squash=True), np.random.default_rng(0)
    assert NodeLayout.from_dict(json.loads(json.dumps(layout.to_dict()))) == layout
    params = rng.normal(size=(64, layout.inputs)).astype(np.float32)
    distribution = NodeDistribution(params, rng, layout=layout)
    drawn = distribution.sample()
    assert np.allclose(MIXED.scale(MIXED.unscale(drawn, clip=False)), drawn, atol=1e-5)
    mask = rng.integers(0, 2, drawn.shape).astype(np.float32)
    made = log_prob(layout, to_tensor(framework, params), to_tensor(framework, drawn), ops, to_tensor(framework, mask))
    assert np.allclose(np.asarray(made), log_prob(layout, params, drawn, numpy_math, mask), atol=1e-4)
    assert np.allclose(distribution.logp(drawn), distribution.sampled_action_logp())


def test_divergences_are_the_means_of_differences_of_log_densities():
    layout, rng = NodeLayout.of(MIXED, squash=True), np.random.default_rng(1)
    one, other = rng.normal(size=(2, 1, layout.inputs))
    drawn = NodeDistribution(np.repeat(one, 40_000, 0), rng, layout=layout).sample()
    apart = log_prob(layout, one, drawn, numpy_math) - log_prob(layout, other, drawn, numpy_math)
    error = 5 * apart.std() / len(apart) ** 0.5
    assert divergence(layout, one, other, numpy_math)[0] == pytest.approx(apart.mean(), abs=error)
    assert divergence(layout, one, one, numpy_math)[0] == pytest.approx(0.0, abs=1e-9)
    tensors = (to_tensor("torch", array.astype(np.float32)) for array in (one, other))
    assert np.allclose(divergence(layout, *tensors, ops), divergence(layout, one, other, numpy_math), atol=1e-3)


@both_frameworks
def test_sum_of_two_chains_is_the_same_in_numpy_and_frameworks(framework):
    layers = (Sum("skip", (Dense("linear", "linear", 3),), (*dense_layers([5], "tanh"), Dense("out", "linear", 3))),
              Sum("block", (), (Dense("inner", "relu", 3),)))  # fmt: skip
    owner = import_module(f"rlframe.models.{framework}.networks")
    network = (owner.TorchNetwork if framework == "torch" else owner.TFNetwork)(Network({"obs": 4}, layers))
    names = [f"{name}.{part}" for name in ("linear", "hidden_0", "out", "inner") for part in ("weight", "bias")]
    variables = {name: network.spec_variable(*name.split(".")) for name in names}
    weights = {
        name: made.detach().numpy() if framework == "torch" else made.numpy() for name, made in variables.items()
    }
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    expected = run_chain([layer.to_spec() for layer in layers], weights, x)
    assert np.allclose(network.forward(to_tensor(framework, x)).__array__() if framework == "tf" else
                       network.forward(to_tensor(framework, x)).detach().numpy(), expected, atol=1e-5)  # fmt: skip
    inner = run_chain([layers[1].right[0].to_spec()], weights, expected * 0 + 1.0)
    assert np.allclose(run_chain([layers[1].to_spec()], weights, expected * 0 + 1.0), inner + 1.0)


# --- environments ------------------------------------------------------------------------------------------------


def test_linear_systems_are_learned_by_their_linear_start_to_the_last_digit(venv, data):
    found = scores(venv, data, horizon=24)
    assert found.average["mae"] < 1e-3
    assert set(found.by_node) == {"force", "next_x"}


def test_scores_are_zero_for_what_was_logged_and_grow_with_the_bias(data):
    off = VirtualEnv(data.graph, [linear_member(data, bias=0.1)])
    one_step = scores(off, data, horizon=1)
    # 2 of 3 numbers are off by 0.1
    assert one_step.average["mae"] == pytest.approx(0.2 / 3, abs=2e-3)
    assert one_step.by_node["next_x"]["mse"] == pytest.approx(0.02, abs=1e-3)
    assert scores(off, data, horizon=10).average["mae"] > 2 * one_step.average["mae"]


def test_density_of_columns_that_are_not_fitted_does_not_count(data):
    unfitted = copy.deepcopy(SPRING)
    unfitted["metadata"]["columns"][1]["speed"]["fit"] = False
    graph = DecisionGraph.from_dict(unfitted)
    arrays = {name: data.arrays[name] for name in ("x", "next_x", "force", "push")}
    other = GraphData.from_arrays({**arrays, "index": data.ends}, graph)
    graph.fit_ranges(other)
    of_all, of_fitted = (
        scores(VirtualEnv(one.graph, [linear_member(one)]), one, horizon=1).by_node["next_x"]["nll"]
        for one in (data, other)
    )
    assert of_all < of_fitted < 0  # sharp densities: each number adds to it
    assert of_fitted == pytest.approx(of_all / 2, rel=0.2)


def test_differences_stay_within_the_range_of_their_node():
    changed = copy.deepcopy(SPRING)
    changed["metadata"]["graph"] = {"force": ["x"], "delta_x": ["x", "force", "push"]}
    changed["metadata"]["columns"][0]["place"] |= {"type": "discrete", "min": -1, "max": 1, "num": 21}
    changed["metadata"]["columns"][1]["speed"] |= {"min": -2, "max": 2}
    graph = DecisionGraph.from_dict(changed)
    graph._set_ranges({"x": [[-1, 1], [-2, 2]], "delta_x": [[-1, 1]] * 2, "force": [[-1, 1]], "push": [[-1, 1]]})
    layout = NodeLayout.of(graph.scalers["delta_x"], squash=False)
    moves = NodeModel(layout, [Dense("l", "linear", 4).to_spec()], {
        "l.weight": np.zeros((4, 4), np.float32), "l.bias": np.array([0.33, 0.9, 0, 0], np.float32)})  # fmt: skip
    venv = VirtualEnv(graph, [{"delta_x": moves, "force": moves}])
    given = {"x": np.array([[0.0, 0.0], [0.9, 1.9]], np.float32), "force": np.zeros((2, 1)), "push": np.zeros((2, 1))}
    np.testing.assert_allclose(venv.infer_one_step(given)["next_x"], [[0.3, 0.9], [1.0, 2.0]], atol=1e-6)
    free = venv.infer_one_step(given, clip=False)["next_x"]
    np.testing.assert_allclose(free, [[0.33, 0.9], [1.23, 2.8]], atol=1e-6)


def test_decisions_by_chance_spoil_free_rollouts_and_not_guided_ones():
    data = spring_data(noise=0.3)
    venv = VirtualEnv(data.graph, [linear_member(data)])
    free, guided = (scores(venv, data, horizon=24, guided=guided) for guided in (False, True))
    assert guided.by_node["next_x"]["mae"] < 1e-3 < 0.05 < free.by_node["next_x"]["mae"]
    assert guided.by_node["force"] == pytest.approx(scores(venv, data, horizon=1).by_node["force"], rel=1e-3)


def test_values_that_are_given_are_not_computed_and_leading_dimensions_stay(venv, data):
    state = {"x": data.arrays["x"][:12].reshape(3, 4, 2), "push": data.arrays["push"][:12].reshape(3, 4, 1)}
    free = venv.infer_one_step(state)
    assert free["force"].shape == (3, 4, 1)
    assert free["next_x"].shape == (3, 4, 2)
    given = venv.infer_one_step({**state, "force": free["force"] * 0 + 0.3})
    assert (given["force"] == 0.3).all()
    assert not np.allclose(given["next_x"], free["next_x"])
    row = venv.infer_one_step({"x": state["x"][0, 0], "push": state["push"][0, 0]})
    assert np.allclose(row["next_x"], free["next_x"][0, 0], atol=1e-6)


def test_steps_follow_each_other_and_external_factors_must_last(venv, data):
    states = [{"push": data.arrays["push"][t : t + 1]} for t in range(5)]
    states[0] = {**states[0], "x": data.arrays["x"][:1]}
    made = venv.infer_k_steps(states)
    assert len(made) == 5
    assert np.allclose(np.concatenate([step["x"] for step in made]), data.arrays["x"][:5], atol=1e-3)
    with pytest.raises(DataError, match=r"6 steps need the external factors \['push'\] of each; got 5 states"):
        venv.infer_k_steps(states, k=6)
    with pytest.raises(DataError, match="made of 'x', which the state lacks"):
        venv.infer_one_step(states[1])


def test_a_policy_replaces_its_node_and_members_tell_how_sure_they_are(data):
    venv = VirtualEnv(data.graph, [linear_member(data), linear_member(data, bias=0.1)])
    state = {"x": data.arrays["x"][:3], "push": data.arrays["push"][:3]}

    class Push:
        def infer(self, state, deterministic=True, clip=True):
            return np.full((len(state["x"]), 1), 0.25)

    venv.replace_policy(Push())
    values = venv.infer_one_step(state)
    assert venv.target_policy_name == "force"
    assert (values["force"] == 0.25).all()
    assert venv.uncertainty(values) == pytest.approx(0.05, abs=1e-4)
    assert (venv.env_list[0].uncertainty(values) == 0).all()


def test_draws_differ_from_modes_and_repeat_after_a_reset(venv, data):
    state = {"x": data.arrays["x"][:3], "push": data.arrays["push"][:3]}
    venv.reset(seed=1)
    first = venv.infer_one_step(state, deterministic=False)["next_x"]
    venv.reset(seed=1)
    assert np.array_equal(first, venv.infer_one_step(state, deterministic=False)["next_x"])
    assert not np.array_equal(first, venv.infer_one_step(state)["next_x"])


def test_files_give_the_same_environment_and_damage_is_told(venv, data, tmp_path):
    venv.save(tmp_path / "venv")
    state = {"x": data.arrays["x"], "push": data.arrays["push"]}
    again = VirtualEnv.load(tmp_path / "venv")
    assert np.array_equal(again.infer_one_step(state)["next_x"], venv.infer_one_step(state)["next_x"])
    assert again.graph.fingerprint == data.graph.fingerprint
    assert not [path for path in (tmp_path / "venv").iterdir() if path.suffix in {".pkl", ".pt", ".py"}]
    (tmp_path / "venv" / "arrays.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError):
        VirtualEnv.load(tmp_path / "venv")


# --- training ----------------------------------------------------------------------------------------------------


def configuration(**changes):
    given = {"venv_algo": "bc", "bc_epoch": 2, "venv_rollout_horizon": 20, "transition_hidden_features": 8, **changes}
    return read_configuration(None, given)


def test_both_halves_are_learned_judged_and_gone_on_with(data, tmp_path):
    seen = []

    def stop_at_once(progress):
        seen.append(progress)
        return False

    stopped = train_virtual_env(data.graph, data, configuration(), tmp_path, stop_at_once)
    assert [progress["epoch"] for progress in seen] == [1]
    assert stopped.epochs == {"train": [1], "val": [0]}
    assert {half: len(VirtualEnv.load(tmp_path / half).members) for half in ("train", "val")} == {"train": 1, "val": 1}
    result = train_virtual_env(data.graph, data, configuration(), tmp_path, seen.append)
    assert result.epochs == {"train": [2], "val": [2]}
    assert [(progress["half"], progress["epoch"]) for progress in seen[1:]] == [("train", 2), ("val", 1), ("val", 2)]
    assert result.metric <= 5e-3
    assert result.metric == result.metrics["train"]["average_guided_rollout_mae"]
    assert result.metrics["train"]["average_rollout_mae"] <= 5e-3
    assert "one_step_nll/next_x" in result.metrics["val"]


def test_a_node_that_sees_the_step_and_the_trajectory_begins_without_them_and_keeps_within_bounds_behind_the_log(
    tmp_path,
):
    placed = copy.deepcopy(SPRING)
    placed["metadata"]["nodes"] = {"next_x": {"step_input": True, "traj_id": True}}
    graph, logged, rng = DecisionGraph.from_dict(placed), spring_data(4), np.random.default_rng(0)
    arrays = {name: logged.arrays[name] for name in ("x", "force", "push")}
    arrays["x"] = arrays["x"] + 0.3 * rng.normal(size=(len(logged), 2))  # noise that codes would follow
    data = GraphData.from_arrays({**arrays, "index": logged.ends}, graph)
    graph.fit_ranges(data)
    trainer = GraphBCTrainer(config=graph_trainer_config(data, configuration().venv, seed=0))
    found = VirtualEnv(graph, [learned_member(trainer)])
    trainer.stop()
    states = {name: np.zeros((5, data.arrays[name].shape[1])) for name in ("x", "force", "push")}
    steps = np.array([[0], [20], [60], [200], [900]])
    values = found.node_infer("next_x", {**states, "step": steps, "traj_id": np.full((5, 1), 2)}, clip=False)
    assert np.abs(values).max() < 0.5
