"""The command line's commands in one app, and how their mistakes are answered.

Nothing heavy is imported here: `rlframe --help` loads neither Ray nor a learning framework, nor anything that draws.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from rlframe.cli import (
    algorithms,
    data_commands,
    doctor_command,
    export_command,
    lookup_commands,
    migrate_command,
    play_commands,
    report_commands,
    revive_commands,
    revive_runs,
    rollout_command,
    serve_command,
    tournament_command,
    train_command,
    tune_command,
)
from rlframe.cli.app import app
from rlframe.version import __version__

#: What a wrong command line raises; newer releases of typer bring a click of their own, whose classes are others.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

__all__ = [
    "app",
    "data_commands",
    "doctor_command",
    "export_command",
    "lookup_commands",
    "migrate_command",
    "play_commands",
    "report_commands",
    "revive_commands",
    "revive_runs",
    "rollout_command",
    "run",
    "serve_command",
    "tournament_command",
    "train_command",
    "tune_command",
]


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"rlframe {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, watch, play back, tune and compare reinforcement learning algorithms."""


def run() -> int:
    """Carries out the command of this process's arguments, and returns its exit code."""
    algorithms.OWN_PLACES.append(os.getcwd())
    try:
        return int(app(standalone_mode=False) or 0)
    except typer.Abort:
        return 1
    except _USAGE_ERROR as error:
        sys.stderr.write(_one_line(error))
        return 2


def _one_line(error: Any) -> str:
    """Returns what is wrong with a command line, and where to look it up; nothing where the help was written."""
    said = " ".join(error.format_message().split()).rstrip(".")
    command = "rlframe" if error.ctx is None else error.ctx.command_path
    return f"error: {said}; see `{command} --help`\n" if said else ""
