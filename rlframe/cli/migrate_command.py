"""`rlframe migrate`: programs for RLlib 1.x, rewritten for this package."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
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

    The difference goes to stdout, what a person must decide to stderr. Exit codes: 0, nothing is left to decide; 1,
    something is; 2, a file could not be read, the others were.
    """
    with reporting(debug):
        code = 0
        for path in _programs(paths):
            code = max(code, _migrate(path, write))
    raise typer.Exit(code)


def _programs(paths: list[Path]) -> Iterator[Path]:
    """Yields the programs and notebooks in files and folders, each once."""
    seen = set()
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file or folder")
        for found in sorted(_below(path)) if path.is_dir() else [path]:
            if found.resolve() not in seen:
                seen.add(found.resolve())
                yield found


def _below(folder: Path) -> Iterator[Path]:
    """Yields the programs below a folder, without hidden folders and those of tools."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_OF_THE_USER]
        yield from (Path(place, name) for name in files if name.endswith((".py", ".ipynb")))


def _migrate(path: Path, write: bool) -> int:
    """Shows or writes what changes in a file, and returns its exit code."""
    try:
        raw = path.read_bytes()
        text = raw.decode()
        migration = _migrated(path, text)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{path}: {error}\n")
        return _UNREADABLE
    for note in migration.notes:
        sys.stderr.write(f"{path}:{note.line}: {note.text} ({note.page})\n")
    if migration.after != text:
        _show_or_write(path, migration, write)
    return _TO_DECIDE if migration.notes else 0


def _migrated(path: Path, text: str) -> Migration:
    """Returns a file's text before and after."""
    from rlframe.rllib1x.migration import migrate_notebook, migrate_program

    return migrate_notebook(text) if path.suffix == ".ipynb" else migrate_program(text)


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
