"""What many games say of their seats: rates of wins with intervals, lengths, and a curve as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.agents.decentralized.games import Game

#: How files of curves may end.
PICTURES = (".png", ".svg", ".pdf")
#: Standard deviations on either side that hold 95 % of a normal distribution.
_Z_95 = 1.959964


def wilson_interval(count: int, games: int) -> tuple[float, float]:
    """Returns the 95 % interval of a rate (Wilson 1927), which is right for rates near 0 and 1, too.

    Args:
        count: Games that ended so.
        games: All games, at least 1.
    """
    rate, square = count / games, _Z_95**2
    middle = (rate + square / (2 * games)) / (1 + square / games)
    half = _Z_95 / (1 + square / games) * math.sqrt(rate * (1 - rate) / games + square / (4 * games**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def seat_rates(games: Sequence[Game], seats: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """Returns, by seat, `win`, `draw` and `loss`, each `{"rate", "low", "high"}`, and the mean return."""
    made: dict[Any, dict[str, Any]] = {}
    for seat in seats:
        counts = {
            "win": sum(seat in game.winners for game in games),
            "draw": sum(not game.winners for game in games),
        }
        counts["loss"] = len(games) - counts["win"] - counts["draw"]
        made[seat] = {name: _rate(count, len(games)) for name, count in counts.items()}
        made[seat]["mean_return"] = sum(game.returns[seat] for game in games) / len(games)
    return made


def _rate(count: int, games: int) -> dict[str, float]:
    low, high = wilson_interval(count, games)
    return {"rate": count / games, "low": low, "high": high}


def count_wins(games: Sequence[Game]) -> dict[Any, int]:
    """Returns how many games each winner won; None for draws, a tuple for several who won together."""
    counts: dict[Any, int] = {}
    for game in games:
        winner = None if not game.winners else game.winners[0] if len(game.winners) == 1 else game.winners
        counts[winner] = counts.get(winner, 0) + 1
    return counts


def table(rates: Mapping[Any, Mapping[str, Any]]) -> str:
    """Returns the rates as lines of text, one for each seat."""
    lines = []
    for seat, of_seat in rates.items():
        parts = [f"{name} {100 * of_seat[name]['rate']:.1f} % [{100 * of_seat[name]['low']:.1f}, "
                 f"{100 * of_seat[name]['high']:.1f}]" for name in ("win", "draw", "loss")]  # fmt: skip
        lines.append(f"{seat}: {', '.join(parts)}, mean return {of_seat['mean_return']:+.2f}")
    return "\n".join(lines)


def plot_stats(episodes: Sequence[int], rewards: Sequence[float], path: str | Path = "plots/results.png") -> str:
    """Draws the metric of tests over episodes into a PNG, SVG or PDF file; returns its path.

    Args:
        episodes: Episodes before each test.
        rewards: The tests' metrics.
        path: Where the file goes; folders are made.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(list(episodes), list(rewards), marker=".")
    axes.set(xlabel="episodes", ylabel="test metric")
    axes.grid(alpha=0.3)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return str(path)


__all__ = ["PICTURES", "count_wins", "plot_stats", "seat_rates", "table", "wilson_interval"]
