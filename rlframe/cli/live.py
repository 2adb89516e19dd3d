"""What a training run shows: a live table on a terminal, a line per iteration elsewhere."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlframe.cli.stop import Progress, StopCriterion

_BLOCKS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "–"


@dataclass(frozen=True)
class Row:
    """What is shown of one result.

    Attributes:
        iteration: Calls of `train()` so far.
        env_steps: Environment steps so far.
        returns: Mean, min and max return of the last episodes; NaN before the first has ended.
        length: Mean length of the last episodes, in env steps.
        steps_per_s: Env steps per second in this iteration.
        updates_per_s: Train batches learned from per second in this iteration.
        elapsed_s: Seconds of training.
    """

    iteration: int
    env_steps: int
    returns: tuple[float, float, float]
    length: float
    steps_per_s: float
    updates_per_s: float
    elapsed_s: float


@dataclass(frozen=True)
class Watched:
    """The run that a view shows.

    Attributes:
        past: Results from before it was resumed.
        env_steps: Returns how many have been sampled by now, also within an iteration; None where nobody knows.
    """

    past: Sequence[Mapping[str, Any]] = ()
    env_steps: Callable[[], int | None] = lambda: None


class Rates:
    """Makes rows of results, with rates from the difference to the result before.

    Args:
        train_batch_size: Rows of one update.
        env_steps: Env steps before the first result, for a run that goes on.
        trained: Rows trained before the first result.
    """

    def __init__(self, train_batch_size: int, env_steps: int = 0, trained: int = 0) -> None:
        self._batch = max(1, train_batch_size)
        self._env_steps = env_steps
        self._trained = trained

    def row(self, result: Mapping[str, Any]) -> Row:
        """Returns what is shown of a result."""
        env_steps = int(result["timesteps_total"] or 0)
        trained = int((result.get("info") or {}).get("num_steps_trained", 0))
        seconds = max(result["time_this_iter_s"], 1e-9)
        row = Row(
            iteration=result["training_iteration"],
            env_steps=env_steps,
            returns=(
                _float(result.get("episode_reward_mean")),
                _float(result.get("episode_reward_min")),
                _float(result.get("episode_reward_max")),
            ),
            length=_float(result.get("episode_len_mean")),
            steps_per_s=(env_steps - self._env_steps) / seconds,
            updates_per_s=(trained - self._trained) / self._batch / seconds,
            elapsed_s=result["time_total_s"],
        )
        self._env_steps, self._trained = env_steps, trained
        return row


class PlainView:
    """One line per iteration, for logs and pipes.

    Args:
        title: What is trained.
        criterion: What ends the run.
    """

    def __init__(self, title: str, criterion: StopCriterion) -> None:
        self._title = title
        self._criterion = criterion

    def __enter__(self) -> PlainView:
        """Says what begins."""
        self.say(f"{self._title}; {self._criterion.describe()}")
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Nothing to undo."""

    def update(self, row: Row, result: Mapping[str, Any]) -> None:
        """Writes the line of a result."""
        mean, low, high = (_decimal(value) for value in row.returns)
        policies = _policies(result)
        self.say(
            f"iter {row.iteration}  steps {row.env_steps:,}  return {mean} (min {low}, max {high})  "
            f"length {_decimal(row.length)}  {_rate(row.steps_per_s)} steps/s  {_rate(row.updates_per_s)} updates/s  "
            f"{duration(row.elapsed_s)}{f'  {policies}' if policies else ''}"
        )

    def say(self, text: str) -> None:
        """Writes a line."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def notice(self, text: str) -> None:
        """Says something from a signal handler, where buffered output must not be used."""
        os.write(2, (text + "\n").encode())


class QuietView(PlainView):
    """Nothing but notices: for `--quiet`.

    Args:
        title: What is trained.
        criterion: What ends the run.
        watched: The run.
    """

    def __init__(self, title: str, criterion: StopCriterion, watched: Watched) -> None:
        del watched
        super().__init__(title, criterion)

    def __enter__(self) -> QuietView:
        """Says nothing."""
        return self

    def update(self, row: Row, result: Mapping[str, Any]) -> None:
        """Shows nothing of a result."""

    def say(self, text: str) -> None:
        """Writes nothing."""


class LiveView:
    """A table that is redrawn, what the learner says, a bar towards the stop criterion, and the curve of the return.

    Args:
        title: What is trained.
        criterion: What ends the run.
        console: Where it is drawn.
        watched: The run.
    """

    def __init__(self, title: str, criterion: StopCriterion, console: Console, watched: Watched = Watched()) -> None:
        self._title = title
        self._criterion = criterion
        self._console = console
        self._watched = watched
        self._progress = Progress(criterion)
        self._returns: list[float] = []
        self._policies = self._learning = ""
        self._best = (-math.inf, 0)
        for result in watched.past:
            self._note(result)
        self._row: Row | None = None
        self._steps_before = int(watched.past[-1].get("timesteps_total") or 0) if watched.past else 0
        self._iteration_steps = 0
        self._row_at = time.monotonic()
        self._notice = ""
        self._over = False
        # Two frames a second: each costs some milliseconds of the process that trains.
        self._live = Live(
            console=console, get_renderable=self.render, refresh_per_second=2, vertical_overflow="visible"
        )

    def __enter__(self) -> LiveView:
        """Begins to draw."""
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Draws the last state and leaves it standing."""
        self._over = True
        self._live.stop()

    def update(self, row: Row, result: Mapping[str, Any]) -> None:
        """Takes a result; it is drawn with the next frame."""
        self._note(result)
        self._policies, self._learning = _policies(result), _learning(result)
        self._iteration_steps, self._steps_before = row.env_steps - self._steps_before, row.env_steps
        self._row, self._row_at = row, time.monotonic()

    def _note(self, result: Mapping[str, Any]) -> None:
        """Takes what progress and curve need of a result."""
        self._progress.update(result)
        mean = _float(result.get("episode_reward_mean"))
        if math.isfinite(mean):
            self._returns.append(mean)
            self._best = max(self._best, (mean, -int(result.get("training_iteration") or 0)))

    def say(self, text: str) -> None:
        """Writes a line above the table."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def notice(self, text: str) -> None:
        """Shows a line below the table; safe in a signal handler."""
        self._notice = text

    def render(self) -> RenderableType:
        """Returns the picture as it is now."""
        parts: list[RenderableType] = [
            Text.assemble((self._title, "bold"), f"  {self._criterion.describe()}", overflow="fold")
        ]
        if self._row is not None:
            parts.append(self._table(self._row))
        best, iteration = self._best
        has_best = self._row is not None and bool(self._returns)
        of_best = f"best return {_decimal(best)} in iteration {-iteration}" if has_best else ""
        if facts := "  ".join(filter(None, (of_best, self._learning))):
            parts.append(Text(facts, style="dim"))
        if self._policies:
            parts.append(Text(self._policies, style="dim"))
        parts += [*self._bar(), *self._curve()]
        if not self._over:
            parts.append(self._iteration())
        if self._notice:
            parts.append(Text(self._notice, style="yellow"))
        return Group(*parts)

    def _table(self, row: Row) -> Table:
        eta = self._progress.eta_s()
        since = time.monotonic() - self._row_at
        cells = {
            "iteration": str(row.iteration),
            "env steps": f"{row.env_steps:,}",
            "return": _decimal(row.returns[0]),
            "min": _decimal(row.returns[1]),
            "max": _decimal(row.returns[2]),
            "length": _decimal(row.length),
            "steps/s": _rate(row.steps_per_s),
            "updates/s": _rate(row.updates_per_s),
            "elapsed": duration(row.elapsed_s + since),
            "eta": _UNKNOWN if eta is None else duration(max(0.0, eta - since)),
        }
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in cells:
            table.add_column(heading, justify="right", header_style="dim", no_wrap=True)
        table.add_row(*cells.values())
        return table

    def _iteration(self) -> RenderableType:
        """Returns what moves within an iteration: a bar of the env steps that the one before had, then of their kind.

        It runs back and forth while nothing is sampled, as when an algorithm learns from what it has.
        """
        number = 1 + (self._watched.past[-1]["training_iteration"] if self._watched.past else 0)
        number = number if self._row is None else self._row.iteration + 1
        steps = max(0, (self._watched.env_steps() or 0) - self._steps_before)
        moves = 0 < steps < self._iteration_steps
        bar = ProgressBar(
            total=self._iteration_steps or None, completed=steps, width=20, pulse=not moves, style="dim",
            complete_style="green",
        )  # fmt: skip
        line = Table.grid(padding=(0, 1))
        line.add_row(Text(f"iteration {number}", style="dim"), bar, Text(f"{steps:,} env steps", style="dim"))
        return line

    def _bar(self) -> list[RenderableType]:
        fraction = self._progress.fraction(self._watched.env_steps())
        if fraction is None:
            return []
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(total=1.0, completed=fraction, width=min(60, self._width())), f"{fraction:.0%}")
        return [line]

    def _curve(self) -> list[RenderableType]:
        if len(self._returns) < 2:
            return []
        curve = sparkline(self._returns, min(60, self._width()))
        return [
            Text.assemble((curve, "cyan"), f"  return {_decimal(self._returns[0])} to {_decimal(self._returns[-1])}")
        ]

    def _width(self) -> int:
        return max(10, self._console.width - 40)


def make_view(title: str, criterion: StopCriterion, watched: Watched = Watched()) -> PlainView | LiveView:
    """Returns the live view where standard output is a terminal that can draw it, else the plain one."""
    console = Console()
    blocks = _can_encode(console.encoding)
    live = console.is_terminal and blocks
    return LiveView(title, criterion, console, watched) if live else PlainView(title, criterion)


@contextlib.contextmanager
def starting(workers: int) -> Iterator[None]:
    """Says that something is being built, which takes seconds without workers and half a minute with them.

    Args:
        workers: Remote workers that are started.
    """
    text = f"starting {workers} worker{'s' if workers != 1 else ''}" if workers else "starting"
    console = Console()
    if console.is_terminal:
        with console.status(text):
            yield
        return
    if workers:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    yield


def sparkline(values: Sequence[float], width: int) -> str:
    """Returns the curve of values as a line of blocks, lowest to highest.

    Args:
        values: Finite numbers, oldest first.
        width: Most characters of the line; longer curves are averaged in pieces.
    """
    if not values:
        return ""
    columns = min(width, len(values))
    edges = [index * len(values) // columns for index in range(columns + 1)]
    pieces = [values[start:end] for start, end in itertools.pairwise(edges)]
    means = [sum(piece) / len(piece) for piece in pieces]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, int((mean - low) / span * len(_BLOCKS)))] for mean in means)


def duration(seconds: float) -> str:
    """Returns seconds as people write them: 45 s, 3:05 min, 2:03:20 h."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def _policies(result: Mapping[str, Any]) -> str:
    """Returns each policy's mean return, where there are several: of a zero-sum game the sum says nothing."""
    means = result.get("policy_reward_mean") or {}
    return ", ".join(f"{name} {_decimal(_float(mean))}" for name, mean in means.items()) if len(means) > 1 else ""


