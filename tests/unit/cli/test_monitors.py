"""Where else results go."""

import importlib.util
import math

import numpy as np
import pytest

from rlframe.cli.monitors import check_monitors, make_monitors, numbers_of
from rlframe.utils.errors import ConfigError


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_monitor_that_is_not_installed_says_how_to_install_it(name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(ConfigError, match=f"--monitor {name}: not installed; `pip install {name}`"):
        check_monitors([name])


def test_tensorboard_needs_nothing_of_its_own() -> None:
    assert make_monitors(["tensorboard", "tensorboard"], "run", {}) == []


def test_numbers_of_a_result_are_finite_and_named_by_their_place() -> None:
    result = {
        "mean": np.float32(1.5),
        "nan": math.nan,
        "done": False,
        "text": "x",
        "info": {"learner": {"default_policy": {"kl": 0.25, "td_error": np.zeros(3)}}},
        "hist_stats": {"episode_reward": [1.0, 2.0]},
        "config": {"lr": 1.0},
    }
    assert numbers_of(result) == {"mean": 1.5, "info/learner/default_policy/kl": 0.25}
