"""`rlframe tune`: hyper-parameters searched by values typed behind their flags."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlframe.cli.app import CONFIG_FLAGS, Debug, ManyValuesCommand, app, reporting
from rlframe.cli.train_command import ConfigPath, EnvName, Request, StopReward, UsePreset, make_spec
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.cli.flags import Flag
    from rlframe.cli.tuning import Place, StudySpec

_MAX_STEPS = 50_000


@app.command(
    cls=ManyValuesCommand,
    epilog="Any config key takes values: two numbers are the ends of a range (--lr 1e-5 1e-2), more values and whole "
    "numbers are choices (--n-steps 16 32 64), one is fixed. `rlframe tune ALGO --help` lists the keys.",
)
def tune(  # noqa: PLR0913, PLR0917  one parameter for each option
    ctx: typer.Context,
    algo: Annotated[str | None, typer.Argument(help="Name of the algorithm, or module:Class of your own.")] = None,
    env: EnvName = None,
    config: ConfigPath = None,
    preset: UsePreset = False,
    max_steps: Annotated[
        int, typer.Option("--max-steps", "--stop-timesteps", "--trial-steps", min=1, help="Env steps of a trial.")
    ] = _MAX_STEPS,
    target_reward: StopReward = None,
    n_trials: Annotated[int, typer.Option(min=1, help="Finished trials in all, those before a stop included.")] = 20,
    n_jobs: Annotated[int, typer.Option(min=1, help="Trials at the same time, each in a process.")] = 1,
    storage: Annotated[
        str | None, typer.Option(help="Database of the study, sqlite:///FILE. [study.db in --study-dir]")
    ] = None,
    study_name: Annotated[
        str | None, typer.Option("--study-name", "--study", help="Name in the database. [ALGO_ENV]")
    ] = None,
    study_dir: Annotated[Path | None, typer.Option(help="Directory of trials and plots. [runs/tune_ALGO_ENV]")] = None,
    prune: Annotated[bool, typer.Option(help="End trials early that are below the median of those before.")] = True,
    warmup_trials: Annotated[int, typer.Option(min=1, help="Finished trials before one is ended early.")] = 4,
    tune_seed: Annotated[int, typer.Option(help="Of the search, and of each trial that has no --seed.")] = 0,
    debug: Debug = False,
) -> None:
    """Search hyper-parameters; the same command again goes on with a search that was stopped or killed."""
    with reporting(debug):
        from rlframe.cli.stop import StopCriterion
        from rlframe.cli.tuning import StudySpec, import_optuna
        from rlframe.cli.xagents_flags import is_network

        import_optuna()
        flags = ctx.meta[CONFIG_FLAGS]
        networks = [flag for flag in flags if is_network(flag)]
        base = make_spec(Request(algo, env, config, networks, StopCriterion(), preset))
        searched = [flag for flag in flags if flag not in networks]
        domains = _domains(searched, base.algorithm, base.config)
        spec = StudySpec(
            base.algorithm, base.env, base.config, tuple(domains), max_steps, target_reward, tune_seed, prune,
            warmup_trials,
        )  # fmt: skip
        place = _place(spec, storage, study_name, study_dir)
        _search(place, spec, n_trials, n_jobs)


def _domains(flags: list[Flag], algorithm: str, base: dict[str, Any]) -> list[Any]:
    from rlframe.cli.algorithms import find_trainer_class
    from rlframe.cli.flags import domains_from_flags
    from rlframe.cli.xagents_flags import names_known, translate_flags

    trainer_class = find_trainer_class(algorithm)
    defaults = trainer_class.get_default_config()
    declaration = trainer_class._config_class
    given = translate_flags(flags, names_known(declaration, defaults))
    domains, unread = domains_from_flags(given.flags, declaration, defaults, base)
    faults = [*given.faults, *unread]
    if given.pieces is not None:
        faults.append("--mini-batches: a search tries rows of a minibatch: --sgd-minibatch-size")
    if faults:
        raise ConfigError("\n".join(faults))
    if all(domain.kind == "fixed" for domain in domains):
        raise ConfigError("nothing to search: give a key several values, such as --lr 1e-5 1e-2 or --n-steps 16 32 64")
    return domains


def _place(spec: StudySpec, storage: str | None, name: str | None, directory: Path | None) -> Place:
    from rlframe.cli.recording import make_directory
    from rlframe.cli.run_directory import RUNS
    from rlframe.cli.tuning import Place

    chosen = name or re.sub(r"[^\w.-]+", "-", f"{spec.algorithm.rpartition(':')[2]}_{spec.env}")
    where = directory or Path(RUNS, f"tune_{chosen}")
    make_directory(where, "--study-dir")
    return Place(where, storage or f"sqlite:///{(where / 'study.db').absolute()}", chosen)


def _search(place: Place, spec: StudySpec, n_trials: int, n_jobs: int) -> None:
    from rlframe.cli.algorithms import find_trainer_class
    from rlframe.cli.tune_view import SearchView
    from rlframe.cli.tuning import best_values, draw_study, search, write_best

    _say(f"{spec.algorithm} on {spec.env}: " + "; ".join(str(domain) for domain in spec.domains))
    _say(f"study {place.name} in {place.storage}, trials in {place.directory}")
    with SearchView(n_trials, n_jobs) as view:
        study = search(place, spec, n_trials, n_jobs, view.say, view.watch)
    values = best_values(study, spec)
    if values is None:
        raise ConfigError("no trial was carried through: give --max-steps more steps, or --no-prune")
    best = write_best(place, spec, values, find_trainer_class(spec.algorithm).get_default_config())
    _say(f"best: trial {study.best_trial.number}, return {study.best_value:,.1f}")
    for key, value in values.items():
        _say(f"  {key} {value}")
    _say(f"train with it: rlframe train --config {best}")
    for picture in draw_study(study, place.directory):
        _say(f"plot: {picture}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
