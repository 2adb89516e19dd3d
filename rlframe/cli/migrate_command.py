"""`rlframe migrate`, `rlframe migrate-checkpoint`: programs and trained policies of RLlib 1.x, for this package."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlframe.cli.app import CONFIG_FLAGS, ConfigFlagsCommand, Debug, app, reporting
from rlframe.cli.train_command import EnvName
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.cli.run_directory import RunSpec
    from rlframe.rllib1x.migration import Migration

_TO_DECIDE, _UNREADABLE = 1, 2
_NOT_OF_THE_USER = {"__pycache__", "node_modules", "site-packages", "build", "dist"}


@app.command()
def migrate(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE_OR_DIR…", help="Programs, notebooks, or folders.")],
    write: Annotated[bool, typer.Option("--write", help="Change the files. [show what would change]")] = False,
    debug: Debug = False,
) -> None:
    """Rewrite programs for RLlib 0.8 to 1.13: imports, paths, renamed config keys.

    Beside such programs, other files of a folder lose names that Python and NumPy no longer have, too (`np.bool`).
    The difference goes to stdout, what a person must decide to stderr. Exit codes: 0, nothing is left to decide; 1,
    something is; 2, a file could not be read, the others were.
    """
    with reporting(debug):
        code = 0
        for found in _programs(paths):
            helpers = _has_program_of_rllib(found)
            for path in found:
                code = max(code, _migrate(path, write, helpers))
    raise typer.Exit(code)


@app.command(
    name="migrate-checkpoint",
    cls=ConfigFlagsCommand,
    epilog="Any config key is an option too, as in `rlframe train ALGO`: --model.fcnet-hiddens '[64, 64]'.",
)
def migrate_checkpoint(  # noqa: PLR0913, PLR0917  one parameter for each option
    ctx: typer.Context,
    algo: Annotated[str, typer.Argument(help="Name of the algorithm.")],
    checkpoint: Annotated[Path, typer.Argument(help="RLlib's file checkpoint-N, or the directory with it.")],
    env: EnvName = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-f", help="YAML or JSON file of config keys. [the params.json of RLlib's run]"),
    ] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", help="A new directory. [one in runs/]")] = None,
    debug: Debug = False,
) -> None:
    """Make a run of this package out of a checkpoint of RLlib 1.9 to 1.13: weights, filters, counters.

    Nothing that the checkpoint names is executed. Optimisers, target networks and replay buffers start anew.
    """
    with reporting(debug):
        from rlframe.cli.stop import StopCriterion
        from rlframe.cli.train_command import Request, make_spec

        beside = checkpoint.absolute().parents[checkpoint.is_file()] / "params.json"
        path = config or (beside if beside.is_file() else None)
        spec = make_spec(Request(algo, env, path, ctx.meta[CONFIG_FLAGS], StopCriterion()))
        directory, written = _written_run(spec, checkpoint, run_dir)
        sys.stdout.write(
            f"checkpoint: {written}\nplay back:  rlframe evaluate {directory}\n"
            f"go on:      rlframe train --resume {directory}\n"
        )


def _written_run(spec: RunSpec, checkpoint: Path, run_dir: Path | None) -> tuple[Path, Path]:
    """Writes a run directory with one checkpoint, or nothing; returns both paths."""
    from rlframe.cli.algorithms import find_trainer_class
    from rlframe.cli.run_directory import CHECKPOINTS, make_run_directory, remove_if_unused, save_into
    from rlframe.rllib1x.checkpoints import load_rllib_checkpoint, read_checkpoint

    read_checkpoint(checkpoint)  # what cannot be read is told before an environment is made
    # Where workers sample is of no matter to what is loaded, and without them no Ray is started.
    alone = {"num_workers": 0, "evaluation_num_workers": 0, "num_gpus": 0}
    trainer = find_trainer_class(spec.algorithm)({**spec.config, **alone}, env=spec.env)
    try:
        load_rllib_checkpoint(trainer, checkpoint)
        directory = make_run_directory(spec.algorithm, spec.env, run_dir)
        try:
            written = save_into(trainer, directory / CHECKPOINTS)
            spec.write(directory)
        finally:
            remove_if_unused(directory)
    finally:
        trainer.stop()
    return directory, written


def _programs(paths: list[Path]) -> Iterator[list[Path]]:
    """Yields the programs and notebooks of each file or folder, each once."""
    from rlframe.rllib1x.checkpoints import is_rllib_checkpoint

    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file or folder")
        if is_rllib_checkpoint(path):
            raise ConfigError(f"{path} is a checkpoint: rlframe migrate-checkpoint ALGO {path}")
        below = sorted(_below(path)) if path.is_dir() else [path]
        new = [found for found in below if found.resolve() not in seen]
        seen.update(found.resolve() for found in new)
        yield new


def _below(folder: Path) -> Iterator[Path]:
    """Yields the programs below a folder, without hidden folders and those of tools."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_OF_THE_USER]
        yield from (Path(place, name) for name in files if name.endswith((".py", ".ipynb")))


def _has_program_of_rllib(paths: list[Path]) -> bool:
    """Returns whether some of the files use RLlib, or this package: a folder may have been migrated before."""
    return any(re.search(rb"\bray\.rllib\b|\bfrom ray import .*rllib|\brlframe\b", _read(path)) for path in paths)


def _read(path: Path) -> bytes:
    """Returns what is in a file; nothing where it cannot be read, which is told when its turn comes."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _migrate(path: Path, write: bool, helpers: bool) -> int:
    """Shows or writes what changes in a file, and returns its exit code."""
    try:
        raw = path.read_bytes()
        text = raw.decode()
        migration = _migrated(path, text, helpers)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{path}: {error}\n")
        return _UNREADABLE
    for note in migration.notes:
        sys.stderr.write(f"{path}:{note.line}: {note.text} ({note.page})\n")
    if migration.after != text:
        _show_or_write(path, migration, write)
    return _TO_DECIDE if migration.notes else 0


def _migrated(path: Path, text: str, helpers: bool) -> Migration:
    """Returns a file's text before and after."""
    from rlframe.rllib1x.migration import migrate_notebook, migrate_program

    return migrate_notebook(text) if path.suffix == ".ipynb" else migrate_program(text, helper=helpers)


def _show_or_write(path: Path, migration: Migration, write: bool) -> None:
    """Prints the difference, or writes the file whole: never half of it."""
    if not write:
        before, after = (text.splitlines(keepends=True) for text in (migration.before, migration.after))
        sys.stdout.writelines(difflib.unified_diff(before, after, str(path), str(path)))
        return
    target = path.resolve()
    with tempfile.NamedTemporaryFile("wb", dir=target.parent, delete=False) as new:
        new.write(migration.after.encode())
    os.chmod(new.name, target.stat().st_mode)
    os.replace(new.name, target)
    sys.stdout.write(f"{path}: migrated\n")