#: What the learner says that tells most, as far as the algorithm has it.
_TOLD = (
    "total_loss", "policy_loss", "actor_loss", "critic_loss", "vf_loss", "entropy", "policy_entropy", "kl", "mean_q",
    "alpha_value", "cur_epsilon",
)  # fmt: skip
_MOST_TOLD = 5


def _learning(result: Mapping[str, Any]) -> str:
    """Returns losses, entropy, epsilon and the like of the policy, where there is one: `vf_loss 0.31  entropy 0.66`."""
    info = result.get("info") or {}
    learners = [learner.get("learner_stats") or {} for learner in (info.get("learner") or {}).values()]
    exploring = list((info.get("exploration") or {}).values())
    if len(learners) != 1:
        return ""
    stats = {**learners[0], **(exploring[0] if len(exploring) == 1 else {})}
    told = [name for name in _TOLD if isinstance(stats.get(name), (int, float))]
    kept = [*told[: _MOST_TOLD - 1], *told[_MOST_TOLD - 1 :][-1:]]  # epsilon is the last
    return "  ".join(f"{name.removeprefix('cur_')} {stats[name]:.3g}" for name in kept)


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _decimal(value: float) -> str:
    return f"{value:,.1f}" if math.isfinite(value) else _UNKNOWN


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _can_encode(encoding: str) -> bool:
    try:
        _BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
