"""One training run: made or resumed, driven to its end, stopped by hand without loss."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rlframe.cli.algorithms import find_trainer_class
from rlframe.cli.live import LiveView, PlainView, Rates, Watched, make_view, starting
from rlframe.cli.monitors import check_monitors, make_monitors, numbers_of
from rlframe.cli.patience import Verdict, Watch, reduce_learning_rate
from rlframe.cli.run_directory import (
    BEST,
    CHECKPOINTS,
    RunSpec,
    checkpoints,
    make_run_directory,
    prune,
    remove_if_unused,
    remove_unfinished,
    restore_newest,
    save_into,
)
from rlframe.cli.stop import StopCriterion
from rlframe.execution.plan.context import STEPS_SAMPLED_COUNTER
from rlframe.report.history import HistoryFile
from rlframe.report.machine import describe_machine
from rlframe.report.page import MACHINE_FILE, PLAN_FILE
from rlframe.trainer.loggers import RunLogger, read_results
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.run_lock import RunLock


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        directory: The run directory.
        reason: In words.
        signum: The signal that ended it, 0 if none did.
        checkpoint: The last checkpoint.
    """

    directory: Path
    reason: str
    signum: int
    checkpoint: Path


class StopSignals:
    """Turns the first Ctrl-C or SIGTERM into a wish to stop, and the second into `KeyboardInterrupt` at once.

    Args:
        notice: Is told of the wish; called in a signal handler.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._before: dict[int, Any] = {}
        self.received = 0

    def __enter__(self) -> StopSignals:
        """Takes the signals over."""
        self.install()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Gives the signals back."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def install(self) -> None:
        """Takes the signals over, again if need be: Ray takes SIGTERM when it starts."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(signum)
            if handler != self._on_signal:
                self._before.setdefault(signum, handler)
                signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.received:
            raise KeyboardInterrupt
        self.received = signum
        self._notice("stopping after this iteration; once more aborts at once, without a checkpoint")


