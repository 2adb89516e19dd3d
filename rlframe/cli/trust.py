"""What runs and checkpoints name: imported only if it is rlframe's own, or with `--trust`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rlframe.utils import names
from rlframe.utils.errors import CheckpointError

if TYPE_CHECKING:
    from rlframe.cli.run_directory import RunSpec

Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run code that the run names: environments, models, algorithms of its author's."),
]
_ADVICE = "If you trust where it comes from, give --trust"


@contextlib.contextmanager
def checked_names(spec: RunSpec, source: str, *, trust: bool) -> Iterator[None]:
    """A context in which what a run or checkpoint names is imported if it is rlframe's own, or trusted.

    Args:
        spec: What the run names.
        source: Where that stands, for messages.
        trust: Whether everything is imported.

    Raises:
        CheckpointError: Lists the names that are not imported.
    """
    if trust:
        with names.trusting():
            yield
        return
    foreign = foreign_names(spec)
    if foreign:
        listed = ", ".join(foreign)
        raise CheckpointError(
            f"{source} names what is neither built in nor registered with Gymnasium, and would run code of its "
            f"author's: {listed}. {_ADVICE}"
        )
    with names.process_from_file(source, _ADVICE):
        yield


def foreign_names(spec: RunSpec) -> list[str]:
    """Returns what a run names that is not rlframe's own, as "key: name"."""
    return list(names.foreign({"algorithm": spec.algorithm, "env": spec.env, **spec.config}))


def flag_for(spec: RunSpec) -> str:
    """Returns what to write behind a command about a run: " --trust" where its names need it."""
    return " --trust" if foreign_names(spec) else ""
