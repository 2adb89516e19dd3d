"""Policies of a node: as their users have them, as clones of what was logged, and trained in an environment."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rlframe.revive import policy_training, regularized
from rlframe.revive.configuration import read_configuration
from rlframe.revive.data import GraphData
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.policy_model import PolicyModel, PolicyNetwork
from rlframe.revive.policy_training import PolicyTraining, logged_decisions
from rlframe.revive.regularized import NearPPOConfig
from rlframe.utils.errors import CheckpointError, ConfigError, DataError
from tests.contract.test_policies import make_batch

GRAPH = {
    "metadata": {
        "graph": {"push": ["place", "goal"], "next_place": ["place", "push"]},
        "columns": [
            {"x": {"dim": "place", "type": "continuous", "min": 0, "max": 10}},
            {"g": {"dim": "goal", "type": "category", "values": [2, 8]}},
            {"p": {"dim": "push", "type": "discrete", "min": -2, "max": 2, "num": 5}},
        ],
    }
}


class Reward:
    """Minus how far the place is from the goal."""

    def __call__(self, arrays):
        return -np.abs(arrays["place"][..., 0] - arrays["goal"][..., 0]) / 10

    def check(self, arrays):
        assert self(arrays).shape == arrays["place"].shape[:-1]


class Line(gym.vector.VectorEnv):
    """A place on a line, which a push moves; as the learned environment shows it, in the learned space."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's

    def __init__(self, data, num_envs, horizon, seed):
        self.data, self.num_envs, self.horizon = data, num_envs, horizon
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.rng = np.random.default_rng(seed)

    def _see(self):
        scalers = self.data.graph.scalers
        return np.concatenate([scalers[name].scale(getattr(self, name)) for name in ("place", "goal")], -1)

    def reset(self, *, seed=None, options=None):
        rows = self.rng.integers(len(self.data), size=self.num_envs)
        self.place, self.goal = (self.data.arrays[name][rows].copy() for name in ("place", "goal"))
        self.steps = 0
        return self._see(), {}

    def step(self, actions):
        none = np.zeros(self.num_envs, bool)
        if self.steps == self.horizon:
            return self.reset()[0], np.zeros(self.num_envs), none, none, {}
        rewards = Reward()({"place": self.place, "goal": self.goal})
        self.place = np.clip(self.place + self.data.graph.scalers["push"].unscale(actions), 0, 10)
        self.steps += 1
        return self._see(), rewards, none, np.full(self.num_envs, self.steps == self.horizon), {}


@pytest.fixture(scope="module")
def data():
    graph, rng = DecisionGraph.from_dict(GRAPH), np.random.default_rng(0)
    place, goal = rng.uniform(0, 10, (200, 1)), rng.choice([2, 8], (200, 1))
    push = np.sign(np.round(goal - place))
    arrays = {"place": place, "goal": goal, "push": push, "index": np.arange(10, 201, 10)}
    return GraphData.from_arrays(arrays, graph)


def train(data, **overrides):
    first, second = data.split(0.5)
    halves = {"train": first, "val": second}
    small = {
        "test_rollouts": 8, "test_horizon": 10, "policy_hidden_features": 16, "ppo_batch_size": 8, "ppo_epoch": 2,
        "ppo_rollout_horizon": 10, "policy_bc_epoch": 150, **overrides,
    }  # fmt: skip

    def make(half, num_envs, horizon, penalty, seed):
        return Line(halves[half], num_envs, horizon, seed)

    return PolicyTraining(make, halves, Reward(), "push", read_configuration(None, small))


@pytest.fixture(scope="module")
def fitted(data):
    data.graph.fit_ranges(data)
    return data


@pytest.fixture(scope="module")
def trained(fitted):
    said = []
    result = train(fitted).run(lambda progress: said.append(progress) or True)
    return result, said


def test_every_policy_is_judged_in_both_environments(trained):
    result, said = trained
    assert set(result.scores) == {(policy, env) for policy in ("train", "val") for env in ("train", "val")}
    assert all(one.low <= one.value <= one.high for one in result.scores.values())
    assert {progress.half for progress in said} == {"train", "val"}
    assert said[-1].done == 1.0
    best = max(progress.score for progress in said if progress.half == "train")
    assert result.models["train"].about["score"] == best
    assert not result.stopped


