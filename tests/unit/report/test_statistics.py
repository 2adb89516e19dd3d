"""Statistics over seeds, with numbers worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from rlframe.report.comparing import compare
from rlframe.report.curves import Curve
from rlframe.report.plotting import summarize_runs
from rlframe.report.statistics import (
    bootstrap_improvement,
    iqm,
    mean,
    probability_of_improvement,
    stratified_bootstrap,
)
from rlframe.utils.errors import ConfigError


def scores(*tasks):
    return [np.array(task, np.float64) for task in tasks]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], 4.5),  # 1, 2 and 7, 8 are dropped
        ([100, 0, 2, 1], 1.5),  # 0 and 100 are dropped
        ([1, 2, 6], 3.0),  # ⌊3/4⌋ = 0: nothing is dropped
        ([7], 7.0),
    ],
)
def test_iqm_is_the_mean_of_the_middle_half(values, wanted):
    assert iqm(scores(values)) == wanted


def test_iqm_takes_the_scores_of_all_tasks_together():
    assert iqm(scores([0, 1], [2, 100])) == 1.5


def test_probability_of_improvement_counts_pairs_within_tasks():
    # (1, 2) lost, (1, 3) lost, (3, 2) won, (3, 3) tied: 1.5 of 4
    assert probability_of_improvement(scores([1, 3]), scores([2, 3])) == 0.375
    # The second task is won: (0.375 + 1) / 2
    assert probability_of_improvement(scores([1, 3], [5]), scores([2, 3], [1])) == 0.6875


def test_bootstrap_interval_of_two_runs_is_that_of_three_means():
    # 0, ½ and 1 with probabilities ¼, ½, ¼
    assert stratified_bootstrap(scores([0, 1]), mean) == (0.5, 0.0, 1.0)


def test_bootstrap_draws_within_tasks():
    # Drawn over all four, the mean would go from 0 to 10.
    assert stratified_bootstrap(scores([0, 0], [10, 10]), mean) == (5.0, 5.0, 5.0)


def test_bootstrap_interval_of_normal_scores_is_near_the_textbook():
    values = np.random.default_rng(1).normal(size=400)
    value, low, high = stratified_bootstrap([values], mean)
    half = 1.96 * values.std() / np.sqrt(values.size)
    assert low == pytest.approx(value - half, abs=0.15 * half)
    assert high == pytest.approx(value + half, abs=0.15 * half)


def test_bootstrap_is_the_same_for_the_same_seed():
    one, two = (bootstrap_improvement(scores([1, 2, 3]), scores([2, 3, 4]), resamples=50) for _ in range(2))
    assert one == two
    # (2,2), (3,3) tied, (3,2) won: 2 of 9
    assert one.value == pytest.approx(2 / 9)


def test_band_over_runs_leaves_out_those_that_have_ended():
    values = np.array([[0.0, 2.0, np.nan], [4.0, 2.0, 9.0]])
    line, low, high = summarize_runs(values, "mean")
    assert line.tolist() == [2.0, 2.0, 9.0]
    assert (low[0], high[0]) == (0.0, 4.0)
    assert (low[1], high[1]) == (2.0, 2.0)
    assert np.isnan([low[2], high[2]]).all()


def runs(returns, env="E"):
    return [Curve("run", {"mean_reward": np.array([0.0, value, np.nan])}, "PPO", env) for value in returns]


def test_comparison_says_what_is_better():
    better = compare(("a", "b"), runs([10, 11, 12, 13, 14]), runs([1, 2, 3, 4, 5]))
    assert better.verdict == "a is better"
    assert better.improvement == (1.0, 1.0, 1.0)
    assert [interval.value for interval in better.means] == [12.0, 3.0]
    assert [interval.value for interval in better.iqms] == [12.0, 3.0]
    assert compare(("a", "b"), runs([1, 2, 3, 4, 5]), runs([6, 7, 8, 9, 10])).verdict == "b is better"
    assert compare(("a", "b"), runs([1, 2, 3, 4, 5]), runs([1, 2, 3, 4, 5])).verdict.startswith("no difference")


def test_comparison_of_few_seeds_says_so():
    few = compare(("a", "b"), runs([10, 11, 12, 13]), runs([1, 2, 3, 4, 5]))
    assert few.verdict.startswith("not enough different seeds: 4 of a and 5 of b, wanted at least 5")


def test_comparison_counts_runs_of_one_seed_once():
    def seeded(returns, seeds):
        return [replace(run, config={"seed": seed}) for run, seed in zip(runs(returns), seeds, strict=True)]

    some = compare(("a", "b"), seeded([10, 20, 60], [0, 0, 1]), seeded([1, 1, 1], [2, 2, 2]))
    assert some.runs == (2, 1)
    assert [interval.value for interval in some.means] == [37.5, 1.0]
    assert compare(("a", "b"), seeded([1, 2], [None, None]), runs([3])).runs == (2, 1)


def test_comparison_over_tasks_is_scaled_by_each():
    both = compare(("a", "b"), runs([0, 10]) + runs([1000, 3000], "F"), runs([5, 5]) + runs([2000, 2000], "F"))
    assert both.normalised
    assert both.tasks == ("E", "F")
    assert [interval.value for interval in both.means] == [0.5, 0.5]


def test_comparison_of_other_environments_is_refused():
    with pytest.raises(ConfigError, match="a has runs on E, b on F"):
        compare(("a", "b"), runs([1]), runs([1], "F"))
