"""One trial of a study, in a process of its own: `python -m rlframe.cli.tune_trial DIRECTORY STORAGE NAME`."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlframe.cli.algorithms import find_trainer_class
from rlframe.cli.live import Row
from rlframe.cli.run_directory import RunSpec
from rlframe.cli.stop import StopCriterion
from rlframe.cli.training import TrainingRun, check_config
from rlframe.cli.tuning import (
    PARTS,
    Place,
    StudySpec,
    again,
    config_of,
    import_optuna,
    make_pruner,
    make_sampler,
    suggest,
)
from rlframe.utils.seeding import derive_seed

_FAILED = 1
_STOPPED = 130


class TrialView:
    """Hands the mean return of a run to its trial, and ends the run when the trial is hopeless.

    Args:
        trial: Optuna's.
        max_steps: Env steps of the whole trial.
    """

    def __init__(self, trial: Any, max_steps: int) -> None:
        self._trial = trial
        self._max_steps = max_steps
        self._part = 0
        self.last = -math.inf

    def __enter__(self) -> TrialView:
        """Begins."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Nothing to undo."""

    def update(self, row: Row, result: Mapping[str, Any]) -> None:
        """Reports a result, at most once for each part of the budget.

        Raises:
            TrialPruned: If other trials were better at this point.
        """
        del result
        if not math.isfinite(row.returns[0]):
            return
        self.last = row.returns[0]
        part = row.env_steps * PARTS // self._max_steps
        if part > self._part:
            self._part = part
            self._trial.report(self.last, part)
            if self._trial.should_prune():
                raise import_optuna().TrialPruned

    def say(self, text: str) -> None:
        """Drops what a run says."""

    def notice(self, text: str) -> None:
        """Drops what a signal handler says."""


def main(directory: str, storage: str, name: str) -> int:
    """Carries one trial out, and returns the exit code."""
    _end_with_parent()
    logging.getLogger("ray.tune").setLevel(logging.ERROR)  # it tells its own users how to set it up
    place = Place(Path(directory), storage, name)
    study = place.open()
    spec = StudySpec.from_dict(study.user_attrs["rlframe"])
    trial = study.ask()
    trial.set_user_attr("owner", f"{socket.gethostname()}:{os.getpid()}")
    # Each trial draws from a stream of its own: processes with one seed would all propose the same values.
    study.sampler, study.pruner = make_sampler(derive_seed(spec.seed, trial.number)), make_pruner(spec)
    return _carry_out(study, trial, spec, place)


def _carry_out(study: Any, trial: Any, spec: StudySpec, place: Place) -> int:
    optuna = import_optuna()
    state = optuna.trial.TrialState
    try:
        value = _train(trial, spec, place)
    except optuna.TrialPruned:
        study.tell(trial, state=state.PRUNED)
        return 0
    except KeyboardInterrupt:
        again(study, trial)
        return _STOPPED
    except Exception as error:
        # Whatever a config makes of a run, it is this trial's result: the others go on.
        reason = " ".join(str(error).split()) or type(error).__name__
        trial.set_user_attr("reason", reason)
        study.tell(trial, state=state.FAIL)
        sys.stderr.write(f"warning: trial {trial.number} failed: {reason}\n")
        return _FAILED
    if math.isfinite(value):
        study.tell(trial, value)
        return 0
    trial.set_user_attr("reason", "no episode ended: give it a larger --max-steps")
    study.tell(trial, state=state.FAIL)
    return _FAILED


def _train(trial: Any, spec: StudySpec, place: Place) -> float:
    """Trains with the values of a trial, and returns its last mean return."""
    trainer_class = find_trainer_class(spec.algorithm)
    config = config_of(spec, suggest(trial, spec.domains), trainer_class.get_default_config())
    check_config(trainer_class, config)
    directory = place.directory / f"trial_{trial.number:04d}"
    shutil.rmtree(directory, ignore_errors=True)  # of a trial that died before the database knew it
    stop = StopCriterion(spec.target, spec.max_steps)
    run = TrainingRun.start(RunSpec(spec.algorithm, spec.env, config, stop, checkpoint_freq=0), directory)
    view = TrialView(trial, spec.max_steps)
    try:
        outcome = run.run(lambda *_: view)
    finally:
        run.close()
    if outcome.signum:
        raise KeyboardInterrupt
    return view.last


def _end_with_parent() -> None:
    """Ends this process when the search that began it is killed: nobody would take its result."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(_STOPPED)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        sys.exit(main(*sys.argv[1:]))