class TrainingRun:
    """A trainer, the directory it writes to, and the loop that drives it.

    Make one with `start` or `resume`, then call `run`, then `close`.

    Args:
        spec: What was asked for.
        directory: The run directory.
        trainer: The trainer, at the place where training starts.
        checkpoint: The checkpoint of that place, if there is one.
        lock: Keeps others out of the directory until `close`.
    """

    def __init__(
        self,
        spec: RunSpec,
        directory: Path,
        trainer: Any,
        checkpoint: Path | None = None,
        lock: RunLock | None = None,
    ) -> None:
        self._lock = lock
        self.spec = spec
        self.directory = directory
        self.trainer = trainer
        self.checkpoint = checkpoint
        self._watch = Watch(spec.patience)
        self._history = None if spec.history is None else HistoryFile(spec.history)
        self._monitors = make_monitors(spec.monitors, directory, trainer.config) if spec.monitors else []

    @classmethod
    def start(cls, spec: RunSpec, wanted: Path | None) -> TrainingRun:
        """Makes a new run.

        Args:
            spec: What is asked for.
            wanted: The run directory; None makes one under `runs/`.

        Raises:
            ConfigError: If the config is wrong, or the directory cannot be used.
            EnvError: If the environment is unknown or wrong.
        """
        trainer_class = find_trainer_class(spec.algorithm)
        _check_outputs(spec)
        directory = make_run_directory(spec.algorithm.rpartition(":")[2], spec.env, wanted)
        lock = RunLock(directory)
        try:
            trainer, logger = _make_trainer(trainer_class, spec, directory)
        except BaseException:
            lock.release()
            remove_if_unused(directory)
            raise
        logger.update_config(trainer.config)
        spec.write(directory)
        _replace(directory / MACHINE_FILE, json.dumps(describe_machine(), indent=2) + "\n")
        return cls(spec, directory, trainer, lock=lock)

    @classmethod
    def resume(cls, directory: Path, stop: StopCriterion, warn: Callable[[str], None]) -> TrainingRun:
        """Goes on with a run from its newest checkpoint that can be loaded, or from the beginning if it has none.

        Args:
            directory: The run directory.
            stop: A new criterion; the old one holds where it sets no limit.
            warn: Is told what could not be used.

        Raises:
            CheckpointError: If there is no run, or none of its checkpoints can be loaded.
        """
        spec = RunSpec.read(directory).with_stop(stop)
        check_monitors(spec.monitors)
        lock = RunLock(directory)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(lock.release)
            remove_unfinished(directory)
            trainer, logger = _make_trainer(find_trainer_class(spec.algorithm), spec, directory)
            on_failure.callback(trainer.stop)
            logger.update_config(trainer.config)
            checkpoint = restore_newest(trainer, directory, warn) if checkpoints(directory) else None
            if checkpoint is None:
                warn(f"{str(directory)!r} has no checkpoint yet: the run starts from the beginning")
            if spec.history is not None:
                steps = [int(row.get("timesteps_total") or 0) for row in read_results(directory)]
                HistoryFile(spec.history).check_same(steps)
            logger.truncate_after(trainer.iteration)
            spec.write(directory)
            run = cls(spec, directory, trainer, checkpoint, lock)
            run._catch_up()
            on_failure.pop_all()
        return run

    def run(self, make_view: Callable[[str, StopCriterion, Watched], Any] = make_view) -> Outcome:
        """Trains until the criterion, patience or a signal ends it, and leaves a checkpoint.

        Args:
            make_view: Makes what the run is shown by, from a title, the criterion and the run.
        """
        title = f"{self.spec.algorithm} on {self.spec.env}  {self.directory}"
        rates = self._rates()
        limit = self.spec.stop.timesteps_total
        self.trainer.env_steps_limit = None if limit is None else math.ceil(limit)
        watched = Watched(read_results(self.directory), self._env_steps)
        with make_view(title, self.spec.stop, watched) as view, StopSignals(view.notice) as signals:
            reason = self._already_reached()
            while not reason:
                signals.install()
                result = self.trainer.train()
                self.checkpoint = None
                verdict = self._watch.update(result)
                self._write(result)
                view.update(rates.row(result), result)
                reason = self._end(result, verdict, by_hand=bool(signals.received))
                self._follow(verdict, view)
                if not reason and self._checkpoint_is_due():
                    self._save_along_the_way(view, self._save)
            return Outcome(self.directory, reason, signals.received, self.checkpoint or self._save())

    def _env_steps(self) -> int | None:
        """Returns the env steps that the plan has counted by now; None where the trainer has no such plan."""
        shared = getattr(getattr(self.trainer, "train_exec_impl", None), "shared_metrics", None)
        return None if shared is None else int(shared.get().counters.get(STEPS_SAMPLED_COUNTER, 0))

    def close(self) -> None:
        """Stops the workers and closes the files."""
        with contextlib.ExitStack() as ends:  # in the other order, and the others also where one raises
            if self._lock is not None:
                ends.callback(self._lock.release)
            for monitor in reversed(self._monitors):
                ends.callback(monitor.close)
            ends.callback(self.trainer.stop)

    def _catch_up(self) -> None:
        """Brings patience, learning rate and history to where the results before the checkpoint left them."""
        rows = read_results(self.directory)
        for row in rows:
            self._watch.update(row)
        if self._watch.reductions:
            reduce_learning_rate(self.trainer, self._reduction())
        if self._history is not None:
            self._history.truncate_after(int(rows[-1].get("timesteps_total") or 0) if rows else -1)

    def _write(self, result: Mapping[str, Any]) -> None:
        """Hands a result to what keeps it beside the logger."""
        if self._history is not None:
            self._history.append(result)
        numbers = numbers_of(result) if self._monitors else {}
        for monitor in self._monitors:
            monitor.log(numbers, int(result["timesteps_total"] or 0))
        if hasattr(self.trainer, "plan_report"):
            _replace(self.directory / PLAN_FILE, json.dumps(self.trainer.plan_report().to_dict()))

    def _end(self, result: Mapping[str, Any], verdict: Verdict, *, by_hand: bool) -> str | None:
        """Returns why the run ends here, None where it goes on."""
        return self.spec.stop.reached(result) or verdict.reason or ("stopped by hand" if by_hand else None)

    def _follow(self, verdict: Verdict, view: PlainView | LiveView) -> None:
        """Does what a verdict asks for."""
        if verdict.is_best and self.spec.keep_best:
            self._save_along_the_way(view, self._save_best)
        if verdict.reduce:
            rate = reduce_learning_rate(self.trainer, self._reduction())
            view.say(f"iter {self.trainer.iteration}  the mean return does not rise: learning rate {rate:g}")

    def _reduction(self) -> float:
        return float((self.spec.patience.reduce_factor or 1.0) ** self._watch.reductions)

    def _rates(self) -> Rates:
        batch_size = int(self.trainer.config.get("train_batch_size") or 1)
        rows = read_results(self.directory)
        if not rows:
            return Rates(batch_size)
        trained = int((rows[-1].get("info") or {}).get("num_steps_trained", 0))
        return Rates(batch_size, int(rows[-1].get("timesteps_total") or 0), trained)

    def _already_reached(self) -> str | None:
        """Returns which limit a resumed run has reached before it goes on."""
        rows = read_results(self.directory)
        return self.spec.stop.reached(rows[-1]) if rows else None

    def _checkpoint_is_due(self) -> bool:
        freq = self.spec.checkpoint_freq
        return freq > 0 and self.trainer.iteration % freq == 0

    def _save_along_the_way(self, view: PlainView | LiveView, save: Callable[[], Any]) -> None:
        try:
            save()
        except OSError as error:  # a full disk must not end the run: the checkpoint before is still there
            view.say(f"warning: no checkpoint at iteration {self.trainer.iteration}, training goes on: {error}")

    def _save(self) -> Path:
        path = save_into(self.trainer, self.directory / CHECKPOINTS)
        prune(self.directory, self.spec.keep_checkpoints)
        return path

    def _save_best(self) -> None:
        """Writes the checkpoint with the best mean return: for playing back, so without a replay buffer."""
        with _without_buffer(self.trainer.config):
            (self.directory / BEST).mkdir(exist_ok=True)
            kept = save_into(self.trainer, self.directory / BEST)
        # A run that was resumed may have one of a later iteration, which has not been reached again.
        for path in checkpoints(self.directory, BEST):
            if path.name != kept.name:
                shutil.rmtree(path, ignore_errors=True)


