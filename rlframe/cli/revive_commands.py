"""`rlframe revive`: decisions from logs alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.utils.errors import ConfigError

revive = typer.Typer(
    help="Learn an environment from logs, along a graph that you draw, and a policy in it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(revive, name="revive")


@revive.command()
def init(
    table: Annotated[Path, typer.Argument(metavar="DATA", help="A .csv or .parquet file, one row per step.")],
    action: Annotated[
        list[str] | None, typer.Option(help="A column that was decided; once for each. [named action*, control*]")
    ] = None,
    external: Annotated[
        list[str] | None,
        typer.Option(help="A column that nothing here changes; once for each. [constant within trajectories]"),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The graph file. [graph.yaml]")] = None,
    debug: Debug = False,
) -> None:
    """Draft the graph file from a table of logs."""
    with reporting(debug):
        from rlframe.revive.drafting import draft_graph

        path = output or Path("graph.yaml")
        if path.exists():
            raise ConfigError(f"--output: {str(path)!r} exists; wanted a new file")
        path.write_text(draft_graph(table, action or (), external or ()), encoding="utf-8")
        sys.stdout.write(f"graph: {path}\n")


@revive.command()
def score(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which example: refrigerator, pendulum, ...")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `revive train`, or a directory with a policy.")],
    trajectories: Annotated[int, typer.Option(min=1, help="How many it is tried on.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the process.")] = 1000,
    debug: Debug = False,
) -> None:
    """Try a policy on the simulated process that an example's data are of."""
    with reporting(debug):
        from rlframe.revive.examples import simulate, true_score
        from rlframe.revive.policy_model import PolicyModel

        policy = PolicyModel.load(run / "policy" if (run / "policy").is_dir() else run)
        sys.stdout.write(f"policy: {true_score(name, policy.infer, trajectories, seed):.4g}\n")
        sys.stdout.write(f"logged controller: {simulate(name, trajectories, seed)[1]:.4g}\n")


@revive.command()
def example(
    name: Annotated[str, typer.Argument(metavar="NAME", help="refrigerator, pendulum, mass-spring or mixed.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files are written.")],
    trajectories: Annotated[int | None, typer.Option(min=1, help="How many. [as many as published data have]")] = None,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 0,
    debug: Debug = False,
) -> None:
    """Write data, graph file and reward file of a simulated process."""
    with reporting(debug):
        from rlframe.revive.examples import write_example

        paths, score = write_example(name, folder, trajectories, seed)
        for key, path in paths.items():
            sys.stdout.write(f"{key}: {path}\n")
        sys.stdout.write(f"true score of the logged controller: {score:.4g}\n")
        sys.stdout.write(
            f"next: rlframe revive train -df {paths['data']} -cf {paths['graph']} -rf {paths['reward']} "
            "-vm once -pm once\n"
        )
