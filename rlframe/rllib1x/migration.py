"""Rewrites programs for RLlib 0.8 to 1.13 so that they run here: imports, paths in strings, renamed keys of configs.

What stands here under RLlib's own names needs no change but `ray.rllib` → `rlframe`; the tables of `rllib1x/paths` and
of `config.renames` say the rest. Nothing of the program is executed. Comments and layout stay as they are (LibCST).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlframe.rllib1x.findings import Note
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    import libcst

_CELL = "#%% rlframe: cell "
_MAGIC = "pass  #%% rlframe: magic "
_KEPT = "pass  #%% rlframe: kept "
# A line of IPython's: %magic, !command, ?name, name?, x = !command, and the lines that it is continued on.
_IPYTHON = re.compile(r"^([ \t]*)((?:[\w, .]+=[ \t]*)?[%!].*|\?+.*|%?[\w.]+\?+)[ \t]*((?:(?<=\\)\n.*)*)$", re.MULTILINE)
_PYTHON_MAGIC = re.compile(r"\s*%%(time|timeit|capture|prun|debug)\b")
_RAY = re.compile(r"\bray\b|\brllib\b|\brlframe\b")
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
        helper: Whether it is a file beside a program of RLlib's, which may use it: Tune, `ray.init` and names that
            Python and NumPy no longer have are then rewritten even if it does not mention RLlib.

    Returns:
        It before and after, and what a person must decide. Rewriting `after` again changes nothing.

    Raises:
        ConfigError: If it is no Python, which names line and reason, or LibCST is missing.
    """
    if not _RAY.search(text) and not (helper and _GONE.search(text) and _mentions_gone_names(text)):
        return Migration(text, text, ())
    module = _parsed(text)
    from rlframe.rllib1x.rewriting import rewrite

    after, notes = rewrite(module, helper=helper)
    return Migration(text, after, tuple(sorted({*notes, *_notes_on_commands(text)})))


def _mentions_gone_names(text: str) -> bool:
    """Returns whether a text may have names that are gone; a look that takes no parsing."""
    if find_spec("libcst") is None:
        return True  # what is missing is told where the text is parsed
    from rlframe.rllib1x import gone_names

    return gone_names.mentioned_in(text)


def _parsed(text: str) -> libcst.Module:
    """Returns a program's tree.

    Raises:
        ConfigError: If it is no Python, which names line and reason, or LibCST is missing.
    """
    try:
        import libcst
    except ImportError as error:
        raise ConfigError("migrate: the package libcst is not installed; pip install 'rlframe[migrate]'") from error
    try:
        return libcst.parse_module(text)
    except libcst.ParserSyntaxError as error:
        reason = error.message.splitlines()[0]
        raise ConfigError(
            f"line {error.raw_line} is no Python that can be read ({reason}); mend it, or run 2to3 if it is Python 2"
        ) from None


def migrate_notebook(text: str) -> Migration:
    """Rewrites the code cells of a Jupyter notebook, as `migrate_program` does; the cells are one program.

    Lines of IPython (`%matplotlib inline`, `!pip install ...`) and cells of other languages (`%%bash`) stay, and so do
    cells that are no Python, of which a note tells.

    Raises:
        ConfigError: If it is no notebook.
    """
    try:
        notebook = json.loads(text)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"is no Jupyter notebook of version 4 ({type(error).__name__}: {error})") from None
    if "ray" not in "".join(sources):
        return Migration(text, text, ())
    joined, unread = _joined_cells(sources)
    migration = migrate_program(joined)
    notes = tuple(sorted({*migration.notes, *unread}))
    if migration.after == joined:
        return Migration(text, text, notes)
    for index, source in _cells_of(migration.after):
        cells[index]["source"] = source.splitlines(keepends=True)
    indent = re.search(r"\n( +)", text)
    after = json.dumps(notebook, indent=len(indent.group(1)) if indent else None, ensure_ascii=text.isascii())
    return Migration(text, after + ("\n" if text.endswith("\n") else ""), notes)


def _joined_cells(sources: list[str]) -> tuple[str, list[Note]]:
    """Returns a notebook's cells as one program, and what is told of those that are no Python."""
    joined, notes = "", []
    for index, source in enumerate(sources):
        if source.lstrip().startswith("%%") and not _PYTHON_MAGIC.match(source):
            continue
        python, fault = _as_python(source)
        if fault:
            notes.append(Note(joined.count("\n") + 2, f"the cell that begins here stays as it is: its {fault}"))
        joined += f"{_CELL}{index}\n{python}\n"
    return joined, notes


def _as_python(source: str) -> tuple[str, str]:
    """Returns a cell in which IPython's lines are statements, and why it is no Python; all lines are, then."""
    fault = ""
    for python in (source, _IPYTHON.sub(_hide_magic, source)):
        try:
            _parsed(python)
        except ConfigError as error:
            fault = str(error)
        else:
            return python, ""
    return re.sub(r"^", _KEPT, source, flags=re.MULTILINE), fault


def _hide_magic(line: re.Match[str]) -> str:
    """Returns a line of IPython, and those that it is continued on, as statements of Python."""
    indent, magic, continued = line.groups()
    return f"{indent}{_MAGIC}{magic}" + continued.replace("\n", f"\n{indent}{_KEPT}")


def _cells_of(joined: str) -> Iterator[tuple[int, str]]:
    """Yields number and source of each cell of a joined program."""
    head, *parts = re.split(rf"^{re.escape(_CELL)}(\d+)\n", joined, flags=re.MULTILINE)
    for position, (number, source) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        whole = (head if position == 0 else "") + source.removesuffix("\n")
        yield int(number), re.sub(rf"^[ \t]*{re.escape(_KEPT)}", "", whole.replace(_MAGIC, ""), flags=re.MULTILINE)


def _notes_on_commands(text: str) -> Iterator[Note]:
    """Yields notes on what is said to a shell."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\brllib (train|rollout|evaluate)\b", line):
            told = "the command rllib is rlframe here; with RLlib's flags: python -m rlframe.train, rlframe rollout"
            yield Note(number, told, "docs/command_line.md")
        if re.search(r"pip install.*\bray\[[^\]]*rllib", line):
            yield Note(number, "ray[rllib] is not needed: pip install rlframe brings Ray", "docs/quickstart.md")