def check_config(trainer_class: Any, config: Mapping[str, Any]) -> None:
    """Raises a ConfigError that lists every fault, before anything is made."""
    trainer_class.merge_trainer_configs(trainer_class.get_default_config(), dict(config))


def _check_outputs(spec: RunSpec) -> None:
    """Raises where a new run could not write what it is asked to, before anything is made."""
    check_monitors(spec.monitors)
    if spec.history is not None and len(HistoryFile(spec.history)):
        raise ConfigError(
            f"--history: {spec.history!r} holds the history of another run: name another file, or go on with that run "
            "by --resume"
        )


@contextlib.contextmanager
def _without_buffer(config: dict[str, Any]) -> Iterator[None]:
    key = "store_buffer_in_checkpoints"
    before = config.get(key)
    if before is not None:
        config[key] = False
    try:
        yield
    finally:
        if before is not None:
            config[key] = before


def _replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def warn(text: str) -> None:
    """Writes a warning to standard error."""
    sys.stderr.write(f"warning: {text}\n")


def _make_trainer(trainer_class: Any, spec: RunSpec, directory: Path) -> tuple[Any, RunLogger]:
    """Returns the trainer and the logger it writes to."""
    made: list[RunLogger] = []

    def make_logger(config: Mapping[str, Any]) -> RunLogger:
        made.append(RunLogger(directory, config))
        return made[0]

    with starting(_remote_workers(trainer_class, spec.config)):
        trainer = trainer_class(config=dict(spec.config), env=spec.env, logger_creator=make_logger)
    if not made:
        raise CheckpointError(f"{trainer_class.__name__} does not call logger_creator; it cannot write {directory}")
    return trainer, made[0]


def _remote_workers(trainer_class: Any, config: Mapping[str, Any]) -> int:
    """Returns how many processes the trainer is going to start."""
    whole = {**trainer_class.get_default_config(), **config}
    return sum(int(whole.get(key) or 0) for key in ("num_workers", "evaluation_num_workers"))
