"""Rewrites programs for RLlib 0.8 to 1.13 so that they run here: imports, paths in strings, renamed keys of configs.

What stands here under RLlib's own names needs no change but `ray.rllib` → `rlframe`; the tables of `rllib1x/paths` and
of `config.renames` say the rest. Nothing of the program is executed. Comments and layout stay as they are (LibCST).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rlframe.rllib1x.findings import Note
from rlframe.utils.errors import ConfigError

_CELL = "#%% rlframe: cell "
_MAGIC = "pass  #%% rlframe: magic "
_GONE = re.compile(r"^\s*(import|from)\b.*(\b(numpy|collections|time|inspect|fractions)\b|\*)", re.MULTILINE)


@dataclass(frozen=True)
class Migration:
    """A program before and after.

    Attributes:
        before: The text that was given.
        after: The text that runs here; equal to `before` where there is nothing to change.
        notes: What a person must decide, by line.
    """

    before: str
    after: str
    notes: tuple[Note, ...]


def migrate_program(text: str, *, helper: bool = False) -> Migration:
    """Rewrites a Python program.

    Args:
        text: The program.
        helper: Whether it is a file beside a program of RLlib's, which may use it: names that Python and NumPy no
            longer have are then rewritten even if it does not mention RLlib.

    Returns:
        It before and after, and what a person must decide. Rewriting `after` again changes nothing.

    Raises:
        ConfigError: If it is no Python, which names line and reason, or LibCST is missing.
    """
    if "ray" not in text and not (helper and _GONE.search(text)):
        return Migration(text, text, ())
    try:
        import libcst
    except ImportError as error:
        raise ConfigError("migrate: the package libcst is not installed; pip install 'rlframe[migrate]'") from error
    from rlframe.rllib1x.rewriting import rewrite

    try:
        module = libcst.parse_module(text)
    except libcst.ParserSyntaxError as error:
        reason = error.message.splitlines()[0]
        raise ConfigError(
            f"line {error.raw_line} is no Python that can be read ({reason}); mend it, or run 2to3 if it is Python 2"
        ) from None
    after, notes = rewrite(module, helper=helper)
    return Migration(text, after, tuple(sorted({*notes, *_notes_on_commands(text)})))


def migrate_notebook(text: str) -> Migration:
    """Rewrites the code cells of a Jupyter notebook, as `migrate_program` does; the cells are one program.

    Lines of IPython (`%matplotlib inline`, `!pip install ...`) and cells of other languages (`%%bash`) stay.

    Raises:
        ConfigError: If it is no notebook, or its code is no Python.
    """
    try:
        notebook = json.loads(text)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"is no Jupyter notebook of version 4 ({type(error).__name__}: {error})") from None
    python = [index for index, source in enumerate(sources) if not source.lstrip().startswith("%%")]
    joined = "".join(f"{_CELL}{index}\n{_hide_magics(sources[index])}\n" for index in python)
    migration = migrate_program(joined)
    if migration.after == joined:
        return Migration(text, text, migration.notes)
    for index, source in _cells_of(migration.after):
        cells[index]["source"] = source.splitlines(keepends=True)
    indent = re.search(r"\n( +)", text)
    after = json.dumps(notebook, indent=len(indent.group(1)) if indent else None, ensure_ascii=text.isascii())
    return Migration(text, after + ("\n" if text.endswith("\n") else ""), migration.notes)


def _hide_magics(source: str) -> str:
    """Returns a cell in which IPython's lines are statements of Python."""
    return re.sub(r"^([ \t]*)([%!].*)$", rf"\1{_MAGIC}\2", source, flags=re.MULTILINE)


def _cells_of(joined: str) -> Iterator[tuple[int, str]]:
    """Yields number and source of each cell of a joined program."""
    head, *parts = re.split(rf"^{re.escape(_CELL)}(\d+)\n", joined, flags=re.MULTILINE)
    for position, (number, source) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        whole = (head if position == 0 else "") + source.removesuffix("\n")
        yield int(number), whole.replace(_MAGIC, "")


def _notes_on_commands(text: str) -> Iterator[Note]:
    """Yields notes on what is said to a shell."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\brllib (train|rollout|evaluate)\b", line):
            yield Note(
                number, "the command rllib is rlframe here: rlframe train, rlframe evaluate", "docs/command_line.md"
            )
        if re.search(r"pip install.*\bray\[[^\]]*rllib", line):
            yield Note(number, "ray[rllib] is not needed: pip install rlframe brings Ray", "docs/quickstart.md")
