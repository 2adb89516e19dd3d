"""Processes that logs are made of, and the files that are written of them."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlframe.cli.main import app
from rlframe.examples.env.logged_systems import SYSTEMS, SystemEnv
from rlframe.revive.data import GraphData
from rlframe.revive.examples import EXAMPLES, simulate, true_score, write_example
from rlframe.revive.functions import load_reward
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.policy_model import PolicyModel, PolicyNetwork
from rlframe.utils.errors import ConfigError


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_files_belong_together(name, tmp_path):
    paths, score = write_example(name, tmp_path / "new", trajectories=2)
    graph = DecisionGraph.from_file(paths["graph"]).load_functions()
    data = GraphData.from_file(paths["data"], graph)
    graph.fit_ranges(data)
    assert graph.policy_node() == SYSTEMS[name].action
    assert len(data) == 2 * (SYSTEMS[name].steps - 1)
    per_step = score if SYSTEMS[name].mean else score / SYSTEMS[name].steps
    assert data.mean_reward(load_reward(paths["reward"])) == pytest.approx(per_step, rel=0.1)
    with pytest.raises(ConfigError, match="is there already"):
        write_example(name, tmp_path / "new")


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.filterwarnings("ignore:.*For Box action spaces:UserWarning")
def test_system_is_an_environment(name):
    check_env(SystemEnv({"system": name}), skip_render_check=True)


def test_pendulum_moves_as_gymnasium_does():
    system = SYSTEMS["pendulum"](1, np.random.default_rng(0))
    env = gym.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    env.state = np.array([system.angle[0], system.speed[0]])
    for torque in (2.0, -1.0, 0.3):
        obs, reward, *_ = env.step(np.array([torque]))
        assert system.advance(np.array([[torque]]))[0] == pytest.approx(reward)
        np.testing.assert_allclose(system.nodes()["pendulum"][0], obs, atol=1e-5)


def test_no_control_of_the_masses_scores_as_published():
    assert true_score("mass-spring", lambda nodes: np.zeros_like(nodes["target"]), 300) == pytest.approx(112, abs=12)


def test_same_seed_gives_the_same_data():
    first, again, other = (simulate("mixed", 3, seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["valve"], again["valve"])
    assert not np.array_equal(first["level"], other["level"])


def test_commands_write_an_example_and_draft_a_graph(tmp_path, capsys):
    app(["revive", "example", "mixed", str(tmp_path), "--trajectories", "1"], standalone_mode=False)
    assert "rlframe revive train -df" in capsys.readouterr().out
    table = tmp_path / "log.csv"
    table.write_text("level,action\n1.5,0\n2.5,1\n1.0,1\n")
    app(["revive", "init", str(table), "-o", str(tmp_path / "g.yaml")], standalone_mode=False)
    assert DecisionGraph.from_file(tmp_path / "g.yaml").order == ("action", "next_state")


def test_policy_is_scored_on_the_process_itself(tmp_path, capsys):
    paths, _ = write_example("mixed", tmp_path, trajectories=2)
    graph = DecisionGraph.from_file(paths["graph"]).load_functions()
    graph.fit_ranges(GraphData.from_file(paths["data"], graph))
    wide = sum(graph.scalers[node].width for node in ("level", "feed"))
    weights = {"out.weight": np.zeros((1, wide), np.float32), "out.bias": np.zeros(1, np.float32)}  # half open, always
    spec = {"outputs": [{"kind": "dense", "name": "out", "activation": "linear"}]}
    PolicyModel(graph, "valve", PolicyNetwork(spec, weights, "deterministic")).save(tmp_path / "run" / "policy")
    app(["revive", "score", "mixed", str(tmp_path / "run"), "--trajectories", "3"], standalone_mode=False)
    wanted = true_score("mixed", lambda nodes: np.full((3, 1), 50.0), 3)
    assert capsys.readouterr().out.startswith(f"policy: {wanted:.4g}\n")
