"""What happens after a worker or an environment failed and training shall go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from rlframe.evaluation.cluster import unwrap_ray_error
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError, WorkerError

_LOGGER = logging.getLogger("rlframe")
#: How often in a row something is tried again, with `ignore_worker_failures` and the like, while nothing moves on.
MAX_WORKER_FAILURE_RETRIES = 3

T = TypeVar("T")


class NoWorkersLeftError(WorkerError):
    """All remote workers are dead, and none could be replaced."""


def is_tolerant(trainer: Any) -> bool:
    """Returns whether a trainer goes on after failures of workers and environments."""
    return bool(trainer.config["ignore_worker_failures"] or trainer.config["recreate_failed_workers"])


def with_recovery(
    trainer: Any,
    work: Callable[[], T],
    *,
    first: Callable[[], T] | None = None,
    progress: Callable[[], int] | None = None,
    in_plan: bool = False,
) -> T:
    """Returns what `work` does, tried again after failures of workers and environments if the config says so.

    Args:
        trainer: The trainer.
        work: What needs workers; what it did before it failed must not be done twice.
        first: What is called instead of `work` at first, such as the result of something that runs already.
        progress: Returns a number that grows while work is done. Attempts are counted anew when it has grown, so that
            rare failures end nothing, however long the work is. None: env steps sampled.
        in_plan: Whether `work` pulls from the plan, which cannot be pulled from again after it has raised.

    Raises:
        WorkerError: If all workers are dead, or nothing moves on in several attempts.
        Exception: What `work` raised, if failures are not to be ignored or it is another.
    """
    if not is_tolerant(trainer):
        return _once(first or work)
    measure = progress or (lambda: _steps_sampled(trainer))
    before, failures = measure(), 0
    while True:
        _require_workers(trainer)
        try:
            return (first or work)()
        except Exception as error:
            cause = unwrap_ray_error(error)
        first, now = None, measure()
        before, failures = now, 1 if now > before else failures + 1
        recover(trainer, cause, in_plan=in_plan)
        if failures > MAX_WORKER_FAILURE_RETRIES:
            raise WorkerError(
                f"gave up iteration {trainer.iteration + 1} after {failures} attempts in a row in which nothing was "
                f"sampled: {cause}"
            ) from cause


def _once(work: Callable[[], T]) -> T:
    try:
        return work()
    except Exception as error:
        cause = unwrap_ray_error(error)
        if cause is error:
            raise
        raise cause from error


def _steps_sampled(trainer: Any) -> int:
    from rlframe.execution.common import STEPS_SAMPLED_COUNTER

    return int(trainer.train_exec_impl.shared_metrics.get().counters[STEPS_SAMPLED_COUNTER])


def _require_workers(trainer: Any) -> None:
    if trainer.config["num_workers"] and not trainer.workers.remote_workers():
        raise NoWorkersLeftError(
            "not enough healthy workers remain to continue: all remote workers died; make a new trainer and restore() "
            "what this one saves (save() still works)"
        )


def recover(trainer: Any, cause: BaseException, *, in_plan: bool = False) -> None:
    """Drops or replaces dead workers, those of evaluation too, and builds the plan anew where it needs it.

    The plan's counters and positions are kept. An environment that raised in a living worker needs nothing here: its
    slot starts a new episode (with a new environment under `recreate_failed_workers`) when it is next sampled from.

    Args:
        trainer: The trainer.
        cause: What was raised.
        in_plan: Whether the plan raised it.

    Raises:
        WorkerError: If no healthy worker is left, or workers die faster than they are replaced.
        Exception: `cause` itself where it is no failure of a worker or environment.
    """
    _raise_others(cause)
    told, needs_plan = False, in_plan
    for _ in range(1 + MAX_WORKER_FAILURE_RETRIES):
        try:
            for workers, name in ((trainer.workers, "worker"), (trainer.evaluation_workers, "evaluation worker")):
                changes = _heal(trainer, workers, name)
                if changes:
                    told = True
                    needs_plan = needs_plan or workers is trainer.workers
                    _LOGGER.warning("%s", changes)
            if needs_plan:
                _require_workers(trainer)
                _rebuild_plan(trainer)
            break
        except NoWorkersLeftError:
            raise
        except Exception as error:
            cause = unwrap_ray_error(error)
            _raise_others(cause)
    else:
        raise WorkerError(f"workers die faster than they are replaced: {cause}") from cause
    if not told:
        _LOGGER.warning("an environment or a helper process failed and training goes on: %s", cause)


def _raise_others(cause: BaseException) -> None:
    """Raises what is no failure of a worker or an environment."""
    import ray

    recoverable = (ray.exceptions.RayError, EnvError, WorkerError)
    if not isinstance(cause, recoverable) or isinstance(cause, (ConfigError, NonFiniteError, NoWorkersLeftError)):
        raise cause


def _heal(trainer: Any, workers: Any, name: str) -> str:
    """Drops or replaces the dead ones of a WorkerSet; returns what was done and lost in words, "" for nothing."""
    dead = {} if workers is None else workers.probe()
    if not dead:
        return ""
    indexes, had = workers.remote_indexes(), len(workers.remote_workers())
    # An evaluation without workers is none, and what replaces the last one has nothing to take over.
    is_last = workers is not trainer.workers and len(dead) == had
    if trainer.config["recreate_failed_workers"] or is_last:
        failures = workers.recreate(dead)
    else:
        failures = dict.fromkeys((indexes[position] for position in dead), None)
        workers.drop(dead)
    replaced = [indexes[position] for position in dead if indexes[position] not in failures]
    said = [f"{name} {indexes[position]} died ({why})" for position, why in dead.items()]
    if replaced:
        said.append(f"replaced: {', '.join(map(str, replaced))}")
    said += [f"{name} {index} could not be replaced: {error}" for index, error in failures.items() if error is not None]
    said.append(
        "lost: their running episodes, and what they had sampled or seen since they last sent it. "
        f"{len(workers.remote_workers())} of {had} go on"
    )
    return "; ".join(said)


def _rebuild_plan(trainer: Any) -> None:
    """Makes the plan from the workers there are, and takes over counters and positions."""
    old = trainer.train_exec_impl
    old.close()
    plan = trainer._make_plan()
    try:
        plan.set_state(old.get_state())
    except BaseException:
        plan.close()
        raise
    trainer.train_exec_impl = plan
