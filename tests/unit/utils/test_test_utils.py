"""The checks that tests use."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rlframe.utils.test_utils import (
    check,
    check_compute_single_action,
    check_learning_achieved,
    check_train_results,
    framework_iterator,
)

SAME = [
    (1.0, 1.000001),
    (np.array([1.0, np.nan]), [1.0, np.nan]),
    ({"a": [1, (2.0, "x")]}, {"a": (1, [2.0, "x"])}),
    (None, None),
    (True, 1),
    ("x", "x"),
    (np.array([{}], dtype=object), np.array([{}], dtype=object)),
]
DIFFERENT = [
    (1.0, 1.1),
    ([1, 2], [1, 2, 3]),
    ({"a": 1}, {"b": 1}),
    ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}),
    ({"a": 1}, [1]),
    ("x", "y"),
    ("1", 1),
    (None, 0),
    (np.zeros(2), np.zeros(3)),
]


@pytest.mark.parametrize(("x", "y"), SAME)
def test_check_of_equals_passes_and_false_refuses(x, y):
    check(x, y)
    with pytest.raises(AssertionError, match="differ"):
        check(x, y, false=True)


@pytest.mark.parametrize(("x", "y"), DIFFERENT)
def test_check_of_differences_refuses_and_false_passes(x, y):
    with pytest.raises(AssertionError):
        check(x, y)
    check(x, y, false=True)


def test_check_names_the_place():
    with pytest.raises(AssertionError, match=r"At \['a'\]\[1\]"):
        check({"a": [1, 2]}, {"a": [1, 3]})


def test_check_takes_digits_and_tolerances():
    check(1.0, 1.004, decimals=2)
    check(1.0, 1.004, decimals=3, false=True)
    check(100.0, 101.0, rtol=0.02)
    check(100.0, 101.0, atol=0.5, false=True)


def test_check_compares_tensors_with_arrays():
    torch = pytest.importorskip("torch")
    check({"t": torch.ones(2, requires_grad=True)}, {"t": np.ones(2)})


def test_framework_iterator_yields_installed_ones_and_restores_the_config():
    config = {"framework": "mine"}
    seen = [(name, config["framework"]) for name in framework_iterator(config, frameworks=("torch",))]
    assert seen == [("torch", "torch")]
    assert config == {"framework": "mine"}
    assert list(framework_iterator(frameworks="torch")) == ["torch"]
    assert list(framework_iterator(frameworks="torch", session=True)) == [("torch", None)]


def test_check_learning_achieved_looks_at_the_best_trial():
    results = SimpleNamespace(
        trials=[
            SimpleNamespace(last_result={"episode_reward_mean": float("nan")}),
            SimpleNamespace(last_result={"episode_reward_mean": 7.0, "evaluation": {"episode_reward_mean": 3.0}}),
        ]
    )
    check_learning_achieved(results, 6.0)
    with pytest.raises(ValueError, match="at least 6"):
        check_learning_achieved(results, 6.0, evaluation=True)
    with pytest.raises(ValueError, match="nan"):
        check_learning_achieved([{}], 1.0)


def test_check_train_results_names_all_missing_keys():
    with pytest.raises(ValueError, match=r"timers.*info\.learner"):
        check_train_results({"info": {}})


def trainer(action):
    policy = SimpleNamespace(observation_space=Box(0, 1, (2,)), action_space=Discrete(2))

    def compute(obs, policy_id, explore, full_fetch=False, state=None, prev_action=0, prev_reward=0.0):
        assert Discrete(2).contains(prev_action)
        return (action, state or [], {}) if full_fetch or state is not None else action

    policy.get_initial_state = lambda: [np.zeros(3)]
    return SimpleNamespace(get_policy=lambda policy_id: policy, compute_single_action=compute)


def test_check_compute_single_action_wants_members_of_the_space():
    check_compute_single_action(trainer(1))
    check_compute_single_action(trainer(1), include_state=True, include_prev_action_reward=True)
    with pytest.raises(ValueError, match="wanted one of Discrete"):
        check_compute_single_action(trainer(2))
