"""What a search shows while it runs: a line for each finished trial, and on a terminal a bar and an ETA."""

from __future__ import annotations

import datetime
import sys
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlframe.cli.live import duration
from rlframe.cli.tuning import PARTS, finished

_UNKNOWN = "–"


class SearchView:
    """Shows how far a search is.

    Args:
        n_trials: Finished trials that it ends with.
        n_jobs: Trials at the same time.
        console: Where it is drawn; None is standard output.
    """

    def __init__(self, n_trials: int, n_jobs: int, console: Console | None = None) -> None:
        self._n_trials, self._n_jobs = n_trials, n_jobs
        self._console = Console() if console is None else console
        self._picture: RenderableType = Text("")
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=lambda: self._picture, refresh_per_second=2)

    def __enter__(self) -> SearchView:
        """Begins to draw."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leaves the last picture standing."""
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Writes a line, above the bar if there is one."""
        if self._live is not None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def watch(self, study: Any) -> None:
        """Takes the state of the study; it is drawn with the next frame."""
        if self._live is not None:
            self._picture = self.render(study, datetime.datetime.now())

    def render(self, study: Any, now: datetime.datetime) -> RenderableType:
        """Returns the picture of a study: trials that have ended of those wanted, time left, and those that run."""
        done = finished(study)
        running = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]
        seconds = seconds_left(done, running, self._n_trials, self._n_jobs, now)
        line = Table.grid(padding=(0, 1))
        eta = _UNKNOWN if seconds is None else duration(seconds)
        line.add_row(
            f"{len(done)} of {self._n_trials} trials",
            ProgressBar(total=self._n_trials, completed=min(len(done), self._n_trials), width=30),
            f"eta {eta}{_best(study)}",
        )
        return Group(line, *(Text(_running(trial), style="dim") for trial in running))


def seconds_left(
    done: list[Any], running: list[Any], n_trials: int, n_jobs: int, now: datetime.datetime
) -> float | None:
    """Returns how long trials that have not ended will take, by those that were carried through; None before the first.

    Args:
        done: Trials that have ended.
        running: Trials under way.
        n_trials: Trials wanted.
        n_jobs: Trials at the same time.
        now: In local time, as Optuna's.
    """
    taken: list[float] = [trial.duration.total_seconds() for trial in done if trial.duration is not None]
    if not taken:
        return None
    mean = sum(taken) / len(taken)
    spent: float = sum(
        min(mean, (now - trial.datetime_start).total_seconds()) for trial in running if trial.datetime_start
    )
    return max(0.0, mean * max(0, n_trials - len(done)) - spent) / max(1, n_jobs)


def _best(study: Any) -> str:
    values = [trial.value for trial in finished(study) if trial.state.name == "COMPLETE"]
    return f"  best return {max(values):,.1f}" if values else ""


def _running(trial: Any) -> str:
    """Returns a trial under way in a line: how much of its steps it has had, and its mean return."""
    values = trial.intermediate_values
    if not values:
        return f"trial {trial.number} has begun"
    part = max(values)
    return f"trial {trial.number}  {part / PARTS:.0%} of its steps  return {values[part]:,.1f}"
