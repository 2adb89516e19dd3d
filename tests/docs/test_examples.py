"""Every example runs, and its number is what it says."""

import importlib.util
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
    assert names == {"train_own_env", "derive_algorithm", "custom_metrics", "custom_model", "own_execution_plan"}


@pytest.mark.parametrize("old", [False, True], ids=["gymnasium", "old gym"])
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


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 75
