"""One thread, alternating rounds, medians: what all benchmarks share."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import statistics
from collections.abc import Callable


def alternate(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Returns each side's figures from rounds in turn, A B A B ..., after one round that does not count."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(rounds + 1):
        for name, run in sides.items():
            figure = run()
            if round_number:
                figures[name].append(figure)
    return figures


def report(title: str, figures: dict[str, list[float]], unit: str) -> None:
    """Prints each side's median and the ratio of the first to the second, pair by pair."""
    names = list(figures)
    print(title)
    for name in names:
        print(f"  {name:<42} {statistics.median(figures[name]):>12,.0f} {unit}")
    if len(names) > 1:
        ratios = [a / b for a, b in zip(figures[names[0]], figures[names[1]], strict=True)]
        best = max(figures[names[0]]) / max(figures[names[1]])
        spread = f"min {min(ratios):.2f}, max {max(ratios):.2f}; best round against best round {best:.2f}"
        print(f"  ratio: median {statistics.median(ratios):.2f} ({spread})")
