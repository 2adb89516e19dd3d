"""`rlframe data`: recorded experience, looked at, converted and split."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.utils.errors import ConfigError

data = typer.Typer(help="Look at, convert and split recorded experience.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data, name="data")

Source = Annotated[
    list[str], typer.Argument(metavar="DATA…", help="Files, directories, globs or minari:ID, as `input` takes them.")
]
Schema = Annotated[str | None, typer.Option(help="What a table's headers mean. [the .schema.yaml beside it]")]
Format = Annotated[str, typer.Option("--format", help="parquet, json, npz or hdf5 (D4RL's layout).")]
Output = Annotated[str, typer.Option("--output", "-o", help="A new directory.")]


@data.command()
def inspect(
    source: Source,
    schema: Schema = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Say what is in a dataset: rows, episodes, columns with their ranges, returns, probabilities."""
    with reporting(debug):
        from rlframe.offline.datasets import describe_dataset

        described = describe_dataset(source, schema)
        if json_output:
            sys.stdout.write(json.dumps(described) + "\n")
        else:
            _show(described)


@data.command()
def convert(
    source: Source, output: Output, kind: Format = "parquet", schema: Schema = None, debug: Debug = False
) -> None:
    """Write a dataset in another format."""
    with reporting(debug):
        from rlframe.offline.datasets import convert_dataset

        rows = convert_dataset(source, output, kind, schema)
        sys.stdout.write(f"data: {output}, {rows} rows\n")


@data.command()
def split(  # noqa: PLR0913, PLR0917  one parameter for each option
    source: Source,
    output: Output,
    parts: Annotated[str, typer.Option(help="Names and shares of the episodes.")] = "train=0.8,test=0.2",
    seed: Annotated[int, typer.Option(help="Of the lots.")] = 0,
    kind: Format = "parquet",
    schema: Schema = None,
    debug: Debug = False,
) -> None:
    """Divide a dataset by episode, by lot."""
    with reporting(debug):
        from rlframe.offline.datasets import split_dataset

        counts = split_dataset(source, output, _shares(parts), kind, seed, schema)
        for name, count in counts.items():
            sys.stdout.write(f"data: {output}/{name}, {count} episodes\n")


def _shares(text: str) -> dict[str, float]:
    made: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            made[name.strip()] = float(share)
        except ValueError as error:
            raise ConfigError(f"--parts: got {part!r}, wanted names with shares, such as train=0.8,test=0.2") from error
    if any(not name.isidentifier() for name in made):
        raise ConfigError(f"--parts: got the names {list(made)}, wanted words that directories can be called")
    return made


def _show(described: dict[str, Any]) -> None:
    from rlframe.cli.show import print_table

    sys.stdout.write(
        f"{described['rows']} rows, {described['episodes']} episodes ({described['episodes_ended']} end in the data), "
        f"{described['terminal_rows']} terminal rows, probabilities: {described['probabilities'] or 'none'}\n"
    )
    rows = [
        (name, form["dtype"], str(tuple(form["shape"])), *(_number(form.get(key)) for key in ("min", "max")),
         str(form.get("not_finite", "")))
        for name, form in described["columns"].items()
    ]  # fmt: skip
    print_table(("column", "dtype", "row", "min", "max", "NaN, inf"), rows)
    if described["returns"] is not None:
        texts = [f"{name} {value:.6g}" for name, value in described["returns"].items()]
        sys.stdout.write(f"returns: {', '.join(texts)}\n")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


__all__ = ["data"]
