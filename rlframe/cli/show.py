"""What there is: the algorithms, their config keys, the result of an evaluation."""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from rlframe.cli.evaluating import PlayedEpisode
    from rlframe.cli.run_directory import RunSpec
    from rlframe.config.reference import ReferenceRow


def show_algorithms() -> None:
    """Prints the algorithms and where they are found."""
    from rlframe.agents.registry import ALGORITHMS

    rows = [(name, entry.trainer) for name, entry in sorted(ALGORITHMS.items())]
    print_table(("algorithm", "trainer"), rows)


def show_config(algorithm: str, search: str | None = None) -> None:
    """Prints every config key of an algorithm, on a terminal those that this version honours.

    Args:
        algorithm: Its name.
        search: Only keys with this word in their name or meaning.

    Raises:
        ConfigError: If there is no such algorithm.
    """
    from rlframe.cli.algorithms import find_trainer_class
    from rlframe.config.reference import reference

    declaration = find_trainer_class(algorithm)._config_class
    left_out = {row.key for row in reference(declaration) if row.note} | declaration.deprecated_keys()
    entries = [
        Entry(row.key, (row.key,), row.default, row.type, row.unit, _meaning(row), row.key not in left_out)
        for row in reference(declaration)
        if search is None or search.lower() in f"{row.key} {row.meaning}".lower()
    ]
    sys.stdout.write(entries_text("key", entries))
    if not entries:
        sys.stderr.write(f"no key of {algorithm} has {search!r} in its name or meaning\n")


def flags_text(algorithm: str) -> str:
    """Returns the config keys of an algorithm as flags: default, type, unit, meaning.

    Args:
        algorithm: Its name.

    Raises:
        ConfigError: If there is no such algorithm.
    """
    from rlframe.cli.algorithms import canonical_name, find_trainer_class
    from rlframe.cli.flags import flag_of
    from rlframe.config.reference import reference

    declaration, entries = find_trainer_class(algorithm)._config_class, []
    for row in reference(declaration):
        # Sections are not typed whole, and what is refused or has another name is no choice.
        if row.default != "{...}" and not row.note and row.key not in declaration.deprecated_keys():
            flags = tuple(map(flag_of, filter(None, (row.key, row.alias))))
            entries.append(Entry(row.key, flags, row.default, row.type, row.unit, row.meaning))
    return f"Config keys of {canonical_name(algorithm)}:\n{entries_text('flag', entries)}"


@dataclass(frozen=True)
class Entry:
    """What is shown of a config key.

    Attributes:
        key: Dotted key.
        names: How it is typed.
        default: Its default.
        type: Type, bounds and choices in words.
        unit: Unit of the value, or "".
        meaning: One sentence.
        honoured: Whether this version honours more than the default, and the key is no other's old name.
    """

    key: str
    names: tuple[str, ...]
    default: str
    type: str
    unit: str
    meaning: str
    honoured: bool = True


def entries_text(heading: str, entries: Sequence[Entry]) -> str:
    """Returns config keys for a terminal, in groups and with whole names; tab-separated lines for programs."""
    console = Console()
    if not console.is_terminal:
        rows = [(", ".join(e.names), e.default, e.type, e.unit, e.meaning) for e in entries]
        return _tabbed([(heading, "default", "type", "unit", "meaning"), *rows])
    parts: list[str] = []
    for group, members in _grouped([entry for entry in entries if entry.honoured]).items():
        parts += [f"\n{group}:", *(_entry_text(entry, min(console.width, _WIDEST)) for entry in members)]
    hidden = sum(not entry.honoured for entry in entries)
    if hidden:
        parts.append(
            f"\n{hidden} keys are not shown: old names, and those that take their default only; `| cat` has all"
        )
    return "\n".join(parts) + "\n"


_WIDEST = 100
_OWN, _COMMON = "The algorithm's own", "Common to all algorithms"


def _grouped(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Returns the algorithm's own keys, the common ones, and those of each section, in this order."""
    from rlframe.config.common import CommonConfig

    groups: dict[str, list[Entry]] = {_OWN: [], _COMMON: []}
    for entry in entries:
        section, dot, _ = entry.key.partition(".")
        group = section if dot else _COMMON if entry.key in CommonConfig.options() else _OWN
        groups.setdefault(group, []).append(entry)
    return {group: members for group, members in groups.items() if members}


def _entry_text(entry: Entry, width: int) -> str:
    """Returns the name and default of a key, and below them its meaning, type and unit."""
    head, default = f"  {', '.join(entry.names)}", f"[{entry.default}]"
    told = f"{entry.meaning} ({entry.type}{f', {entry.unit}' if entry.unit else ''})"
    if len(head) + len(default) + 2 <= width:
        head = f"{head}  {default}"
    else:
        told = f"{default} {told}"
    return f"{head}\n{textwrap.fill(told, width, initial_indent=_BELOW, subsequent_indent=_BELOW)}"


_BELOW = " " * 6


def _meaning(row: ReferenceRow) -> str:
    meaning = f"{row.meaning} ({row.source})" if row.source else row.meaning
    return meaning + (f" Not available in this version: {row.note}" if row.note else "")


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
        sys.stdout.write(_tabbed([headings, *rows]))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    console.print(table)


def _tabbed(rows: Iterable[Sequence[str]]) -> str:
    return "".join("\t".join(cell.replace("\t", " ") for cell in row) + "\n" for row in rows)


def _plain(cell: str) -> str:
    """Returns a cell in which brackets are no markup."""
    return cell.replace("[", r"\[")
