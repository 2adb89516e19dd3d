"""Every example runs, and its number is what it says."""

import importlib.util
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_test_here():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    tested = {"train_own_env", "derive_algorithm", "custom_metrics", "custom_model", "own_execution_plan"}
    assert names == tested | {"central_critic", "decentralized", "parameter_sharing", "self_play", "two_trainers"}


def test_every_example_is_a_row_of_its_page():
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert not [path.name for path in EXAMPLES.glob("*.py") if f"../examples/{path.name})" not in page]


@pytest.mark.parametrize("old", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["gymnasium", "old gym"])
def test_own_env_is_solved(old):
    assert load("train_own_env").main(iterations=6, old=old) > 0.0


def test_derived_algorithm_trains():
    assert load("derive_algorithm").main(iterations=2) > 9.0


def test_custom_metrics_are_reported():
    assert 0.0 < load("custom_metrics").main(iterations=1) < 0.3


def test_custom_model_trains():
    assert load("custom_model").main(iterations=2) > 9.0


def test_own_plan_counts():
    assert load("own_execution_plan").main(iterations=2) >= 2000


@pytest.mark.slow
def test_central_critic_finds_the_best_outcome():
    assert load("central_critic").main(iterations=20) > 7.9


@pytest.mark.slow
def test_policies_that_share_a_layer_learn():
    assert load("parameter_sharing").main(iterations=10) > 150.0  # random actions: about 90


@pytest.mark.slow
def test_self_play_meets_past_selves_and_loses_less_than_chance():
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PettingZoo says of its own future
        example = load("self_play")
    not_lost, league = example.main(iterations=8)
    assert league >= 2  # opponents: random moves, and what the learner was when it beat them
    assert not_lost > 0.6  # random moves against random moves lose 44 of 100 games on average over both sides


@pytest.mark.slow
def test_two_trainers_learn_side_by_side():
    # Returns of random agents are about 22.
    ppo, dqn = load("two_trainers").main(iterations=5)
    assert ppo > 22.0
    assert dqn > 15.0  # which explores at random for 10,000 steps


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 75


def test_a_player_that_plays_itself_is_rated_above_chance():
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PettingZoo says of its own future
        assert load("decentralized").main(episodes=300) > 50.0
