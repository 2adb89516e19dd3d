"""`rlframe list`, `rlframe config`, `rlframe convert`: what there is, and checkpoints for the other framework."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.utils.errors import ConfigError


@app.command()
def convert(
    path: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT|NETWORK.cfg", help="A checkpoint of a built-in model, or a network file."),
    ],
    framework: Annotated[str | None, typer.Option(help="The framework that a checkpoint is for: torch or tf.")] = None,
    algo: Annotated[str | None, typer.Option(help="The algorithm that a network file is for. [PPO]")] = None,
    role: Annotated[str | None, typer.Option(help="What it is there: model, actor or critic. [model]")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="What to write. [the checkpoint with _FRAMEWORK; the network file as .yaml]"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a copy of a checkpoint for the other framework, or an xagents network file as config keys in YAML."""
    with reporting(debug):
        if path.suffix == ".cfg":
            if framework is not None:
                raise ConfigError("--framework is for checkpoints; networks are those of both: leave it out")
            written = _convert_network(path, algo or "PPO", role or "model", output or path.with_suffix(".yaml"))
            sys.stdout.write(f"config: {written}\n")
            return
        if framework is None or algo is not None or role is not None:
            raise ConfigError(
                "a checkpoint is converted by --framework torch or tf alone; NETWORK.cfg takes the others"
            )
        from rlframe.trainer.converting import convert_checkpoint

        copy = convert_checkpoint(str(path), framework, None if output is None else str(output))
        sys.stdout.write(f"checkpoint: {copy}\n")


def _convert_network(path: Path, algo: str, role: str, output: Path) -> Path:
    """Writes what a network file says in an algorithm's keys; returns the path."""
    import yaml

    from rlframe.cli.algorithms import find_trainer_class
    from rlframe.cli.network_files import ROLES, network_config

    if role not in ROLES:
        raise ConfigError(f"--role: got {role!r}, wanted one of {', '.join(ROLES)}")
    trainer_class = find_trainer_class(algo)
    config, remarks = network_config(path, role, trainer_class._config_class.known_keys())
    if output.exists():
        raise ConfigError(f"--output: {str(output)!r} exists; wanted a new file")
    output.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    for remark in remarks:
        warnings.warn(remark, stacklevel=2)
    return output


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
