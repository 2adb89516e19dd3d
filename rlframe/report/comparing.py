"""Whether one set of runs is better than another, and whether there are enough of them to say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rlframe.report.curves import Array, Curve
from rlframe.report.statistics import (
    ENOUGH_RUNS,
    Interval,
    bootstrap_improvement,
    iqm,
    mean,
    stratified_bootstrap,
)
from rlframe.utils.errors import ConfigError


@dataclass(frozen=True)
class Comparison:
    """Two sets of runs side by side.

    Attributes:
        names: Of both sides.
        tasks: Environments that both have.
        runs: Fewest seeds of a task, of both sides. Runs that repeat a seed count once, with their mean.
        means: Mean score of both sides, with 95 % intervals.
        iqms: Interquartile mean of both sides, with 95 % intervals.
        improvement: Probability that a run of the first beats one of the second, with its 95 % interval.
        normalised: Whether scores are scaled to [0, 1] by the lowest and highest run of each task: where there are
            several tasks, their returns have different units.
        verdict: What follows from it, in words.
    """

    names: tuple[str, str]
    tasks: tuple[str, ...]
    runs: tuple[int, int]
    means: tuple[Interval, Interval]
    iqms: tuple[Interval, Interval]
    improvement: Interval
    normalised: bool
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Returns it as nested dicts and lists."""
        whole = asdict(self)
        for key in ("means", "iqms"):
            whole[key] = [interval._asdict() for interval in getattr(self, key)]
        whole["improvement"] = self.improvement._asdict()
        return whole


def compare(names: tuple[str, str], first: Sequence[Curve], second: Sequence[Curve]) -> Comparison:
    """Returns a comparison of the last mean returns of two sets of runs.

    Args:
        names: What the sets are called.
        first: Runs of the one.
        second: Runs of the other, on the same environments.

    Raises:
        ConfigError: If they have no environment in common, or a run has no finished episode.
    """
    scores_x, scores_y = _by_task(names[0], first), _by_task(names[1], second)
    tasks = tuple(sorted(set(scores_x) & set(scores_y)))
    if not tasks or set(scores_x) != set(scores_y):
        raise ConfigError(
            f"{names[0]} has runs on {', '.join(sorted(scores_x))}, {names[1]} on {', '.join(sorted(scores_y))}: runs "
            "are compared on the same environments"
        )
    x, y = [scores_x[task] for task in tasks], [scores_y[task] for task in tasks]
    if len(tasks) > 1:
        x, y = _normalised(x, y)
    runs = (min(map(len, x)), min(map(len, y)))
    improvement = bootstrap_improvement(x, y)
    return Comparison(
        names,
        tasks,
        runs,
        (stratified_bootstrap(x, mean), stratified_bootstrap(y, mean)),
        (stratified_bootstrap(x, iqm), stratified_bootstrap(y, iqm)),
        improvement,
        len(tasks) > 1,
        _verdict(names, runs, improvement),
    )


def _verdict(names: tuple[str, str], runs: tuple[int, int], improvement: Interval) -> str:
    if min(runs) < ENOUGH_RUNS:
        return (
            f"not enough different seeds: {runs[0]} of {names[0]} and {runs[1]} of {names[1]}, wanted at least "
            f"{ENOUGH_RUNS} of each; these intervals are too narrow"
        )
    if improvement.low > 0.5:
        return f"{names[0]} is better"
    if improvement.high < 0.5:
        return f"{names[1]} is better"
    return "no difference is shown: the interval of the probability of improvement holds 0.5"


def _by_task(name: str, curves: Sequence[Curve]) -> dict[str, Array]:
    """Returns the scores of the seeds by environment; the mean where several runs have a seed: they are no new ones."""
    scores: dict[str, dict[Any, list[float]]] = {}
    for number, curve in enumerate(curves):
        if not math.isfinite(curve.score):
            raise ConfigError(f"{name}: no episode has ended in {str(curve.path)!r}")
        seed = ("drawn", number) if curve.seed is None else curve.seed
        scores.setdefault(curve.env or "(unnamed)", {}).setdefault(seed, []).append(curve.score)
    return {task: np.array([np.mean(repeats) for repeats in by_seed.values()]) for task, by_seed in scores.items()}


def _normalised(x: list[Array], y: list[Array]) -> tuple[list[Array], list[Array]]:
    scaled: tuple[list[Array], list[Array]] = ([], [])
    for task_x, task_y in zip(x, y, strict=True):
        both = np.concatenate([task_x, task_y])
        low, span = both.min(), (both.max() - both.min()) or 1.0
        scaled[0].append((task_x - low) / span)
        scaled[1].append((task_y - low) / span)
    return scaled
