"""`rlframe doctor`: what most likely keeps an environment or a run from learning."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlframe.cli.app import Debug, app, reporting

if TYPE_CHECKING:
    from rlframe.doctor import Finding

#: Exit code where something was found; 2 is a mistake in the command line.
_FOUND = 1


@app.command()
def doctor(
    what: Annotated[str, typer.Argument(metavar="ENV|RUN", help="An environment's name, or a run directory.")],
    steps: Annotated[int, typer.Option(min=20, help="Random steps in an environment.")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="Write the findings as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Say what most likely keeps an environment or a run from learning, and which key to change.

    Exit codes: 0, nothing was found; 1, something was.
    """
    with reporting(debug):
        found = _examine(what, steps)
        if as_json:
            sys.stdout.write(json.dumps([asdict(finding) for finding in found], indent=2) + "\n")
        else:
            for number, finding in enumerate(found, 1):
                sys.stdout.write(f"{number}. {finding.evidence}\n   change: {finding.change} ({finding.page})\n")
            sys.stdout.write("" if found else "nothing was found\n")
    raise typer.Exit(_FOUND if found else 0)


def _examine(what: str, steps: int) -> list[Finding]:
    from rlframe.doctor import examine_env, examine_run

    if Path(what).is_dir():
        return examine_run(what)
    from rlframe.env.env_context import EnvContext
    from rlframe.env.registry import resolve_env

    env = resolve_env(what)[1](EnvContext({}))
    try:
        return examine_env(env, num_steps=steps)
    finally:
        env.close()
