"""`rlframe data`: recorded experience, looked at, converted and split."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rlframe.cli.app import CONFIG_FLAGS, ConfigFlagsCommand, Debug, app, reporting
from rlframe.cli.trust import Trust, checked_names
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.cli.data_making import MakeRequest
    from rlframe.cli.run_directory import RunSpec

data = typer.Typer(
    help="Make, look at, convert and split recorded experience.", no_args_is_help=True, rich_markup_mode=None
)
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
    """Divide a dataset at random, by episode."""
    with reporting(debug):
        from rlframe.offline.datasets import split_dataset

        counts = split_dataset(source, output, _shares(parts), kind, seed, schema)
        for name, count in counts.items():
            sys.stdout.write(f"data: {output}/{name}, {count} episodes\n")


class _MakeCommand(ConfigFlagsCommand):
    """A command that leaves options it does not know to the config of the training."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help without an algorithm's keys: its first word is an environment."""
        TyperCommand.format_help(self, ctx, formatter)


@data.command(
    cls=_MakeCommand,
    epilog="Any config key of the algorithm is an option too, for the training: --gamma 0.98 --train-batch-size 128.",
)
def make(  # noqa: PLR0913, PLR0917  one parameter for each option
    ctx: typer.Context,
    env: Annotated[str | None, typer.Argument(help="Gymnasium id, or module:Class; not with --from.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Who is trained. [SAC]")] = None,
    level: Annotated[
        str, typer.Option(help="random, medium, medium-replay, expert or medium-expert (half of each).")
    ] = "medium",
    rows: Annotated[int, typer.Option(min=1, help="How many; the last episode is whole.")] = 100_000,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The dataset's directory.")] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A run, or one checkpoint, that is taken instead of training.")
    ] = None,
    train_steps: Annotated[
        int | None, typer.Option(min=1, help="Env steps of the training. [twice what the tuned config took]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of training and recording.")] = 0,
    kind: Format = "parquet",
    config: Annotated[Path | None, typer.Option("--config", "-f", help="YAML or JSON file of config keys.")] = None,
    preset: Annotated[bool, typer.Option(help="Train with the tuned config, where there is one.")] = True,
    trust: Trust = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no results of the training.")] = False,
    debug: Debug = False,
) -> None:
    """Make a dataset by D4RL's recipe: train, choose a checkpoint by its returns, and record what it does.

    The same command goes on with what was stopped.
    """
    with reporting(debug):
        from rlframe.cli.data_making import MakeRequest

        if out is None:
            raise ConfigError("where to? --out names the dataset's directory")
        if source is None and trust:
            raise ConfigError("--trust is about what a run names: it goes with --from")
        if source is not None:
            named = {"ENV": env, "--algorithm": algorithm, "--train-steps": train_steps, "--config": config}
            others = [name for name, value in named.items() if value is not None]
            others += [f"--{flag.name}" for flag in ctx.meta[CONFIG_FLAGS]]
            if others:
                raise ConfigError(f"--from takes a run as it is, without {', '.join(others)}")
            from rlframe.cli.run_directory import directory_of

            source = directory_of(source)
            spec = _spec_of(source)
        else:
            spec = _training(env, algorithm or "SAC", config, ctx.meta[CONFIG_FLAGS], train_steps, preset, level)
        request = MakeRequest(level, rows, seed, kind, None if source is None else str(source), spec)
        _make(request, out, trust=trust, quiet=quiet)


def _spec_of(source: Path) -> RunSpec:
    from rlframe.cli.evaluating import find_spec

    if not source.is_dir():
        raise ConfigError(f"--from: there is no directory {str(source)!r}")
    return find_spec(source)[0]


def _training(  # noqa: PLR0913, PLR0917  what the command line said
    env: str | None, algorithm: str, config: Path | None, flags: list[Any], steps: int | None, preset: bool, level: str
) -> RunSpec:
    """Returns what is trained."""
    from rlframe.agents.presets import find_preset
    from rlframe.cli.algorithms import canonical_name
    from rlframe.cli.data_making import LEVELS
    from rlframe.cli.stop import StopCriterion
    from rlframe.cli.train_command import Request, make_spec

    if env is None and config is None:
        raise ConfigError("which environment? Name it first, as in `rlframe data make CartPole-v1`, or module:Class")
    tuned = None if env is None else find_preset(canonical_name(algorithm), env)
    if steps is None and tuned is not None:
        steps = 2 * max(tuned.env_steps)
    if steps is None and level in LEVELS and level != "random":
        raise ConfigError(f"--train-steps: {algorithm} has no tuned config for {env}; say how many env steps it trains")
    limits = StopCriterion(timesteps_total=steps)
    return make_spec(Request(algorithm, env, config, flags, limits, preset and tuned is not None))


def _make(request: MakeRequest, directory: Path, *, trust: bool, quiet: bool) -> None:
    """Makes a dataset, or goes on with one, and says what it is."""
    from rlframe.cli.data_making import MANIFEST, TRAINING, begin, record

    manifest = begin(request, directory)
    if manifest is None:
        run = None if request.source is None else Path(request.source)
        with checked_names(request.spec, run or directory, trust=trust or run is None):
            if request.trains:
                _train(request, directory, quiet=quiet)
                run = directory / TRAINING
            manifest = record(request, directory, run)
    for name, part in manifest["parts"].items():
        mean = "" if part["mean_return"] is None else f", mean return {part['mean_return']:,.1f}"
        sys.stdout.write(f"{name}: {part['rows']:,} rows, {part['episodes']:,} episodes{mean}\n")
    sys.stdout.write(f"data: {directory}; how they were made: {directory / MANIFEST}\n")


def _train(request: MakeRequest, directory: Path, *, quiet: bool) -> None:
    """Trains the policy, or goes on with that."""
    from rlframe.cli.data_making import LOG, TRAINING, cut_log, training_spec
    from rlframe.cli.live import QuietView, make_view
    from rlframe.cli.run_directory import RUN_FILE
    from rlframe.cli.stop import StopCriterion
    from rlframe.cli.training import TrainingRun, warn

    training = directory / TRAINING
    if (training / RUN_FILE).exists():
        run = TrainingRun.resume(training, StopCriterion(), warn)
        if (directory / LOG).is_dir():
            cut_log(directory)
    else:
        run = TrainingRun.start(training_spec(request, directory), training)
    try:
        outcome = run.run(QuietView if quiet else make_view)
    finally:
        run.close()
    if outcome.signum:
        sys.stdout.write("stopped; the same command goes on\n")
        raise typer.Exit(128 + outcome.signum)


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
