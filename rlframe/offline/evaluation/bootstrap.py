"""Intervals by drawing episodes again: studentised for estimates with a standard error, percentiles for others."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A value with its interval, in discounted reward units.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def widened(self, margin: float) -> Interval:
        """Returns the interval with ends that lie farther out by `margin`."""
        return self._replace(low=self.low - margin, high=self.high + margin)


class Draws(NamedTuple):
    """How often each of N episodes is in each of B samples that were drawn again; float64 `[B, N]`, rows sum to N."""

    counts: Floats

    @classmethod
    def of(cls, episodes: int, resamples: int, seed: int) -> Draws:
        """Returns `resamples` draws of `episodes` of as many, with replacement."""
        rng = np.random.default_rng(seed)
        return cls(rng.multinomial(episodes, np.full(episodes, 1.0 / episodes), resamples).astype(np.float64))


#: `fn(counts [B, N]) -> values [B] and their standard errors [B]`.
Statistic = Callable[[Floats], tuple[Floats, Floats]]


def studentised(statistic: Statistic, draws: Draws, level: float) -> Interval:
    """Returns a statistic with its studentised bootstrap interval.

        [ θ − max(t*_{1−α/2}, m) · se,  θ + max(−t*_{α/2}, m) · se ],   t* = (θ* − θ) / se*,   m = |t*|_{1−α}

    Returns are skewed, and few of many weights are large. Percentile intervals take no account of that and are too
    short at the side of the tail. Of the equal-tailed and the symmetric studentised interval, each end is the one that
    lies farther out: with few effective episodes either alone covers less than it says.

    Args:
        statistic: The estimate and its standard error, for episodes counted as often as told.
        draws: Which episodes were drawn again.
        level: Coverage, in (0, 1).

    Source: Efron & Tibshirani 1993, "An Introduction to the Bootstrap", section 12.5; Hall 1992, "The Bootstrap and
        Edgeworth Expansion", section 3.6 (symmetric intervals).
    """
    value, error = (float(made[0]) for made in statistic(np.ones((1, draws.counts.shape[1]))))
    values, errors = statistic(draws.counts)
    if error == 0.0:
        return Interval(value, value, value)
    spread = errors > 1e-12 * max(abs(value), 1.0)  # samples of one episode many times have none
    if not spread.any():
        return Interval(value, value, value)
    pivots = (values[spread] - value) / errors[spread]
    low, high = map(float, np.quantile(pivots, [(1.0 - level) / 2.0, (1.0 + level) / 2.0]))
    either = float(np.quantile(np.abs(pivots), level))
    return Interval(value, value - max(high, either) * error, value + max(-low, either) * error)


def mean_of(by_episode: Floats) -> Statistic:
    """Returns the statistic "mean over episodes" of numbers `[N]`."""

    def statistic(counts: Floats) -> tuple[Floats, Floats]:
        number = by_episode.size
        means = counts @ by_episode / number
        squares = counts @ np.square(by_episode) / number
        return means, np.sqrt(np.maximum(squares - means**2, 0.0) / max(number - 1, 1))

    return statistic


def percentile(value: float, values: Floats, level: float) -> Interval:
    """Returns a value with the percentiles of what it was for episodes drawn again, float64 `[B]`."""
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(value, float(low), float(high))


def by_spread(value: float, values: Floats, level: float) -> Interval:
    """Returns a value with the interval that a few values of episodes drawn again give by their standard deviation.

    Args:
        value: The estimate.
        values: Of M draws, float64 `[M]`, M ≥ 2.
        level: Coverage, in (0, 1).
    """
    half = student_quantile((1.0 + level) / 2.0, values.size - 1) * float(values.std(ddof=1))
    return Interval(value, value - half, value + half)


def student_quantile(probability: float, freedom: int) -> float:
    """Returns a quantile of Student's t, right to 1 % from 4 degrees of freedom on.

    Source: Abramowitz & Stegun 1964, "Handbook of Mathematical Functions", 26.7.5.
    """
    x = NormalDist().inv_cdf(probability)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))


def as_dict(interval: Interval) -> dict[str, Any]:
    """Returns an interval as plain data."""
    return {"value": interval.value, "interval": [interval.low, interval.high]}


__all__ = ["Draws", "Interval", "as_dict", "by_spread", "mean_of", "percentile", "student_quantile", "studentised"]
