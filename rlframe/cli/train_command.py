"""`rlframe train`: what a command line asks for, and the run it makes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rlframe.cli.app import CONFIG_FLAGS, ConfigFlagsCommand, Debug, app, reporting
from rlframe.cli.trust import Trust, checked_names, flag_for
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.cli.flags import Flag
    from rlframe.cli.run_directory import RunSpec
    from rlframe.cli.stop import StopCriterion

T = TypeVar("T")
#: What stands in an algorithm's place where the players of a game are trained.
GAMES = "decentralized"

ConfigPath = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-f",
        help="YAML or JSON file of config keys, or an RLlib experiment; or its text: '{\"lr\": 1e-3}'.",
    ),
]
AlgorithmOfRllib = Annotated[str | None, typer.Option("--run", help="The same as ALGO, as RLlib's command has it.")]
LimitsOfRllib = Annotated[
    str | None, typer.Option("--stop", help="Limits as RLlib's command has them: '{\"timesteps_total\": 100000}'.")
]
EnvName = Annotated[str | None, typer.Option("--env", help="Gymnasium id, or module:Class of your environment.")]
UsePreset = Annotated[bool, typer.Option("--preset", help="Start from the tuned config for ALGO and environment.")]
StopReward = Annotated[float | None, typer.Option("--stop-reward", "--target-reward", help="Stop at this mean return.")]
StopSteps = Annotated[
    int | None, typer.Option("--stop-timesteps", "--max-steps", min=1, help="Stop after this many env steps.")
]


@app.command(
    cls=ConfigFlagsCommand,
    epilog="Any config key is an option too: --seed 1 --num-workers 2 --framework tf --lr 1e-3 --n-envs 8 "
    "--model.fcnet-hiddens '[64, 64]' --no-double-q. `rlframe train ALGO --help` lists them.",
)
def train(  # noqa: PLR0913, PLR0917  one parameter for each option
    ctx: typer.Context,
    algo: Annotated[str | None, typer.Argument(help="Name of the algorithm, or module:Class of your own.")] = None,
    env: EnvName = None,
    config: ConfigPath = None,
    preset: UsePreset = False,
    run: AlgorithmOfRllib = None,
    stop: LimitsOfRllib = None,
    stop_reward: StopReward = None,
    stop_timesteps: StopSteps = None,
    stop_iters: Annotated[int | None, typer.Option(min=1, help="Stop after this many iterations.")] = None,
    stop_time: Annotated[float | None, typer.Option(help="Stop after this many seconds of training.")] = None,
    early_stop_patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many iterations without a better mean return.")
    ] = None,
    plateau_reduce_patience: Annotated[
        int | None, typer.Option(min=1, help="Iterations without a better mean return that reduce the learning rate.")
    ] = None,
    plateau_reduce_factor: Annotated[
        float | None, typer.Option(help="What it is multiplied by then, between 0 and 1.")
    ] = None,
    divergence_monitoring_steps: Annotated[
        int | None, typer.Option(min=0, help="Env steps before these patiences begin to count.")
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", "--checkpoints", help="Directory of this run. [default: a new one in runs/]"),
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this directory.")] = None,
    checkpoint_freq: Annotated[int | None, typer.Option(min=0, help="Iterations between checkpoints. [10]")] = None,
    keep_checkpoints: Annotated[int | None, typer.Option(min=0, help="How many are kept; 0 is all. [2]")] = None,
    keep_best: Annotated[bool, typer.Option(help="Keep the checkpoint with the best mean return as well.")] = True,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history", "--history-checkpoint", help="Parquet file that gets mean, best and last return, steps, time."
        ),
    ] = None,
    monitor: Annotated[
        list[str] | None, typer.Option(help="Send results to wandb, mlflow or tensorboard; may be given twice.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no results, only how the run ended.")] = False,
    info: Annotated[bool, typer.Option("-v", help="Say more: --log-level INFO.")] = False,
    details: Annotated[bool, typer.Option("-vv", help="Say all: --log-level DEBUG.")] = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Train an algorithm until it reaches a limit, and leave checkpoints, tables and curves in a run directory."""
    with reporting(debug):
        from rlframe.cli.patience import Patience
        from rlframe.cli.stop import StopCriterion

        if algo and run:
            raise ConfigError(f"got two algorithms, {algo} and --run {run}; give one of them")
        algo = algo or run
        limits = StopCriterion.from_text(stop).merged(StopCriterion(stop_reward, stop_timesteps, stop_iters, stop_time))
        patience = Patience(
            early_stop_patience, plateau_reduce_patience, plateau_reduce_factor, divergence_monitoring_steps
        )
        extras = {
            "checkpoint_freq": checkpoint_freq,
            "keep_checkpoints": keep_checkpoints,
            "keep_best": None if keep_best else False,
            "patience": patience if patience.to_dict() else None,
            "history": None if history is None else str(history.absolute()),
            "monitors": tuple(monitor) if monitor else None,
        }
        flags: list[Flag] = [*_log_level(info, details), *ctx.meta[CONFIG_FLAGS]]
        if algo == GAMES or (resume is not None and (resume / "game.json").is_file()):
            refused = [f"--{name.replace('_', '-')}" for name, value in extras.items() if value is not None]
            refused += [name for name, given in {"--preset": preset, "--stop": stop}.items() if given]
            refused += ["a limit but --stop-timesteps"] if (stop_reward, stop_iters, stop_time) != (None,) * 3 else []
            _train_game(refused, config, flags, {"env": env, "steps_per_train": stop_timesteps},
                        run_dir, resume, trust=trust, quiet=quiet)  # fmt: skip
            return
        if resume is None:
            if trust:
                raise ConfigError("--trust is about what a run names: it goes with --resume; a new run is your own")
            _finish(_start(Request(algo, env, config, flags, limits, preset), extras, run_dir), quiet=quiet)
        else:
            named = {"--env": env, "--config": config, "--run-dir": run_dir, "--preset": preset or None}
            others = [name for name, value in named.items() if value is not None]
            others += [f"--{flag.name}" for flag in flags]
            others += ["--" + name.replace("_", "-") for name, value in extras.items() if value is not None]
            _go_on(resume, algo, others, limits, trust=trust, quiet=quiet)


