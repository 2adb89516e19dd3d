"""Policies that go up the gradient of rollouts through a learned environment."""

import copy
import json

import numpy as np
import pytest
import torch

from rlframe.revive.configuration import read_configuration
from rlframe.revive.data import GraphData
from rlframe.revive.distributions import NodeLayout
from rlframe.revive.functions import NodeFunction, RewardFunction, load_reward
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.node_policy import hidden_layers, node_network
from rlframe.revive.policy_training import PolicyTraining, _learned, logged_decisions
from rlframe.revive.shooting_torch import SmoothEnv, check_smooth
from rlframe.revive.vector_env import VirtualVectorEnv
from rlframe.revive.venv_model import NodeModel, VirtualEnv, node_inputs
from rlframe.utils.errors import ConfigError
from tests.unit.revive.test_venv import SPRING, linear_member, spring_data


def smooth_reward(values):
    return -((values["next_x"] ** 2).sum(-1)) - 0.1 * values["force"][..., 0] ** 2


REWARD = RewardFunction("reward.py", "get_reward", "", smooth_reward)


@pytest.fixture(scope="module")
def data():
    return spring_data()


def curved_member(data, seed):
    """Models as training makes them, of weights drawn at random, as files say them; means pass through tanh."""
    rng, member = np.random.default_rng(seed), {}
    for name in ("force", "next_x"):
        layout = NodeLayout.of(data.graph.scalers[name], squash=True)
        size = node_inputs(data.graph, data.graph.nodes[name], data.arrays).shape[-1]
        network = node_network(size, layout.inputs, hidden_layers(6, 2, "res"))
        shapes = {
            "linear": (layout.inputs, size),
            "hidden_0": (6, size),
            "hidden_1": (6, 6),
            "output": (layout.inputs, 6),
        }
        weights = {f"actor.{layer}.weight": rng.normal(0, 0.5, shape) for layer, shape in shapes.items()}
        weights |= {f"actor.{layer}.bias": rng.normal(0, 0.2, shape[0]) for layer, shape in shapes.items()}
        layers = json.loads(json.dumps(network.prefixed("actor")))
        member[name] = NodeModel(layout, layers, {key: weight.astype(np.float32) for key, weight in weights.items()})
    return member


def make(data, member=curved_member, members=1, **options):
    venv = VirtualEnv(data.graph, [member(data, seed) for seed in range(members)])
    return VirtualVectorEnv(venv, data, REWARD, **{"seed": 0, **options})


def score_in_numpy(env, rows, act, gamma):
    """Returns the mean return per step of rollouts, by the environment itself."""
    obs, _ = env.reset(options={"rows": rows})
    total, alive = np.zeros(len(rows)), np.ones(len(rows), bool)
    for step in range(env.horizon):
        obs, rewards, terminated, truncated, _ = env.step(act(obs))
        total += alive * gamma**step * rewards
        alive &= ~(terminated | truncated)
    return total / env.horizon


def test_returns_are_those_of_the_environment_with_its_penalty_and_the_ends_of_the_log(data):
    rows = np.array([0, 5, 21, 23, 100, 190])  # 24 transitions in each trajectory; the push follows the log
    env = make(data, members=3, num_envs=len(rows), horizon=6, penalty=0.7)
    weight = np.array([[0.8, -0.6]], np.float32)
    returns, seen, counted = SmoothEnv(env).returns(lambda obs: torch.tanh(obs @ torch.tensor(weight.T)), rows, 0.9)
    expected = score_in_numpy(env, rows, lambda obs: np.tanh(obs @ weight.T), 0.9)
    np.testing.assert_allclose(returns, expected, atol=1e-5)
    assert seen.shape == (36, 2)
    assert counted.reshape(6, 6).sum(0).tolist() == [6, 6, 3, 1, 6, 2]


def test_gradients_of_two_steps_are_finite_differences_of_the_environments_returns(data):
    rows = np.arange(0, 190, 7)
    rows = rows[rows % 24 < 22]
    env = make(data, members=2, num_envs=len(rows), horizon=2, penalty=0.5)
    weight = torch.tensor([[0.3, -0.2]], requires_grad=True)
    SmoothEnv(env).returns(lambda obs: torch.tanh(obs @ weight.T), rows, 0.9)[0].mean().backward()
    step = 1e-2
    for place in range(2):
        ends = []
        for sign in (1, -1):
            moved = weight.detach().numpy().copy()
            moved[0, place] += sign * step
            ends.append(score_in_numpy(env, rows, lambda obs, w=moved: np.tanh(obs @ w.T), 0.9).mean())
        slope = (ends[0] - ends[1]) / (2 * step)
        assert abs(slope) > 1e-3
        assert weight.grad[0, place] == pytest.approx(slope, rel=2e-2)


