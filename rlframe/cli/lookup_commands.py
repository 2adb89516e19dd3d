"""`rlframe list`, `rlframe config`, `rlframe convert`: what there is, and checkpoints for the other framework."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlframe.cli.app import Debug, app, reporting


@app.command()
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint of a built-in model.")],
    framework: Annotated[str, typer.Option(help="The framework it is for: torch or tf.")],
    output: Annotated[Path | None, typer.Option(help="Directory to write. [the checkpoint's, with _FRAMEWORK]")] = None,
    debug: Debug = False,
) -> None:
    """Write a copy of a checkpoint for the other framework: weights, moments, replay buffer and counters."""
    with reporting(debug):
        from rlframe.trainer.converting import convert_checkpoint

        written = convert_checkpoint(str(checkpoint), framework, None if output is None else str(output))
        sys.stdout.write(f"checkpoint: {written}\n")


@app.command(name="list")
def list_algorithms(
    presets: Annotated[bool, typer.Option("--presets", help="List the tuned presets and what they reached.")] = False,
    debug: Debug = False,
) -> None:
    """List the algorithms, or their tuned presets."""
    with reporting(debug):
        from rlframe.cli.show import show_algorithms, show_presets

        if presets:
            show_presets()
        else:
            show_algorithms()


@app.command(name="config")
def config_keys(
    algo: Annotated[str, typer.Argument(help="Name of the algorithm.")],
    search: Annotated[
        str | None, typer.Option("--search", "--filter", help="Only keys with this word in their name or meaning.")
    ] = None,
    debug: Debug = False,
) -> None:
    """List every config key of an algorithm: default, type, unit, meaning."""
    with reporting(debug):
        from rlframe.cli.show import show_config

        show_config(algo, search)
