"""Pictures of learning curves, drawn by Matplotlib."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.report.curves import VALUES, Array, Curve, group_curves, on_a_grid, read_curve
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Seconds in the units of time that an axis can have.
TIME_UNITS = {"s": 1.0, "min": 60.0, "hour": 3600.0, "day": 86400.0}
_SPELLINGS = {"second": "s", "sec": "s", "minute": "min", "h": "hour"}
#: What a line shows of several seeds.
STATISTICS = ("mean", "iqm")
_WORDS = {
    "mean_reward": "mean return", "best_reward": "best mean return", "episode_reward": "return of the last episode"
}  # fmt: skip
_RESAMPLES = 1_000
_LONGEST_TITLE = 80


def plot_history(  # noqa: PLR0913, PLR0917  xagents' signature
    paths: Sequence[str | os.PathLike[str]],
    labels: Sequence[str],
    env: str,
    plot: str = "mean_reward",
    benchmark: str = "step",
    history_interval: int = 1,
    time_unit: str = "s",
) -> Figure:
    """Returns a figure with one line for each history.

    Args:
        paths: History files or run directories.
        labels: Name of each line.
        env: Name of the environment, for the title.
        plot: Column to draw: "mean_reward", "best_reward" or "episode_reward".
        benchmark: What it is drawn against: "step" or "time".
        history_interval: Every how manyth row is drawn.
        time_unit: "s", "min", "hour" or "day", with `benchmark="time"`.

    Raises:
        ConfigError: If a file has other columns, or an argument is none of these.
    """
    if len(labels) != len(paths):
        raise ConfigError(f"labels: got {len(labels)}, wanted one for each of the {len(paths)} paths")
    curves = {label: [_thinned(read_curve(path), history_interval)] for path, label in zip(paths, labels, strict=True)}
    return draw(curves, title=env, value=plot, x=benchmark, time_unit=time_unit)


def plot_runs(curves: Sequence[Curve], *, labels: Sequence[str] = (), history_interval: int = 1, **how: Any) -> Figure:
    """Returns a figure with one line and a 95 % band for each group of runs that differ in their seed only.

    Args:
        curves: The runs.
        labels: Names of the groups in their order; those that are left out are made from the configs.
        history_interval: Every how manyth row is drawn.
        **how: As for `draw`.

    Raises:
        ConfigError: If there are more labels than groups.
    """
    groups = group_curves([_thinned(curve, history_interval) for curve in curves])
    if len(labels) > len(groups):
        raise ConfigError(f"--label: got {len(labels)}, but there are {len(groups)} groups: {', '.join(groups)}")
    names = [*labels, *list(groups)[len(labels) :]]
    envs = sorted({curve.env for curve in curves if curve.env})
    return draw(dict(zip(names, groups.values(), strict=True)), title=", ".join(envs), **how)


def draw(
    groups: Mapping[str, Sequence[Curve]],
    *,
    title: str = "",
    value: str = "mean_reward",
    x: str = "step",
    time_unit: str = "s",
    statistic: str = "mean",
) -> Figure:
    """Returns a figure with one line for each group, and the 95 % bootstrap band where a group has several runs.

    Args:
        groups: Runs by the label of their line.
        title: Title of the figure.
        value: One of `VALUES`.
        x: "step" or "time".
        time_unit: One of `TIME_UNITS`.
        statistic: "mean" or "iqm" of the runs.

    Raises:
        ConfigError: If an argument is none of these, or Matplotlib is not installed.
    """
    unit = _SPELLINGS.get(time_unit.rstrip("s") or "s", time_unit.rstrip("s") or "s")
    choices = (("value", value, VALUES), ("x axis", x, ("step", "time")), ("time unit", unit, tuple(TIME_UNITS)),
               ("statistic", statistic, STATISTICS))  # fmt: skip
    for name, given, known in choices:
        if given not in known:
            raise ConfigError(f"{name}: got {given!r}, wanted one of {', '.join(known)}")
    figure, axes = _figure()
    for label, curves in groups.items():
        places, values = on_a_grid(curves, value, x)
        scaled = places / TIME_UNITS[unit] if x == "time" else places
        _draw_group(axes, scaled, values, label if len(curves) == 1 else f"{label} ({len(curves)} runs)", statistic)
    axes.set_xlabel("env steps" if x == "step" else f"time ({unit})")
    axes.set_ylabel(_WORDS[value])
    axes.set_title(title[:_LONGEST_TITLE], parse_math=False)  # names are no formulas, though they may hold a $
    axes.grid(alpha=0.3)
    for text in axes.legend().get_texts():
        text.set_parse_math(False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG, SVG or PDF, by the path's suffix.

    Raises:
        ConfigError: If the suffix is another, or the file cannot be written.
    """
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--output: got {str(path)!r}, wanted a file that ends in .png, .svg or .pdf")
    try:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    except OSError as error:
        raise ConfigError(f"--output: {str(path)!r} cannot be written: {error}") from error


def summarize_runs(values: Array, statistic: str, seed: int = 0) -> tuple[Array, Array, Array]:
    """Returns the statistic over runs at each place, and the ends of its 95 % bootstrap interval.

    Args:
        values: `[R, G]`; NaN where a run has none. Runs that have ended are left out there.
        statistic: "mean" or "iqm".
        seed: Of the bootstrap.

    Returns:
        Three arrays `[G]`; the interval is NaN where fewer than two runs are left.
    """
    rng = np.random.default_rng(seed)
    line, low, high = (np.full(values.shape[1], np.nan) for _ in range(3))
    for place in range(values.shape[1]):
        runs = values[np.isfinite(values[:, place]), place]
        if runs.size:
            line[place] = _middle(runs[None], statistic)[0]
        if runs.size > 1:
            drawn = runs[rng.integers(runs.size, size=(_RESAMPLES, runs.size))]
            low[place], high[place] = np.percentile(_middle(drawn, statistic), [2.5, 97.5])
    return line, low, high


def _middle(samples: Array, statistic: str) -> Array:
    """Returns mean or interquartile mean of each row of `[S, R]`."""
    cut = samples.shape[1] // 4 if statistic == "iqm" else 0
    ordered = np.sort(samples, axis=1)
    means: Array = ordered[:, cut : samples.shape[1] - cut].mean(axis=1)
    return means


def _draw_group(axes: Axes, places: Array, values: Array, label: str, statistic: str) -> None:
    line, low, high = summarize_runs(values, statistic)
    # Matplotlib leaves lines out of the legend whose label begins with an underscore.
    (drawn,) = axes.plot(places, line, label=f" {label}" if label.startswith("_") else label)
    if np.isfinite(low).any():
        axes.fill_between(places, low, high, alpha=0.2, color=drawn.get_color(), linewidth=0)


def _figure() -> tuple[Figure, Axes]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError('plots need Matplotlib: pip install "rlframe[plot]"') from error
    figure = Figure(figsize=(8, 5))
    FigureCanvasAgg(figure)  # no window, whatever the machine has
    return figure, figure.subplots()


def _thinned(curve: Curve, interval: int) -> Curve:
    if interval < 1:
        raise ConfigError(f"history_interval: got {interval}, wanted an integer >= 1")
    columns = {name: values[::interval] for name, values in curve.columns.items()}
    return Curve(curve.path, columns, curve.algorithm, curve.env, curve.config, curve.params)