def training(data, **changes):
    first, second = data.split(0.5)
    halves = {"train": first, "val": second}
    config = read_configuration(None, {
        "policy_algo": "shooting", "shooting_epoch": 2, "shooting_steps_per_epoch": 6, "shooting_rollout_horizon": 8,
        "shooting_batch_size": 32, "policy_hidden_features": 16, "test_rollouts": 30, "test_horizon": 8, "g_lr": 2e-2,
        "policy_bc_epoch": 5, **changes,
    })  # fmt: skip

    def make_env(half, num_envs, horizon, penalty, seed):
        venv = VirtualEnv(data.graph, [linear_member(data)])
        return VirtualVectorEnv(venv, halves[half], REWARD, num_envs=num_envs, horizon=horizon, half=half, seed=seed)

    return PolicyTraining(make_env, halves, REWARD, "force", config)


def test_policies_of_both_halves_become_better_than_the_logged_controller(data):
    said = []
    result = training(data).run(lambda progress: said.append(progress) or True)
    assert set(result.scores) == {(policy, env) for policy in ("train", "val") for env in ("train", "val")}
    clone = next(progress.score for progress in said if progress.half == "train")
    assert result.models["train"].about["score"] > 0.95 * clone > clone  # of negative scores
    assert result.models["train"].about["algorithm"] == "shooting"
    assert result.models["train"].infer({"x": [0.5, 0.0]}).shape == (1,)


def test_weight_of_the_behaviour_keeps_the_policy_near_it(data):
    obs, _ = logged_decisions(data.graph, data, "force")

    def moved(w_kl):
        first, *_, last = [
            network for _, network, _ in _learned(training(data, w_kl=w_kl, policy_bc_epoch=20), "train")
        ]
        return np.abs(last.means(obs) - first.means(obs)).mean()

    assert moved(30.0) < 0.3 * moved(0.0)


def test_what_has_no_gradient_is_refused_in_one_sentence(data, tmp_path):
    path = tmp_path / "reward.py"
    path.write_text("import numpy as np\ndef get_reward(data):\n    return -np.abs(data['next_x'][..., 0])\n")
    with pytest.raises(
        ConfigError, match=r"policy_algo is 'shooting': .*reward.py: get_reward .*torch.*; else choose ppo, sac"
    ):
        check_smooth(data.graph, data, load_reward(path), "force")
    stepped = RewardFunction("reward.py", "get_reward", "", lambda values: (values["next_x"][..., 0] > 0).float())
    with pytest.raises(ConfigError, match=r"reward\.py: get_reward cuts gradients"):
        check_smooth(data.graph, data, stepped, "force")
    changed = copy.deepcopy(SPRING)
    changed["metadata"]["columns"][2]["newton"] |= {"type": "discrete", "num": 5, "min": -1, "max": 1}
    graph = DecisionGraph.from_dict(changed)
    with pytest.raises(ConfigError, match="node 'force' has the discrete column 'newton', through which none flow"):
        check_smooth(graph, data, REWARD, "force")


def test_function_nodes_in_numpy_are_refused_and_those_in_torch_pass_gradients_on(tmp_path):
    (tmp_path / "own.py").write_text(
        "import numpy as np\ndef move(data):\n    return np.concatenate([data['x'][..., :1] / 2, data['force']], -1)\n"
    )
    described = copy.deepcopy(SPRING)
    described["metadata"]["expert_functions"] = {"next_x": {"node_function": "own.move"}}
    (tmp_path / "graph.yaml").write_text(str(described))
    graph = DecisionGraph.from_file(tmp_path / "graph.yaml").load_functions()
    raw = spring_data()
    arrays = {name: raw.arrays[name] for name in ("x", "force", "push")}
    with pytest.warns(UserWarning, match="own.py: move gives"):
        own = GraphData.from_arrays({**arrays, "index": raw.ends}, graph, ignore_check=True)
    graph.fit_ranges(own)
    with pytest.raises(ConfigError, match=r"policy_algo is 'shooting': .*own.py: move .*; else choose ppo, sac or td3"):
        check_smooth(graph, own, REWARD, "force")

    def move(values):
        return torch.cat([values["x"][..., :1] * 0.5, values["force"]], -1)

    graph.functions["next_x"] = NodeFunction("own.py", "move", "", move)
    member = {name: model for name, model in linear_member(raw).items() if name == "force"}
    env = VirtualVectorEnv(VirtualEnv(graph, [member]), own, REWARD, horizon=1, num_envs=1)
    gain = torch.tensor(0.25, requires_grad=True)
    returns, _, _ = SmoothEnv(env).returns(lambda obs: obs[:, :1] * 0 + gain, [3], 1.0)
    force = graph.scalers["force"].half[0] * 0.25 + graph.scalers["force"].middle[0]
    assert returns.item() == pytest.approx(-((own.arrays["x"][3, 0] * 0.5) ** 2) - 1.1 * force**2, abs=1e-5)
    returns.sum().backward()
    assert gain.grad.item() == pytest.approx(-2.2 * force * graph.scalers["force"].half[0], rel=1e-4)
