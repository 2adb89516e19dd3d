"""`rlframe export`: a trained policy as a file that acts without rlframe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.cli.play_commands import Best, RunPath
from rlframe.cli.trust import Trust


@app.command()
def export(  # noqa: PLR0913, PLR0917  one parameter for each option
    path: RunPath,
    to: Annotated[str, typer.Option(help="numpy, onnx, torchscript or savedmodel.")] = "numpy",
    out: Annotated[Path | None, typer.Option(help="A directory. [./RUN-FORMAT]")] = None,
    policy: Annotated[str, typer.Option(help="Which policy, of several.")] = "default_policy",
    force: Annotated[bool, typer.Option("--force", help="Replace an export that is there.")] = False,
    best: Best = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Write a trained policy as a file: observations of the environment in, actions out, memory and filters inside."""
    with reporting(debug):
        from rlframe.cli.evaluating import loaded_trainer
        from rlframe.cli.run_directory import directory_of
        from rlframe.serving.export.exporting import CONTRACT, check_export, export_policy

        path = directory_of(path)
        target = Path(f"{path.resolve().name}-{to}") if out is None else out
        check_export(to, target, force=force)  # before what takes long
        with loaded_trainer(path, best=best, trust=trust) as (trainer, _, checkpoint):
            written = export_policy(trainer, to, target, policy_id=policy, force=force)
            sys.stdout.write(
                f"checkpoint: {checkpoint}\nwritten:    {written}, which acts as the policy does\n"
                f"contract:   {target / CONTRACT}\n"
            )
