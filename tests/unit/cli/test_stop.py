"""When a run is done, and how far it is."""

import math
from typing import Any

import pytest

from rlframe.cli.stop import Progress, StopCriterion
from rlframe.utils.errors import ConfigError


def make_result(mean: float, steps: int = 0, iteration: int = 1, seconds: float = 1.0) -> dict[str, Any]:
    return {
        "episode_reward_mean": mean,
        "timesteps_total": steps,
        "training_iteration": iteration,
        "time_total_s": seconds,
    }


def test_criterion_reached_names_the_limit() -> None:
    criterion = StopCriterion(episode_reward_mean=195.0, timesteps_total=50_000)
    assert criterion.reached(make_result(194.9)) is None
    assert criterion.reached(make_result(195.5)) == "mean return 195.50, limit 195"
    assert criterion.reached(make_result(0.0, steps=50_001)) == "env steps 50,001, limit 50,000"


def test_criterion_with_nan_return_is_not_reached() -> None:
    assert StopCriterion(episode_reward_mean=-1e9).reached(make_result(math.nan)) is None


def test_criterion_without_limits_is_never_reached() -> None:
    assert StopCriterion().reached(make_result(1e9)) is None
    assert "Ctrl-C" in StopCriterion().describe()


def test_criterion_of_zero_is_a_limit() -> None:
    assert StopCriterion(episode_reward_mean=0.0).reached(make_result(0.5)) is not None


def test_from_dict_wrong_name_or_value_raises_configerror() -> None:
    with pytest.raises(ConfigError, match="unknown key 'reward'"):
        StopCriterion.from_dict({"reward": 1})
    with pytest.raises(ConfigError, match=r"stop\.timesteps_total: got 'x'"):
        StopCriterion.from_dict({"timesteps_total": "x"})


def test_updated_replaces_as_a_whole_and_merged_by_limit() -> None:
    old, new = StopCriterion(10.0, 100), StopCriterion(None, 200)
    assert old.updated(new) == new
    assert old.updated(StopCriterion()) == old
    assert old.merged(new) == StopCriterion(10.0, 200)


def test_progress_of_the_return_starts_at_the_first_one() -> None:
    progress = Progress(StopCriterion(episode_reward_mean=100.0))
    assert progress.fraction() is None
    progress.update(make_result(math.nan))
    assert progress.fraction() is None
    progress.update(make_result(20.0))
    assert progress.fraction() == 0.0
    progress.update(make_result(60.0))
    assert progress.fraction() == 0.5
    progress.update(make_result(10.0))
    assert progress.fraction() == 0.0
    assert progress.eta_s() is None


def test_progress_is_that_of_the_nearest_limit() -> None:
    progress = Progress(StopCriterion(timesteps_total=1000, time_total_s=10.0))
    progress.update(make_result(0.0, steps=100, seconds=1.0))
    progress.update(make_result(0.0, steps=300, seconds=2.0))
    assert progress.fraction() == 0.3
    assert progress.eta_s() == 3.5  # 700 steps at 200 per second; the clock alone would take 8 s


def test_progress_without_limits_knows_nothing() -> None:
    progress = Progress(StopCriterion())
    progress.update(make_result(1.0))
    assert (progress.fraction(), progress.eta_s()) == (None, None)