def test_clone_does_what_was_logged(trained, fitted):
    result, said = trained
    assert result.cloning_error["train"] < 0.1  # of actions in [-1, 1], of which most are -0.5 or 0.5
    clone = said[0].model
    assert clone.infer({"place": [9.0], "goal": [2]}).tolist() == [-1.0]
    assert clone.infer({"place": [1.0], "goal": [8]}).tolist() == [1.0]


def test_policy_takes_rows_and_batches_and_gives_values_on_the_grid(trained, fitted):
    model = trained[0].models["train"]
    rows = {"place": np.linspace(0, 10, 6)[:, None], "goal": np.full((6, 1), 8)}
    batch = model.infer(rows)
    assert set(batch[:, 0]) <= {-2.0, -1.0, 0.0, 1.0, 2.0}
    single = [model.infer({name: values[row] for name, values in rows.items()}) for row in range(6)]
    np.testing.assert_array_equal(batch, single)
    shaped = model.infer({name: values.reshape(2, 3, 1) for name, values in rows.items()})
    np.testing.assert_array_equal(shaped.reshape(6, 1), batch)
    drawn = model.infer({name: np.repeat(values, 30, 0) for name, values in rows.items()}, deterministic=False)
    assert len(np.unique(drawn)) > len(np.unique(batch)) - 1
    assert set(drawn[:, 0]) <= {-2.0, -1.0, 0.0, 1.0, 2.0}


def test_saved_policy_is_the_same_and_damage_is_told(trained, tmp_path):
    model = trained[0].models["train"]
    model.save(tmp_path / "policy")
    again = PolicyModel.load(tmp_path / "policy")
    rows = {"place": np.linspace(0, 10, 6)[:, None], "goal": np.full((6, 1), 8)}
    np.testing.assert_array_equal(again.infer(rows), model.infer(rows))
    assert again.about == model.about
    assert not [path for path in (tmp_path / "policy").iterdir() if path.suffix in {".pkl", ".pt"}]
    (tmp_path / "policy" / "state.json").write_text("{}")
    with pytest.raises(CheckpointError):
        PolicyModel.load(tmp_path / "policy")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"place": [1.0]}, "sees place, goal; got no 'goal'"),
        ({"place": [1.0, 2.0], "goal": [2]}, r"node 'place': got an array of shape \(2,\); wanted \[..., 1\]"),
        ({"place": [[1.0], [np.nan]], "goal": [[2], [2]]}, r"node 'place', column 'x', row \[1\]: got nan"),
        ({"place": [[1.0]], "goal": [2]}, "got leading shapes"),
    ],
)
def test_states_that_do_not_fit_are_refused(trained, state, message):
    with pytest.raises(DataError, match=message):
        trained[0].models["train"].infer(state)


def test_stopping_leaves_the_best_policy_so_far(fitted):
    result = train(fitted, policy_bc_epoch=1).run(lambda progress: progress.done < 0.5)
    assert result.stopped
    assert set(result.models) == {"train"}
    assert set(result.scores) == {("train", "train"), ("train", "val")}


@pytest.mark.parametrize("algorithm", ["ppo", "sac", "td3"])
def test_weight_of_the_behaviour_keeps_the_policy_near_it(fitted, algorithm):
    def moved(w_kl):
        small = {"policy_algo": algorithm, "w_kl": w_kl, "policy_bc_epoch": 20, "g_lr": 3e-3, "ppo_epoch": 4}
        if algorithm != "ppo":
            own = {"epoch": 3, "num_envs": 50, "batch_size": 32, "steps_per_epoch": 100, "rollout_horizon": 10}
            small |= {f"{algorithm}_{name}": value for name, value in own.items()}
        networks = [network for _, network, _ in policy_training._learned(train(fitted, **small), "train")]
        obs, _ = logged_decisions(fitted.graph, fitted, "push")
        return np.abs(networks[-1].means(obs) - networks[0].means(obs)).mean()

    assert moved(30.0) < 0.5 * moved(0.0)


