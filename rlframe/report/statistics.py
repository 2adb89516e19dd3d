"""Statistics of returns over seeds and environments, with the definitions of Agarwal et al. 2021 (`rliable`).

Scores are a list of M arrays, one for each task (environment), each holding the score of every run (seed): `[R_m]`.
Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Scores = Sequence[Array]
Statistic = Callable[[Scores], float]

#: Fewer runs of a task than this give intervals that cannot be trusted: resampling two or three values finds few
#: others, and the interval comes out too narrow.
ENOUGH_RUNS = 5
_RESAMPLES = 2_000
_LEVEL = 0.95


class Interval(NamedTuple):
    """A statistic with its bootstrap interval.

    Attributes:
        value: The statistic of the scores themselves.
        low: Lower end of the interval.
        high: Upper end.
    """

    value: float
    low: float
    high: float


def iqm(scores: Scores) -> float:
    """Returns the interquartile mean: the mean of the middle half of all scores.

    Of N scores, ⌊N/4⌋ are dropped at each end, as `scipy.stats.trim_mean` and rliable do.

    Args:
        scores: One finite score at least.
    """
    ordered = np.sort(np.concatenate([np.asarray(task, np.float64) for task in scores]))
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def mean(scores: Scores) -> float:
    """Returns the mean of all scores."""
    return float(np.concatenate(list(scores)).mean())


def stratified_bootstrap(
    scores: Scores, statistic: Statistic, *, resamples: int = _RESAMPLES, level: float = _LEVEL, seed: int = 0
) -> Interval:
    """Returns a statistic and its percentile bootstrap interval; runs are drawn again within each task.

    Args:
        scores: By task.
        statistic: A function of scores by task.
        resamples: How often runs are drawn.
        level: Coverage of the interval, in (0, 1).
        seed: Of the drawing.
    """
    rng = np.random.default_rng(seed)
    drawn = [statistic(_drawn_again(scores, rng)) for _ in range(resamples)]
    return Interval(statistic(scores), *_percentiles(drawn, level))


def probability_of_improvement(scores_x: Scores, scores_y: Scores) -> float:
    """Returns how likely a run of X is to beat one of Y on the same task, averaged over tasks; ties count half.

        P(X > Y) = 1/M Σ_m [ 1/(N K) Σ_i Σ_j S(x_im, y_jm) ],   S = 1, ½, 0 for x >, =, < y

    Args:
        scores_x: By task, N of each.
        scores_y: By the same tasks, K of each.

    Source: Agarwal et al. 2021, section 4.3 (the Mann-Whitney U statistic).
    """
    return float(np.mean([_wins(x, y) for x, y in zip(scores_x, scores_y, strict=True)]))


def bootstrap_improvement(
    scores_x: Scores, scores_y: Scores, *, resamples: int = _RESAMPLES, level: float = _LEVEL, seed: int = 0
) -> Interval:
    """Returns the probability of improvement with its interval; runs of both sides are drawn again within each task.

    Args:
        scores_x: By task.
        scores_y: By the same tasks.
        resamples: How often runs are drawn.
        level: Coverage of the interval, in (0, 1).
        seed: Of the drawing.
    """
    rng = np.random.default_rng(seed)
    drawn = [
        probability_of_improvement(_drawn_again(scores_x, rng), _drawn_again(scores_y, rng)) for _ in range(resamples)
    ]
    return Interval(probability_of_improvement(scores_x, scores_y), *_percentiles(drawn, level))


def _wins(x: Array, y: Array) -> float:
    difference = x[:, None] - y[None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _drawn_again(scores: Scores, rng: np.random.Generator) -> list[Array]:
    """Returns as many runs of each task, drawn with replacement, task by task."""
    return [task[rng.integers(len(task), size=len(task))] for task in scores]


def _percentiles(values: list[float], level: float) -> tuple[float, float]:
    tail = 100.0 * (1.0 - level) / 2.0
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)
