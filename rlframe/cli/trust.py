"""What runs and checkpoints name: imported only if it is rlframe's own, or with `--trust`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlframe.utils import names
from rlframe.utils.errors import CheckpointError

if TYPE_CHECKING:
    from rlframe.cli.run_directory import RunSpec

Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run code that the run names: its author's environments, models, algorithms."),
]
#: Characters of what a file says that are repeated in a message.
_MOST_WORDS = 1000
_ADVICE = "If you trust where it comes from, give --trust"


@contextlib.contextmanager
def checked_names(spec: RunSpec, place: Path, *, trust: bool) -> Iterator[None]:
    """A context in which what a run or checkpoint names is imported if it is rlframe's own, or trusted.

    Args:
        spec: What the run names.
        place: Its directory.
        trust: Whether everything is imported, and links are followed wherever they lead.

    Raises:
        CheckpointError: Lists the names that are not imported, and entries that no run writes.
    """
    if trust:
        with names.trusting():
            yield
        return
    from rlframe.cli.run_directory import strange_entries

    foreign, strange = foreign_names(spec), strange_entries(place)
    if foreign:
        raise CheckpointError(
            f"{place} names what is neither built in nor registered with Gymnasium, and would run code of its "
            f"author's: {_listed(foreign)}. {_ADVICE}"
        )
    if strange:
        raise CheckpointError(
            f"{place} holds {_listed(strange)}: links that lead out of it, pipes or devices, which no run "
            f"writes. {_ADVICE}"
        )
    with names.process_from_file(str(place), _ADVICE):
        yield


def _listed(items: list[str]) -> str:
    text = ", ".join(items)
    return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}..."


def foreign_names(spec: RunSpec) -> list[str]:
    """Returns what a run names that is not rlframe's own, as "key: name"."""
    found = list(names.foreign({**spec.config, "algorithm": spec.algorithm, "env": spec.env}))
    if spec.history is not None and not os.path.isfile(spec.history):
        found.append(f"history: {spec.history}, a file to be made")
    return found


def flag_for(spec: RunSpec) -> str:
    """Returns what to write behind a command about a run: " --trust" where its names need it."""
    return " --trust" if foreign_names(spec) else ""
