"""What can be said of finished and running trainings: histories, statistics over seeds, plots, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.utils.lazy import import_name

if TYPE_CHECKING:
    from rlframe.report.plotting import plot_history

_NAMES = {"plot_history": "rlframe.report.plotting"}  # takes a third of a second to import

__all__ = ["plot_history"]


def __getattr__(name: str) -> Any:
    return import_name(__name__, _NAMES, name)
