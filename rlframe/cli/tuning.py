"""A search over hyper-parameters: an Optuna study whose trials are training runs in processes of their own.

The study is a database, so a search that was killed goes on where it stopped, with as many processes as one likes. Each
trial is an ordinary run directory: `rlframe evaluate`, `plot` and `report` take it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from rlframe.config.nested_dict import assign, overlay
from rlframe.config.search import Domain
from rlframe.utils.errors import ConfigError, describe_error

#: The study's own attributes, and those of its trials.
_SPEC = "rlframe"
_OWNER = "owner"
_REASON = "reason"
_SCHEMA = 1
#: Trials that may fail one after the other before the search gives up.
_MOST_FAILURES = 3
_POLL_S = 0.1


@dataclass(frozen=True)
class StudySpec:
    """What is searched, and how a trial is carried out.

    Attributes:
        algorithm: Name of the algorithm.
        env: Name of the environment.
        config: What all trials have in common.
        domains: What differs from trial to trial.
        max_steps: Env steps of a trial.
        target: Mean return at which a trial ends early, None for none.
        seed: Of the search's draws, and of every trial.
        prune: Whether trials that are behind the median of those before are ended early.
        warmup_trials: Finished trials before the first is ended early.
    """

    algorithm: str
    env: str
    config: dict[str, Any]
    domains: tuple[Domain, ...]
    max_steps: int
    target: float | None = None
    seed: int = 0
    prune: bool = True
    warmup_trials: int = 4

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON can hold it."""
        plain: dict[str, Any] = json.loads(json.dumps({"schema": _SCHEMA, **asdict(self)}))
        return plain

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> StudySpec:
        """Returns what `to_dict` gave."""
        fields = {key: value for key, value in content.items() if key != "schema"}
        domains = tuple(Domain(d["key"], d["kind"], tuple(d["values"])) for d in fields["domains"])
        return cls(**{**fields, "domains": domains})


@dataclass(frozen=True)
class Place:
    """Where a study lives.

    Attributes:
        directory: Holds the trials' run directories and the plots.
        storage: URL of the database.
        name: Name of the study in it.
    """

    directory: Path
    storage: str
    name: str

    def open(self, spec: StudySpec | None = None) -> Any:
        """Returns the study; made if it is not there.

        Args:
            spec: What it shall search; None takes what it searches.

        Raises:
            ConfigError: If Optuna is missing, the database cannot be used, or the study searches something else.
        """
        optuna = import_optuna()
        try:
            study = optuna.create_study(
                study_name=self.name, storage=self.storage, direction="maximize", load_if_exists=True
            )
        except Exception as error:  # SQLAlchemy's, of many kinds
            text = describe_error(error).splitlines()[0]
            raise ConfigError(f"--storage: {self.storage!r} cannot be used: {text}") from error
        held = study.user_attrs.get(_SPEC)
        # Through the class: a study that an older version began lacks what has a default since.
        if spec is not None and held is not None and StudySpec.from_dict(held).to_dict() != spec.to_dict():
            raise ConfigError(
                f"the study {self.name!r} in {self.storage} searches something else ({_difference(held, spec)}): name "
                "another by --study-name, or repeat the flags it was begun with"
            )
        if spec is not None and held is None:
            study.set_user_attr(_SPEC, spec.to_dict())
        return study