def _log_level(info: bool, details: bool) -> list[Flag]:
    """Returns the config flag that `-v` and `-vv` of RLlib's command are short for."""
    if not info and not details:
        return []
    from rlframe.cli.flags import Flag

    return [Flag("log-level", "DEBUG" if details else "INFO")]


def _train_game(  # noqa: PLR0913  what the command line said
    refused: list[str], path: str | None, flags: list[Flag], more: dict[str, Any], run_dir: Path | None,
    resume: Path | None, *, trust: bool, quiet: bool,
) -> None:  # fmt: skip
    """Trains players of a game, or goes on with that."""
    from rlframe.cli.game_runs import read_run, read_settings, train_game

    if refused:
        raise ConfigError(
            f"train {GAMES} does not take {', '.join(refused)}; `rlframe train {GAMES} --help` lists more"
        )
    if resume is None:
        train_game(read_settings(path, flags, more), run_dir, quiet=quiet)
        return
    if path or run_dir or more["env"]:
        raise ConfigError("--resume goes on with the run's own game, without --config, --env and --run-dir")
    settings = read_run(resume, trust=trust)
    limits = {"seats": settings["seats"], "steps_per_train": more["steps_per_train"]}
    told = {key: value for key, value in read_settings(None, flags, limits).items() if key != "seats"}
    if set(told) - {"episodes_per_train", "steps_per_train"}:
        raise ConfigError(f"--resume: got {', '.join(told)}, wanted --episodes-per-train or --stop-timesteps alone")
    train_game({**settings, **told}, resume, resume=True, quiet=quiet)


@dataclass(frozen=True)
class Request:
    """What a command line says about an algorithm and its config.

    Attributes:
        algo: Name of the algorithm; None takes the file's.
        env: Name of the environment; None takes the file's.
        path: A config file, or its text.
        flags: Config flags.
        limits: What ends the run; on top of the file's.
        preset: Whether the tuned config is below everything else.
    """

    algo: str | None
    env: str | None
    path: str | Path | None
    flags: Sequence[Flag]
    limits: StopCriterion
    preset: bool = False


def make_spec(request: Request) -> RunSpec:
    """Returns what a command line asks for: flags over the file over the preset over defaults.

    Raises:
        ConfigError: Lists every fault of the flags and of the config.
    """
    from rlframe.cli.algorithms import canonical_name, find_trainer_class
    from rlframe.cli.config_files import ConfigFile, read_config_file
    from rlframe.cli.run_directory import RunSpec
    from rlframe.cli.stop import StopCriterion
    from rlframe.config.merge import read_numbers

    file = ConfigFile() if request.path is None else read_config_file(request.path)
    algorithm = request.algo or file.algorithm
    if algorithm is None:
        raise ConfigError("which algorithm? rlframe train ALGO --env ENV; `rlframe list` names them")
    trainer_class, algorithm = find_trainer_class(algorithm), canonical_name(algorithm)
    base = read_numbers(file.config, trainer_class._config_class)
    env = request.env or base.pop("env", None)
    config = _config(request, trainer_class, algorithm, env, {k: v for k, v in base.items() if k != "env"})
    return RunSpec(
        algorithm,
        str(env),
        config,
        StopCriterion.from_dict(file.stop).merged(request.limits),
        _first(file.checkpoint_freq, RunSpec.checkpoint_freq),
        _first(file.keep_checkpoints, RunSpec.keep_checkpoints),
    )


