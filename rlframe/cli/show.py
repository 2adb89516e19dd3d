"""What there is: the algorithms, their config keys, the result of an evaluation."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from rlframe.cli.evaluating import PlayedEpisode


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


def show_episodes(episodes: Sequence[PlayedEpisode], checkpoint: Path) -> None:
    """Prints played episodes and their statistics."""
    print_table(
        ("episode", "return", "length", "ended"),
        [(str(i), f"{e.total:,.2f}", f"{e.length:,}", e.ended) for i, e in enumerate(episodes, start=1)],
    )
    returns = [episode.total for episode in episodes]
    lengths = [float(episode.length) for episode in episodes]
    sys.stdout.write(
        f"return {spread(returns)} (min {min(returns):,.2f}, max {max(returns):,.2f})  length {spread(lengths)}  "
        f"{len(episodes)} episodes  {checkpoint}\n"
    )


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