def import_optuna() -> Any:
    """Returns Optuna, told to keep its log to itself.

    Raises:
        ConfigError: If it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ConfigError('tune needs Optuna: pip install "rlframe[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


# --- the search -----------------------------------------------------------------------------------------------------


def search(
    place: Place,
    spec: StudySpec,
    n_trials: int,
    n_jobs: int,
    say: Callable[[str], None],
    watch: Callable[[Any], None],
) -> Any:
    """Carries a study out until it has `n_trials` finished trials, and returns it.

    Trials that a killed search left are begun again first.

    Args:
        place: Where the study lives.
        spec: What is searched.
        n_trials: Finished trials in all, those of earlier calls included.
        n_jobs: Trials at the same time, each in a process of its own.
        say: Is told of each finished trial.
        watch: Is given the study every now and then.

    Raises:
        ConfigError: If the study cannot be used, or trial after trial fails.
    """
    study = place.open(spec)
    take_back(study)
    running: list[subprocess.Popen[bytes]] = []
    told = {trial.number for trial in finished(study)}
    failures = 0
    try:
        while True:
            running, ended = _split(running)
            for process in ended:
                failures = failures + 1 if process.returncode else 0
                _settle(study, process)
            _tell(study, told, say, n_trials)
            watch(study)
            if failures >= _MOST_FAILURES:
                raise ConfigError(f"{failures} trials failed one after the other: {_last_reason(study)}")
            while len(running) < min(n_jobs, n_trials - len(finished(study)) - len(running)) and len(running) < n_jobs:
                running.append(_start_trial(place))
            if not running:
                return study
            time.sleep(_POLL_S)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def finished(study: Any) -> list[Any]:
    """Returns the trials that count: those that were carried through, were pruned, or failed by themselves."""
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if t.state.is_finished() and t.user_attrs.get(_REASON) != "stopped"]


def take_back(study: Any) -> None:
    """Queues the trials anew whose process is gone, on this machine."""
    optuna = import_optuna()
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        host, _, pid = str(trial.user_attrs.get(_OWNER, "")).partition(":")
        if host in ("", socket.gethostname()) and not _is_alive(pid):
            again(study, trial)


def again(study: Any, trial: Any) -> None:
    """Ends a trial that was stopped from outside, and queues one with the same values."""
    optuna = import_optuna()
    # The database refuses attributes of ended trials, so the reason comes first.
    study._storage.set_trial_user_attr(trial._trial_id, _REASON, "stopped")
    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    if trial.params:
        study.enqueue_trial(dict(trial.params))


def _split(processes: Sequence[subprocess.Popen[bytes]]) -> tuple[list[Any], list[Any]]:
    running = [process for process in processes if process.poll() is None]
    return running, [process for process in processes if process not in running]


def _settle(study: Any, process: subprocess.Popen[bytes]) -> None:
    """Ends the trial of a process that died without a word, so that it counts and is not begun for ever."""
    optuna = import_optuna()
    owner = f"{socket.gethostname()}:{process.pid}"
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if trial.user_attrs.get(_OWNER) == owner:
            reason = f"its process ended with code {process.returncode}"
            study._storage.set_trial_user_attr(trial._trial_id, _REASON, reason)
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def _tell(study: Any, told: set[int], say: Callable[[str], None], n_trials: int) -> None:
    for trial in finished(study):
        if trial.number not in told:
            told.add(trial.number)
            say(f"{describe(trial)}  ({len(told)} of {n_trials})")


def describe(trial: Any) -> str:
    """Returns a finished trial in a line."""
    values = "  ".join(f"{key} {_text(value)}" for key, value in trial.params.items())
    ended = f"return {trial.value:,.1f}" if trial.state.name == "COMPLETE" else trial.state.name.lower()
    reason = f"  ({trial.user_attrs[_REASON]})" if _REASON in trial.user_attrs else ""
    return f"trial {trial.number}  {ended}  {values}{reason}"


def _start_trial(place: Place) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rlframe.cli.tune_trial", str(place.directory), place.storage, place.name]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=_environment())


def _environment() -> dict[str, str]:
    """Returns this process's environment, in which modules of the user's own are found as they are here."""
    paths = [path or os.getcwd() for path in sys.path]
    return {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _is_alive(pid: str) -> bool:
    if os.name == "nt":  # to ask there would be to end it
        return True
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def make_sampler(seed: int) -> Any:
    """Returns what proposes values: a model of the good trials so far, at random for the first five."""
    # Trials that are under way count as bad ones, so that two processes do not try the same.
    return import_optuna().samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=5)


def make_pruner(spec: StudySpec) -> Any:
    """Returns what ends trials early: those below the median of earlier ones, from a quarter of the budget on."""
    optuna = import_optuna()
    if not spec.prune:
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(n_startup_trials=spec.warmup_trials, n_warmup_steps=PARTS // 4)


def _difference(held: Mapping[str, Any], spec: StudySpec) -> str:
    new = spec.to_dict()
    keys = [key for key in new if new[key] != held.get(key)]
    if "domains" in keys:
        return "; ".join(str(domain) for domain in StudySpec.from_dict(held).domains)
    return ", ".join(f"{key} {held.get(key)!r}" for key in keys)


def _last_reason(study: Any) -> str:
    reasons = [trial.user_attrs[_REASON] for trial in finished(study) if _REASON in trial.user_attrs]
    return str(reasons[-1]) if reasons else "see above"


# --- one trial ------------------------------------------------------------------------------------------------------

#: Pieces of a trial's budget after which its return is compared with that of other trials.
PARTS = 20


def suggest(trial: Any, domains: Sequence[Domain]) -> dict[str, Any]:
    """Returns the values of a trial by dotted key; fixed ones are not asked for."""
    return {domain.key: _suggest_one(trial, domain) for domain in domains}


def _suggest_one(trial: Any, domain: Domain) -> Any:
    if domain.kind == "fixed":
        return domain.values[0]
    if domain.kind == "choice":
        # Optuna takes plain values only; lists travel as JSON.
        plain = [value if _is_plain(value) else json.dumps(value) for value in domain.values]
        return domain.values[plain.index(trial.suggest_categorical(domain.key, plain))]
    low, high = domain.values
    return trial.suggest_float(domain.key, low, high, log=domain.kind == "log range")


def config_of(spec: StudySpec, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of a trial: the study's with the trial's values laid on it.

    Args:
        spec: What is searched.
        values: By dotted key.
        defaults: The algorithm's defaults.
    """
    from rlframe.cli.train_command import fit_train_batch

    own: dict[str, Any] = {}
    for key, value in values.items():
        assign(own, key, value)
    config: dict[str, Any] = overlay(spec.config, own)
    config.setdefault("seed", spec.seed)
    return fit_train_batch(config, own, defaults)