def _config(request: Request, trainer_class: Any, algorithm: str, env: Any, base: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of a request, checked."""
    from rlframe.agents.presets import get_preset
    from rlframe.cli.flags import config_from_flags
    from rlframe.cli.training import check_config
    from rlframe.cli.xagents_flags import cut_train_batch, names_known, translate_flags
    from rlframe.config.nested_dict import overlay

    faults: list[str] = []
    if not isinstance(env, str):
        faults.append("which environment? --env takes a Gymnasium id such as CartPole-v1, or module:Class")
    below = overlay(get_preset(algorithm, env), base) if request.preset and isinstance(env, str) else dict(base)
    defaults = trainer_class.get_default_config()
    declaration = trainer_class._config_class
    given = translate_flags(request.flags, names_known(declaration, defaults))
    below = overlay(below, given.config)
    spelled, unread = config_from_flags(given.flags, declaration, defaults, below)
    config = fit_train_batch(overlay(below, spelled), spelled, defaults)
    config, wrong = cut_train_batch(config, given.pieces, defaults), [*given.faults, *unread]
    for remark in given.remarks:
        warnings.warn(remark, stacklevel=2)
    try:
        check_config(trainer_class, config)
    except ConfigError as error:
        wrong = [*wrong, str(error)]
    if faults or wrong:
        raise ConfigError("\n".join(faults + wrong))
    return config


def fit_train_batch(config: dict[str, Any], spelled: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config with a train batch of one round of fragments, where only the fragments were asked for.

    `--n-envs 16 --n-steps 1024` means 16,384 rows per update to everybody who types it; an algorithm that learns from
    what it has just sampled would otherwise cut its fragments to the train batch it has by default. Algorithms with a
    replay buffer sample their batches from there, and keep them.

    Args:
        config: The whole of what was asked for. Not changed.
        spelled: What of it was typed as flags.
        defaults: The algorithm's defaults.
    """
    whole = {**defaults, **config}
    fragment = spelled.get("rollout_fragment_length")
    if fragment is None or "train_batch_size" in spelled or "replay_buffer_config" in defaults:
        return config
    sizes = [fragment, max(1, whole.get("num_workers", 0)), whole.get("num_envs_per_worker", 1)]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return config  # the check says what is wrong
    rows = sizes[0] * sizes[1] * sizes[2]
    fitted = {**config, "train_batch_size": rows}
    if "sgd_minibatch_size" in defaults and whole["sgd_minibatch_size"] > rows:
        fitted["sgd_minibatch_size"] = rows
    return fitted


def _start(request: Request, extras: Mapping[str, Any], run_dir: Path | None) -> Any:
    from dataclasses import replace

    from rlframe.cli.training import TrainingRun

    spec = replace(make_spec(request), **{name: value for name, value in extras.items() if value is not None})
    spec.patience.check(spec.config)
    _tell_of_preset(request, spec)
    return TrainingRun.start(spec, run_dir)


def _tell_of_preset(request: Request, spec: RunSpec) -> None:
    """Says that there is a tuned config, where there is one that was not asked for."""
    from rlframe.agents.presets import find_preset

    preset = find_preset(spec.algorithm, spec.env)
    if preset is not None and not request.preset:
        sys.stdout.write(f"a tuned config exists, add --preset: {preset.describe()}\n")
        sys.stdout.flush()


def _go_on(
    directory: Path, algo: str | None, others: list[str], limits: StopCriterion, *, trust: bool, quiet: bool
) -> None:
    """Resumes a run and drives it to its end; it goes on with what it was started with."""
    from rlframe.cli.algorithms import canonical_name
    from rlframe.cli.run_directory import RunSpec
    from rlframe.cli.training import TrainingRun, warn

    if others:
        raise ConfigError(
            f"--resume goes on with the run's own config, it does not take {', '.join(others)}: start a new run to "
            "change them"
        )
    spec = RunSpec.read(directory)
    if algo is not None and canonical_name(algo) != spec.algorithm:
        raise ConfigError(f"--resume: {str(directory)!r} is a run of {spec.algorithm}, not of {algo}")
    with checked_names(spec, directory, trust=trust):
        _finish(TrainingRun.resume(directory, limits, warn), quiet=quiet)


def _finish(run: Any, *, quiet: bool) -> None:
    """Drives a run to its end, and says where things are."""
    from rlframe.cli.live import QuietView, make_view
    from rlframe.cli.run_directory import checkpoints

    go_on = f"go on:      rlframe train --resume {run.directory}{flag_for(run.spec)}\n"
    try:
        outcome = run.run(QuietView if quiet else make_view)
    except KeyboardInterrupt:
        if checkpoints(run.directory):
            sys.stdout.write(go_on)
        raise
    finally:
        run.close()
    directory, flag = outcome.directory, flag_for(run.spec)
    sys.stdout.write(f"{outcome.reason}\ncheckpoint: {outcome.checkpoint}\n")
    if outcome.signum:
        sys.stdout.write(go_on)
        raise typer.Exit(128 + outcome.signum)
    sys.stdout.write(f"play back:  rlframe evaluate {directory}{flag}\n")


def _first(*values: T | None) -> T:
    """Returns the first value that is not None; there is one."""
    return next(value for value in values if value is not None)
