"""`rlframe doctor`: what most likely keeps an environment or a run from learning."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.cli.trust import Trust

if TYPE_CHECKING:
    from rlframe.doctor import Finding

#: Exit code where something was found; 2 is a mistake in the command line.
_FOUND = 1


@app.command()
def doctor(
    what: Annotated[str, typer.Argument(metavar="ENV|RUN", help="An environment's name, or a run directory.")],
    steps: Annotated[int, typer.Option(min=20, help="Random steps in an environment.")] = 2000,
    results_only: Annotated[
        bool, typer.Option("--results-only", help="Of a run: look at results and config, load no checkpoint.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the findings as JSON.")] = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Say what most likely keeps an environment or a run from learning, and which key to change.

    Exit codes: 0, nothing was found; 1, something was; 2, it could not be looked at.
    """
    with reporting(debug):
        found = _of_run(Path(what), steps, results_only, trust) if Path(what).is_dir() else _of_env(what, steps)
        if as_json:
            sys.stdout.write(json.dumps([asdict(finding) for finding in found], indent=2) + "\n")
        else:
            for number, finding in enumerate(found, 1):
                sys.stdout.write(f"{number}. {finding.evidence}\n   change: {finding.change} ({finding.page})\n")
            sys.stdout.write("" if found else "nothing was found\n")
    raise typer.Exit(_FOUND if found else 0)


def _of_run(path: Path, steps: int, results_only: bool, trust: bool) -> list[Finding]:
    """Returns the findings of a run; without a checkpoint that can be loaded, those of its results alone."""
    from rlframe.doctor import examine_results, examine_trainer
    from rlframe.report.curves import read_curve
    from rlframe.trainer.loggers import read_results
    from rlframe.utils.errors import CheckpointError

    params, results = read_curve(path).params, read_results(path)
    if results_only:
        return examine_results(results, params)
    from rlframe.cli.evaluating import loaded_trainer
    from rlframe.cli.training import warn

    try:
        with loaded_trainer(path, trust=trust) as (trainer, _, _):
            return examine_trainer(trainer, results, num_steps=steps, config=params)
    except CheckpointError as error:
        warn(f"networks and environment are not looked at, only results and config: {error}")
        return examine_results(results, params)


def _of_env(name: str, steps: int) -> list[Finding]:
    from rlframe.doctor import examine_env
    from rlframe.env.env_context import EnvContext
    from rlframe.env.registry import resolve_env

    env = resolve_env(name)[1](EnvContext({}))
    try:
        return examine_env(env, num_steps=steps)
    finally:
        env.close()