# --- what is left of it ---------------------------------------------------------------------------------------------


def best_values(study: Any, spec: StudySpec) -> dict[str, Any] | None:
    """Returns the config keys of the best trial, None if no trial was carried through."""
    if not any(trial.state.name == "COMPLETE" for trial in study.get_trials(deepcopy=False)):
        return None
    optuna = import_optuna()
    return suggest(optuna.trial.FixedTrial(dict(study.best_trial.params)), spec.domains)


def write_best(place: Place, spec: StudySpec, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Path:
    """Writes the best config as an experiment file that `rlframe train --config` takes, and returns its path."""
    experiment: dict[str, Any] = {"run": spec.algorithm, "env": spec.env}
    experiment["config"] = config_of(spec, values, defaults)
    path = place.directory / "best.yaml"
    path.write_text(yaml.safe_dump({place.name: experiment}, sort_keys=False), encoding="utf-8")
    return path


def draw_study(study: Any, directory: Path) -> list[Path]:
    """Draws which parameters mattered, and all trials as lines through their values; returns the PNG files.

    Without Matplotlib, or with too few trials to say anything, nothing is drawn.
    """
    complete = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    names = {name for trial in complete for name in trial.params}
    if len(complete) < 2 or not names:
        return []
    try:
        import matplotlib
    except ImportError:
        return []
    import warnings

    matplotlib.use("agg")
    from matplotlib import pyplot
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as drawing

    pictures: dict[str, Callable[[], Any]] = {
        "parallel_coordinate": lambda: drawing.plot_parallel_coordinate(study),
        "importance": lambda: drawing.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator()),
    }
    written = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls its Matplotlib plots experimental
        for name, draw in pictures.items():
            path = directory / f"{name}.png"
            draw().get_figure().savefig(path, dpi=150, bbox_inches="tight")
            written.append(path)
        pyplot.close("all")
    return written


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
