"""The tables of RLlib's paths, read when a name is missing."""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

#: Where the tables are.
FOLDER = Path(__file__).parent / "paths"
EVERYTHING = "*"
#: What RLlib's modules had by importing it: programs import it from there, too.
_IMPORTED = FOLDER / "imported.ini"

Rows = Mapping[str, str]


def rows_of(module: str) -> Rows:
    """Returns the rows of a module of RLlib's: by name, a target or a sentence; `{}` where no table has it."""
    return {**_table(_IMPORTED).get(module, {}), **_table(_file_of(module)).get(module, {})}


def is_sentence(entry: str) -> bool:
    """Whether an entry says what there is instead, and does not say where the name is found."""
    return " " in entry or entry.startswith("@")


def sentence_of(entry: str) -> str:
    """Returns the sentence that an entry holds, or names as `@ALGORITHM`."""
    if not entry.startswith("@"):
        return entry
    from rlframe.agents.registry import NOT_BUILT

    return NOT_BUILT[entry[1:]]


def is_listed(module: str) -> bool:
    """Whether RLlib had this module, and a table says where its names are."""
    table = _table(_file_of(module))
    return any(listed == module or listed.startswith(f"{module}.") for listed in table)


def answer_to(module: str) -> str | None:
    """Returns the sentence on a module that is not there, or on a package above it."""
    while "." in module:
        entry = rows_of(module).get(EVERYTHING, "")
        if is_sentence(entry):
            return sentence_of(entry)
        module = module.rpartition(".")[0]
    return None


def all_modules() -> Iterator[tuple[str, Rows]]:
    """Yields every module of the tables with its rows."""
    for path in sorted(FOLDER.glob("*.ini")):
        yield from _table(path).items()


def _file_of(module: str) -> Path:
    parts = module.split(".")
    path = FOLDER / f"{parts[1]}.ini" if len(parts) > 1 else FOLDER / "rlframe.ini"
    return path if path.exists() else FOLDER / "rlframe.ini"


@cache
def _table(path: Path) -> Mapping[str, Rows]:
    parser = _parser(path)
    return {module: dict(_split_names(parser[module])) for module in parser.sections()}


def _parser(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep capitals
    with path.open(encoding="utf-8") as file:
        parser.read_file(file)
    return parser


def _split_names(section: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for names, entry in section.items():
        for name in names.split(","):
            yield name.strip(), " ".join(entry.split())
