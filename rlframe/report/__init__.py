"""What can be said of finished and running trainings: histories, statistics over seeds, plots, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.report.plotting import plot_history

__all__ = ["plot_history"]


def __getattr__(name: str) -> Any:
    if name == "plot_history":  # found when it is asked for: it takes a third of a second to import
        from rlframe.report.plotting import plot_history

        return plot_history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
