"""The command line: `rlframe train | evaluate | convert | list | config`.

Nothing heavy is imported here: `rlframe --help` loads neither Ray nor a learning framework.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from rlframe.utils.errors import (
    CheckpointError,
    ConfigError,
    EnvError,
    NonFiniteError,
    UnsupportedSpaceException,
    WorkerError,
)
from rlframe.version import __version__

if TYPE_CHECKING:
    from rlframe.cli.flags import Flag
    from rlframe.cli.run_directory import RunSpec
    from rlframe.cli.stop import StopCriterion

T = TypeVar("T")

_EXIT_USER_MISTAKE = 2
_USER_MISTAKES = (ConfigError, EnvError, CheckpointError, UnsupportedSpaceException, OSError)
_FAILURES = (WorkerError, NonFiniteError)
_FLAGS = "rlframe.config_flags"

app = typer.Typer(
    name="rlframe",
    help="Train, play back and look up reinforcement learning algorithms.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class ConfigFlagsCommand(TyperCommand):
    """A command that leaves options it does not know to the config."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Sets the config flags aside, and parses the rest."""
        from rlframe.cli.flags import split_flags

        own = {name: not getattr(param, "is_flag", False) for param in self.get_params(ctx) for name in param.opts}
        own |= {name: False for param in self.get_params(ctx) for name in param.secondary_opts}
        kept, flags = split_flags(args, own)
        ctx.meta[_FLAGS] = flags
        return super().parse_args(ctx, kept)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"rlframe {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, play back and look up reinforcement learning algorithms."""


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command(
    cls=ConfigFlagsCommand,
    epilog="Any config key is an option too: --lr 1e-3 --model.fcnet-hiddens '[64, 64]' --no-double-q "
    "--exploration-config.epsilon-timesteps 5000. `rlframe config ALGO` lists them.",
)
def train(  # noqa: PLR0913, PLR0917  one parameter for each option
    ctx: typer.Context,
    algo: Annotated[str | None, typer.Argument(help="Name of the algorithm, or module:Class of your own.")] = None,
    env: Annotated[str | None, typer.Option("--env", help="Gymnasium id, or module:Class of your environment.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-f", help="YAML or JSON file of config keys, or an RLlib experiment.")
    ] = None,
    stop_reward: Annotated[float | None, typer.Option(help="Stop at this mean return.")] = None,
    stop_timesteps: Annotated[int | None, typer.Option(help="Stop after this many env steps.")] = None,
    stop_iters: Annotated[int | None, typer.Option(help="Stop after this many iterations.")] = None,
    stop_time: Annotated[float | None, typer.Option(help="Stop after this many seconds of training.")] = None,
    num_workers: Annotated[int | None, typer.Option(help="Remote rollout workers; 0 is one process.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same run.")] = None,
    framework: Annotated[str | None, typer.Option(help="The framework that learns: torch or tf.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Directory of this run. [default: a new one in runs/]")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")] = None,
    checkpoint_freq: Annotated[int | None, typer.Option(min=0, help="Iterations between checkpoints. [10]")] = None,
    keep_checkpoints: Annotated[int | None, typer.Option(min=0, help="How many are kept; 0 is all. [2]")] = None,
    debug: Debug = False,
) -> None:
    """Train an algorithm until it reaches a limit, and leave checkpoints, tables and curves in a run directory."""
    from rlframe.cli.stop import StopCriterion

    limits = StopCriterion(stop_reward, stop_timesteps, stop_iters, stop_time)
    named = {"env": env, "num_workers": num_workers, "seed": seed, "framework": framework}
    given = {key: value for key, value in named.items() if value is not None}
    flags: list[Flag] = ctx.meta[_FLAGS]
    with _reporting(debug):
        if resume is None:
            freqs = {"checkpoint_freq": checkpoint_freq, "keep_checkpoints": keep_checkpoints}
            _train_new(_make_spec(algo, config, given, flags, limits, freqs), run_dir)
        else:
            others = [f"--{key}".replace("_", "-") for key in given] + [f"--{flag.name}" for flag in flags]
            others += [name for name, value in (("--config", config), ("--run-dir", run_dir)) if value is not None]
            _train_on(resume, algo, others, limits)


@app.command()
def evaluate(  # noqa: PLR0913, PLR0917  one parameter for each option
    path: Annotated[Path, typer.Argument(help="A run directory, or one of its checkpoints.")],
    episodes: Annotated[int, typer.Option(min=1, help="How many are played.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Same seed, same episodes.")] = None,
    explore: Annotated[bool, typer.Option("--explore", help="Draw actions as in training.")] = False,
    render: Annotated[bool, typer.Option("--render", help="Show the environment.")] = False,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Cut episodes. [the config's horizon]")] = None,
    debug: Debug = False,
) -> None:
    """Play a trained policy back and print its returns."""
    with _reporting(debug):
        from rlframe.cli.evaluating import PlayOptions, loaded_trainer, play
        from rlframe.cli.show import show_episodes

        with loaded_trainer(path) as (trainer, _, checkpoint):
            played = list(play(trainer, episodes, PlayOptions(seed, explore, render, max_steps)))
        show_episodes(played, checkpoint)


@app.command()
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint of a built-in model.")],
    framework: Annotated[str, typer.Option(help="The framework it is for: torch or tf.")],
    output: Annotated[Path | None, typer.Option(help="Directory to write. [the checkpoint's, with _FRAMEWORK]")] = None,
    debug: Debug = False,
) -> None:
    """Write a copy of a checkpoint for the other framework: weights, moments, replay buffer and counters."""
    with _reporting(debug):
        from rlframe.agents.converting import convert_checkpoint

        written = convert_checkpoint(str(checkpoint), framework, None if output is None else str(output))
        sys.stdout.write(f"checkpoint: {written}\n")


@app.command(name="list")
def list_algorithms(debug: Debug = False) -> None:
    """List the algorithms."""
    with _reporting(debug):
        from rlframe.cli.show import show_algorithms

        show_algorithms()


@app.command(name="config")
def config_keys(
    algo: Annotated[str, typer.Argument(help="Name of the algorithm.")],
    search: Annotated[str | None, typer.Option(help="Only keys with this word in their name or meaning.")] = None,
    debug: Debug = False,
) -> None:
    """List every config key of an algorithm: default, type, unit, meaning."""
    with _reporting(debug):
        from rlframe.cli.show import show_config

        show_config(algo, search)


def main() -> None:
    """Runs the command line; the entry point of the `rlframe` script."""
    # As `python` does and console scripts do not: modules of the user's own are found by --env and ALGO.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    app()


@contextlib.contextmanager
def _reporting(debug: bool) -> Iterator[None]:
    """Turns errors a user can mend into one message and an exit code, and warnings into one line each."""
    # Tune tells its own users how long a trial took to set up, and which GPU monitor to install.
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            yield
        except KeyboardInterrupt:
            sys.stderr.write("aborted\n")
            raise typer.Exit(130) from None
        except (*_USER_MISTAKES, *_FAILURES) as error:
            if debug:
                raise
            sys.stderr.write(f"error: {error}\n")
            raise typer.Exit(1 if isinstance(error, _FAILURES) else _EXIT_USER_MISTAKE) from None


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    del category, filename, lineno, file, line
    sys.stderr.write(f"warning: {message}\n")


def _make_spec(
    algo: str | None,
    path: Path | None,
    given: dict[str, Any],
    flags: list[Flag],
    limits: StopCriterion,
    freqs: dict[str, int | None],
) -> RunSpec:
    """Returns what a command line asks for: flags over the file over defaults."""
    from rlframe.cli.algorithms import find_trainer_class
    from rlframe.cli.config_files import ConfigFile, read_config_file
    from rlframe.cli.flags import config_from_flags
    from rlframe.cli.run_directory import RunSpec
    from rlframe.cli.stop import StopCriterion
    from rlframe.cli.training import check_config
    from rlframe.config.merge import read_numbers
    from rlframe.config.plain import overlay

    file = ConfigFile() if path is None else read_config_file(path)
    algorithm = algo or file.algorithm
    if algorithm is None:
        raise ConfigError("which algorithm? rlframe train ALGO --env ENV; `rlframe list` names them")
    trainer_class = find_trainer_class(algorithm)
    declaration = trainer_class._config_class
    base = read_numbers(file.config, declaration)
    spelled, faults = config_from_flags(flags, declaration, trainer_class.get_default_config(), base)
    config = overlay(overlay(base, spelled), given)
    env = config.pop("env", None)
    if not isinstance(env, str):
        faults.append("which environment? --env takes a Gymnasium id such as CartPole-v1, or module:Class")
    try:
        check_config(trainer_class, config)
    except ConfigError as error:
        faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return RunSpec(
        algorithm,
        env,
        config,
        StopCriterion.from_dict(file.stop).merged(limits),
        _first(freqs["checkpoint_freq"], file.checkpoint_freq, RunSpec.checkpoint_freq),
        _first(freqs["keep_checkpoints"], file.keep_checkpoints, RunSpec.keep_checkpoints),
    )


def _train_new(spec: RunSpec, run_dir: Path | None) -> None:
    from rlframe.cli.training import TrainingRun

    _finish(TrainingRun.start(spec, run_dir))


def _train_on(directory: Path, algo: str | None, others: list[str], limits: StopCriterion) -> None:
    """Resumes a run; it goes on with what it was started with."""
    from rlframe.cli.run_directory import RunSpec
    from rlframe.cli.training import TrainingRun, warn

    if others:
        raise ConfigError(
            f"--resume goes on with the run's own config, it does not take {', '.join(others)}: start a new run to "
            "change them"
        )
    spec = RunSpec.read(directory)
    if algo not in (None, spec.algorithm):
        raise ConfigError(f"--resume: {str(directory)!r} is a run of {spec.algorithm}, not of {algo}")
    _finish(TrainingRun.resume(directory, limits, warn))


def _finish(run: Any) -> None:
    """Drives a run to its end, and says where things are."""
    try:
        outcome = run.run()
    finally:
        run.close()
    directory = outcome.directory
    sys.stdout.write(f"{outcome.reason}\ncheckpoint: {outcome.checkpoint}\n")
    if outcome.signum:
        sys.stdout.write(f"go on:      rlframe train --resume {directory}\n")
        raise typer.Exit(128 + outcome.signum)
    sys.stdout.write(f"play back:  rlframe evaluate {directory}\n")


def _first(*values: T | None) -> T:
    """Returns the first value that is not None; there is one."""
    return next(value for value in values if value is not None)


if __name__ == "__main__":
    main()
