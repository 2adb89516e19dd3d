"""`rlframe plot`, `rlframe compare`, `rlframe report`: what runs have in them."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.cli.trust import Trust
from rlframe.utils.errors import ConfigError, EnvError

if TYPE_CHECKING:
    from rlframe.report.comparing import Comparison

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN…", help="Run directories, directories of runs, or history files.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def plot(  # noqa: PLR0913, PLR0917  one parameter for each option
    runs: Runs,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png, .svg or .pdf file.")] = Path("plot.png"),
    label: Annotated[list[str] | None, typer.Option(help="Name of a line; once for each, in their order.")] = None,
    value: Annotated[str, typer.Option("--plot", help="mean_reward, best_reward or episode_reward.")] = "mean_reward",
    benchmark: Annotated[str, typer.Option(help="Against what: step or time.")] = "step",
    time_unit: Annotated[str, typer.Option(help="s, min, hour or day.")] = "s",
    history_interval: Annotated[int, typer.Option(min=1, help="Draw every n-th result only.")] = 1,
    statistic: Annotated[str, typer.Option(help="Of several seeds: mean or iqm.")] = "mean",
    debug: Debug = False,
) -> None:
    """Draw learning curves: one line and a 95 % band for runs that differ in their seed only."""
    with reporting(debug):
        from rlframe.report.curves import find_curves
        from rlframe.report.plotting import plot_runs, save

        figure = plot_runs(
            find_curves(runs),
            labels=label or (),
            history_interval=history_interval,
            value=value,
            x=benchmark,
            time_unit=time_unit,
            statistic=statistic,
        )
        save(figure, output)
        sys.stdout.write(f"plot: {output}\n")


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A directory of runs with different seeds.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another, on the same environments.")],
    json_output: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say whether the runs of A are better than those of B, and whether there are enough of them to tell."""
    with reporting(debug):
        from rlframe.report.comparing import compare as compare_runs
        from rlframe.report.curves import find_curves

        compared = compare_runs((str(first), str(second)), find_curves([first]), find_curves([second]))
        if json_output:
            sys.stdout.write(json.dumps(compared.to_dict()) + "\n")
        else:
            _show(compared)


@app.command()
def report(  # noqa: PLR0913, PLR0917  one parameter for each option
    runs: Runs,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
    episodes: Annotated[int, typer.Option(min=0, help="Play this many of each run for the evaluation table.")] = 0,
    video: Annotated[bool, typer.Option("--video", help="Record the first of them for the page.")] = False,
    seed: Annotated[int, typer.Option(help="Of these episodes.")] = 0,
    live: Annotated[bool, typer.Option("--live", help="Serve the page, and keep it current while runs train.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where --live listens; 0 takes a free one.")] = 0,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Make a page about runs: curves, config, plan, evaluation, videos, machine; one file that needs no network."""
    with reporting(debug):
        if live:
            _serve(runs, port)
            return
        from rlframe.report.page import page_data, render_page

        with contextlib.ExitStack() as stack:
            evaluations, videos = _play(runs, episodes, seed, video, stack, trust=trust)
            page = render_page(page_data(runs, evaluations=evaluations, videos=videos))
        try:
            output.write_text(page, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--output: {str(output)!r} cannot be written: {error}") from error
        sys.stdout.write(f"report: {output}\n")


def _show(compared: Comparison) -> None:
    from rlframe.cli.show import print_table

    rows = [
        (name, str(compared.runs[side]), *(_interval(pair[side]) for pair in (compared.means, compared.iqms)))
        for side, name in enumerate(compared.names)
    ]
    print_table(("runs of", "seeds", "mean return, 95 %", "IQM, 95 %"), rows)
    if compared.normalised:
        sys.stdout.write(f"scaled to [0, 1] on each of {', '.join(compared.tasks)}\n")
    sys.stdout.write(f"P({compared.names[0]} > {compared.names[1]}) = {_interval(compared.improvement)}\n")
    sys.stdout.write(f"{compared.verdict}\n")


def _interval(interval: Any) -> str:
    return f"{interval.value:,.2f} [{interval.low:,.2f}, {interval.high:,.2f}]"


def _serve(runs: list[Path], port: int) -> None:
    from rlframe.report.serving import LivePage

    with LivePage(runs, port) as server:
        sys.stdout.write(f"{server.url}  until Ctrl-C\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _play(
    runs: list[Path], episodes: int, seed: int, video: bool, stack: contextlib.ExitStack, *, trust: bool
) -> tuple[dict[Path, Mapping[str, Any]], dict[Path, list[Path]]]:
    """Returns what playing each run gave, and where its videos are while the stack is open."""
    evaluations: dict[Path, Mapping[str, Any]] = {}
    videos: dict[Path, list[Path]] = {}
    if not episodes:
        if video:
            raise ConfigError("--video records an episode that is played: give --episodes as well")
        return evaluations, videos
    from rlframe.cli.evaluating import loaded_trainer, play
    from rlframe.cli.play_options import PlayOptions
    from rlframe.cli.show import summarize
    from rlframe.report.curves import find_curves

    for run in [curve.path for curve in find_curves(runs) if curve.path.is_dir()]:
        with loaded_trainer(run, trust=trust) as (trainer, _, _checkpoint):
            played = list(play(trainer, episodes, PlayOptions(seed)))
            evaluations[run] = {"episodes": len(played), **summarize(played)}
            if video:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                try:
                    list(play(trainer, 1, PlayOptions(seed, video_dir=folder)))
                except EnvError as error:
                    sys.stderr.write(f"warning: no video of {run}: {error}\n")
                videos[run] = sorted(folder.glob("*.mp4"))
    return evaluations, videos
