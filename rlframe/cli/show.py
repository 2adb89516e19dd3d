"""What there is: the algorithms, their config keys, the result of an evaluation."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from rlframe.cli.evaluating import PlayedEpisode
    from rlframe.cli.run_directory import RunSpec


def show_algorithms() -> None:
    """Prints the algorithms and where they are found."""
    from rlframe.agents.registry import ALGORITHMS

    rows = [(name, entry.trainer) for name, entry in sorted(ALGORITHMS.items())]
    print_table(("algorithm", "trainer"), rows)


def show_config(algorithm: str, search: str | None = None) -> None:
    """Prints every config key of an algorithm.

    Args:
        algorithm: Its name.
        search: Only keys with this word in their name or meaning.

    Raises:
        ConfigError: If there is no such algorithm.
    """
    from rlframe.cli.algorithms import find_trainer_class

    rows = []
    for row in find_trainer_class(algorithm)._config_class.reference():
        if search is None or search.lower() in f"{row.key} {row.meaning}".lower():
            meaning = f"{row.meaning} ({row.source})" if row.source else row.meaning
            meaning += f" Not available in this version: {row.note}" if row.note else ""
            rows.append((row.key, row.default, row.type, row.unit, meaning))
    print_table(("key", "default", "type", "unit", "meaning"), rows)
    if not rows:
        sys.stderr.write(f"no key of {algorithm} has {search!r} in its name or meaning\n")


def show_flags(algorithm: str) -> None:
    """Prints the config keys of an algorithm as flags: default, type, unit, meaning.

    Args:
        algorithm: Its name.

    Raises:
        ConfigError: If there is no such algorithm.
    """
    from rlframe.cli.algorithms import canonical_name, find_trainer_class
    from rlframe.cli.flags import flag_of

    rows = []
    for row in find_trainer_class(algorithm)._config_class.reference():
        if row.default != "{...}" and not row.note:  # sections are not typed whole, and what is refused is no choice
            names = [row.key, row.alias] if row.alias else [row.key]
            flags = ", ".join(map(flag_of, names))
            rows.append((flags, row.default, row.type, row.unit, row.meaning))
    sys.stdout.write(f"Config keys of {canonical_name(algorithm)}:\n")
    print_table(("flag", "default", "type", "unit", "meaning"), rows)


def show_presets() -> None:
    """Prints the tuned presets and what they reached."""
    from rlframe.agents.presets import presets

    rows = [(preset.algorithm, preset.env, preset.describe()) for preset in presets()]
    print_table(("algorithm", "environment", "reached"), rows)


def show_episodes(episodes: Sequence[PlayedEpisode], checkpoint: Path) -> None:
    """Prints played episodes and their statistics."""
    print_table(
        ("episode", "return", "length", "ended"),
        [(str(i), f"{e.total:,.2f}", f"{e.length:,}", e.ended) for i, e in enumerate(episodes, start=1)],
    )
    summary = summarize(episodes)
    returns, lengths = [e.total for e in episodes], [float(e.length) for e in episodes]
    sys.stdout.write(
        f"IQM {summary['iqm']:,.2f}  95 % interval of the mean {summary['low']:,.2f} to {summary['high']:,.2f}\n"
        f"return {spread(returns)} (min {min(returns):,.2f}, max {max(returns):,.2f})  length {spread(lengths)}  "
        f"{len(episodes)} episodes  {checkpoint}\n"
    )


def show_episodes_as_json(episodes: Sequence[PlayedEpisode], checkpoint: Path, spec: RunSpec, seed: int | None) -> None:
    """Prints one JSON object: statistics, each episode's return and length, and what was played."""
    lines = {
        "algorithm": spec.algorithm,
        "env": spec.env,
        "checkpoint": str(checkpoint),
        "seed": seed,
        "episodes": len(episodes),
        **summarize(episodes),
        "returns": [episode.total for episode in episodes],
        "lengths": [episode.length for episode in episodes],
        "ended": [episode.ended for episode in episodes],
    }
    sys.stdout.write(json.dumps(lines) + "\n")


def summarize(episodes: Sequence[PlayedEpisode]) -> dict[str, float]:
    """Returns mean, interquartile mean, standard deviation, and a 95 % bootstrap interval of the mean return."""
    import numpy as np

    from rlframe.report.statistics import iqm, mean, stratified_bootstrap

    returns = np.array([episode.total for episode in episodes], np.float64)
    interval = stratified_bootstrap([returns], mean)
    return {
        "mean": interval.value,
        "iqm": iqm([returns]),
        "std": float(returns.std()),
        "low": interval.low,
        "high": interval.high,
    }


def spread(values: Sequence[float]) -> str:
    """Returns "mean ± standard deviation"."""
    return f"{statistics.fmean(values):,.2f} ± {statistics.pstdev(values):,.2f}"


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table on a terminal, and lines of tab-separated cells for programs."""
    console = Console()
    if not console.is_terminal:
        for row in (headings, *rows):
            sys.stdout.write("\t".join(cell.replace("\t", " ") for cell in row) + "\n")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    console.print(table)


def _plain(cell: str) -> str:
    """Returns a cell in which brackets are no markup."""
    return cell.replace("[", r"\[")
