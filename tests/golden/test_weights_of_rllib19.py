"""Weights of RLlib 1.9.2's policies give the same outputs here, to 1e-5; and what a wrong set of weights is told.

`rllib19_weights.npz` is what `rllib19_weights.py` wrote beside RLlib: weights drawn at random, rows of columns, and
what RLlib's policies (torch; TensorFlow with static graphs) computed.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import re
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.dqn import DEFAULT_CONFIG as DQN
from rlframe.agents.dqn import SIMPLE_Q_DEFAULT_CONFIG as SIMPLE_Q
from rlframe.agents.ppo import DEFAULT_CONFIG as PPO
from tests.helpers.frameworks import needs_tf

CONVS = {"conv_filters": [[4, [4, 4], 2], [8, [5, 5], 1]]}
MEMORY = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
ATOMS = {"num_atoms": 3, "noisy": True, "v_min": -1.0, "v_max": 2.0}
HEADS = {"hiddens": [4]}

VECTOR, IMAGE = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(0, 1, (10, 10, 2), np.float32)
TWO, THREE = gym.spaces.Discrete(2), gym.spaces.Discrete(3)
PLANE = gym.spaces.Box(-1, 1, (2,), np.float32)

#: Case -> (algorithm, observations, actions, model, other keys).
CASES: dict[str, tuple[str, Any, Any, dict[str, Any], dict[str, Any]]] = {
    "ppo_separate": ("ppo", VECTOR, TWO, {"fcnet_hiddens": [5, 4]}, {}),
    "ppo_shared_free": (
        "ppo",
        VECTOR,
        PLANE,
        {"fcnet_hiddens": [5], "vf_share_layers": True, "free_log_std": True},
        {},
    ),
    "ppo_vision": ("ppo", IMAGE, THREE, CONVS, {}),
    "ppo_vision_shared": ("ppo", IMAGE, THREE, {**CONVS, "vf_share_layers": True}, {}),
    "ppo_lstm": ("ppo", VECTOR, TWO, {"fcnet_hiddens": [5], **MEMORY}, {}),
    "dqn": ("dqn", VECTOR, TWO, {"fcnet_hiddens": [5, 6]}, HEADS),
    "dqn_plain": ("dqn", VECTOR, TWO, {"fcnet_hiddens": [5, 6]}, {**HEADS, "dueling": False}),
    "dqn_atoms_noisy": ("dqn", VECTOR, TWO, {"fcnet_hiddens": [5]}, {**HEADS, **ATOMS}),
    "simple_q": ("simple_q", VECTOR, TWO, {"fcnet_hiddens": [5]}, {}),
}
DEFAULTS = {"ppo": PPO, "dqn": DQN, "simple_q": SIMPLE_Q}


@cache
def recorded() -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Returns (framework, case) -> "weights", "columns" or "outputs" -> name -> array."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    start = 0
    with np.load(pathlib.Path(__file__).with_name("rllib19_weights.npz")) as file:
        data, index = file["data"], json.loads(str(file["index"]))
    for framework, case, kind, name, shape in index:
        stop = start + int(np.prod(shape))
        found.setdefault((framework, case), {}).setdefault(kind, {})[name] = data[start:stop].reshape(shape)
        start = stop
    return found


@cache
def make_policy(framework: str, case: str, **model: Any) -> Any:
    algorithm, obs, actions, options, keys = CASES[case]
    name = {"ppo": "PPO", "dqn": "DQN", "simple_q": "SimpleQ"}[algorithm] + {"torch": "Torch", "tf": "TF"}[framework]
    folder = "ppo" if algorithm == "ppo" else "dqn"
    module = importlib.import_module(f"rlframe.agents.{folder}.{algorithm}_{framework}_policy")
    config = {**DEFAULTS[algorithm], **keys, "framework": framework, "seed": 0}
    return getattr(module, f"{name}Policy")(obs, actions, {**config, "model": {**config["model"], **options, **model}})


TARGET = re.compile(r"/(fc_1_1|fc_out_1|value_out_1|hidden_0_1|dense_[345])/")
TF_CASES = ["ppo_separate", "ppo_vision", "ppo_lstm", "dqn_atoms_noisy"]


@pytest.mark.parametrize("origin", ["torch", "tf"])
@pytest.mark.parametrize(
    ("framework", "case"),
    [("torch", case) for case in CASES] + [pytest.param("tf", case, marks=needs_tf) for case in TF_CASES],
)
def test_outputs_are_those_of_rllib(framework: str, case: str, origin: str) -> None:
    policy, of = make_policy(framework, case), recorded()[origin, case]
    policy.set_weights(of["weights"])
    columns = dict(of["columns"])
    if "prev_actions" in columns:
        columns["prev_actions"] = columns["prev_actions"].astype(np.int64)
    _, states, extra = policy.compute_actions_from_input_dict(columns, explore=False)
    outputs = {**extra, **{f"state_out_{index}": state for index, state in enumerate(states)}}
    for name, wanted in of["outputs"].items():
        np.testing.assert_allclose(outputs[name], wanted.reshape(np.shape(outputs[name])), atol=1e-5, err_msg=name)


def test_state_dict_of_rllib_is_loaded_by_the_module() -> None:
    torch = pytest.importorskip("torch")
    policy, of = make_policy("torch", "ppo_separate"), recorded()["torch", "ppo_separate"]
    policy.model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in of["weights"].items()})
    _, _, extra = policy.compute_actions(of["columns"]["obs"], explore=False)
    np.testing.assert_allclose(extra["action_dist_inputs"], of["outputs"]["action_dist_inputs"], atol=1e-5)


def test_names_of_an_eager_policy_are_understood() -> None:
    policy, of = make_policy("torch", "dqn"), recorded()["tf", "dqn"]
    online = {name: array for name, array in of["weights"].items() if not TARGET.search(name)}
    policy.set_weights({f"{name.removeprefix('default_policy/')}:0": array for name, array in online.items()})
    _, _, extra = policy.compute_actions(of["columns"]["obs"], explore=False)
    np.testing.assert_allclose(extra["action_dist_inputs"], of["outputs"]["action_dist_inputs"], atol=1e-5)


def without(weights: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: array for name, array in weights.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: without(w, "_logits._model.0.bias"), "missing"),
        (lambda w: {**w, "_hidden_layers.2._model.0.weight": w["_hidden_layers.1._model.0.weight"]}, "unknown"),
        (lambda w: {**w, "_logits._model.0.bias": np.zeros(3, np.float32)}, r"output.bias is \(3,\), wanted \(2,\)"),
        (lambda w: list(w.values())[1:], "got a list, wanted names and arrays"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(change: Any, words: str) -> None:
    policy = make_policy("torch", "ppo_separate")
    before = policy.get_weights()
    with pytest.raises(ValueError, match=words):
        policy.set_weights(change(recorded()["torch", "ppo_separate"]["weights"]))
    assert all(np.array_equal(before[name], array) for name, array in policy.get_weights().items())


def test_standard_deviations_of_the_network_ask_for_the_key() -> None:
    case = "ppo_shared_free"
    weights = dict(recorded()["torch", case]["weights"])
    del weights["_append_free_log_std.log_std"]
    weights["_logits._model.0.weight"] = np.zeros((4, 5), np.float32)
    with pytest.raises(ValueError, match="free_log_std=False"):
        make_policy("torch", case).set_weights(weights)