@pytest.mark.parametrize("space", [gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(3)])
def test_gradient_near_the_behaviour_is_that_of_autograd(space):
    width, gradients, stats = 4 if isinstance(space, gym.spaces.Box) else 3, [], []
    config = {**NearPPOConfig.defaults(), "seed": 3, "w_kl": 0.7, "entropy_coeff": 0.1}
    config["model"] |= {"fcnet_hiddens": [16]}
    matrix = np.random.default_rng(0).normal(size=(4, width)).astype(np.float32)
    for by_hand in (True, False):
        policy = regularized.NearPPOTorchPolicy(gym.spaces.Box(-10, 10, (4,), np.float32), space, config)
        policy.set_weights({name: 5.0 * array for name, array in policy.get_weights().items()})
        policy._told = lambda obs: 0.5 * obs @ matrix
        assert policy.without_autograd is not None
        if not by_hand:
            policy.without_autograd = None
        batch = make_batch(32, name="continuous PPO" if width == 4 else "PPO")
        made = policy.compute_gradients(policy.complete_batch(batch))
        gradients.append(made[0])
        stats.append(made[1]["learner_stats"])
    assert stats[0]["behaviour_kl"] > 0.05
    assert stats[0] == pytest.approx(stats[1], rel=1e-4, abs=1e-6)
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_weight_of_the_behaviour_needs_one(fitted):
    with pytest.raises(ConfigError, match="policy_bc_epoch is 0, so none is cloned"):
        train(fitted, w_kl=0.5, policy_bc_epoch=0)


def test_policy_stays_near_the_clone_that_it_does_not_begin_with(fitted):
    training = train(fitted, w_kl=30.0, behavioral_policy_init=False, ppo_epoch=8, g_lr=1e-2)
    first, *_, last = [network for _, network, _ in policy_training._learned(training, "train")]
    obs, actions = logged_decisions(fitted.graph, fitted, "push")
    begun, ended = (np.square(network.means(obs) - actions).mean() for network in (first, last))
    assert ended < 0.7 * begun


def test_only_a_node_with_a_network_can_be_trained(fitted):
    first, second = fitted.split(0.5)
    with pytest.raises(
        ConfigError, match="target_policy_name: got 'place'; wanted a node with a network: push, next_place"
    ):
        PolicyTraining(lambda *_: None, {"train": first, "val": second}, Reward(), "place", read_configuration())


def test_onnx_file_of_a_decision_that_was_always_the_same_gives_that(fitted, tmp_path):
    pytest.importorskip("onnx")
    columns = [*GRAPH["metadata"]["columns"][:2], {"p": {"dim": "push", "type": "continuous", "min": 3, "max": 3}}]
    graph = DecisionGraph.from_dict({"metadata": {**GRAPH["metadata"], "columns": columns}})
    graph.fit_ranges(fitted)
    layers = [{"kind": "dense", "name": "out", "activation": "linear"}]
    weights = {"out.weight": np.ones((2, 3), np.float32), "out.bias": np.zeros(2, np.float32)}
    model = PolicyModel(
        graph, "push", PolicyNetwork({"outputs": layers, "values": None, "shared": 0}, weights, "gaussian")
    )
    model.export2onnx(tmp_path / "policy.onnx")  # compared with infer
    assert model.infer({"place": [[4.0]], "goal": [[8.0]]}).tolist() == [[3.0]]


def test_onnx_file_computes_what_the_policy_does(trained, tmp_path):
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    model = trained[0].models["train"]
    model.export2onnx(tmp_path / "policy.onnx")
    rows = {"place": np.linspace(0, 10, 21, dtype=np.float32)[:, None], "goal": np.full((21, 1), 8, np.float32)}
    (made,) = ReferenceEvaluator(str(tmp_path / "policy.onnx")).run(None, rows)
    np.testing.assert_allclose(made, model.infer(rows), atol=1e-5)
    changed = PolicyModel(model.graph, model.node, model.network)
    changed.infer = lambda rows: model.infer(rows) + 1.0
    with pytest.raises(ConfigError, match="computes actions up to"):
        changed.export2onnx(tmp_path / "wrong.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["policy.onnx"]
