"""What happens after a worker or an environment failed and training shall go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from rlframe.execution.plan.item_state import kept_as_they_are
from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError, WorkerError

_LOGGER = logging.getLogger("rlframe")
#: How often in a row something is tried again, with `ignore_worker_failures` and the like, while nothing moves on.
MAX_WORKER_FAILURE_RETRIES = 3
#: The same where workers have died: somebody else may be killing them, and each may be the last.
_MOST_DEATHS = 10

T = TypeVar("T")


class NoWorkersLeftError(WorkerError):
    """All remote workers are dead, and none could be replaced."""


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
    if not trainer.workers.tolerates_failures:
        return _once(first or work)
    measure = progress or (lambda: _steps_sampled(trainer))
    before, failures = measure(), 0
    while True:
        _require_workers(trainer)
        try:
            return (first or work)()
        except Exception as error:
            cause = _cause_of(error)
        first, now = None, measure()
        before, failures = now, 1 if now > before else failures + 1
        has_died = recover(trainer, cause, in_plan=in_plan)
        if failures > (_MOST_DEATHS if has_died else MAX_WORKER_FAILURE_RETRIES):
            if _drop_failing(trainer):
                failures = 0
                continue
            raise WorkerError(
                f"gave up iteration {trainer.iteration + 1} after {failures} attempts in a row in which nothing was "
                f"sampled: {cause}"
            ) from cause


def _once(work: Callable[[], T]) -> T:
    try:
        return work()
    except Exception as error:
        cause = _cause_of(error)
        if cause is error:
            raise
        raise cause from error


def _cause_of(error: BaseException) -> BaseException:
    from rlframe.evaluation.cluster import unwrap_ray_error  # Ray is loaded when something failed, not before

    return unwrap_ray_error(error)


def _steps_sampled(trainer: Any) -> int:
    from rlframe.execution.plan.context import STEPS_SAMPLED_COUNTER

    return int(trainer.train_exec_impl.shared_metrics.get().counters[STEPS_SAMPLED_COUNTER])


def _require_workers(trainer: Any) -> None:
    """Raises where no worker is left; where dead ones are replaced, what could not be had before is tried again."""
    workers = trainer.workers
    if not trainer.config["num_workers"] or workers.remote_workers():
        return
    failures = workers.recreate() if trainer.config["recreate_failed_workers"] else {}
    if workers.remote_workers():
        _rebuild_plan(trainer)
        return
    why = "".join(f"; worker {index}: {error}" for index, error in failures.items())
    raise NoWorkersLeftError(
        f"not enough healthy workers remain to continue: all remote workers died{why}. save() still works, and a new "
        "trainer can restore() what it saves"
    )


def recover(trainer: Any, cause: BaseException, *, in_plan: bool = False) -> bool:
    """Drops or replaces dead workers, those of evaluation too, and builds the plan anew where it needs it.

    The plan's counters and positions are kept. An environment that raised in a living worker needs nothing here: its
    slot starts a new episode (with a new environment under `recreate_failed_workers`) when it is next sampled from.

    Args:
        trainer: The trainer.
        cause: What was raised.
        in_plan: Whether the plan raised it.

    Returns:
        Whether workers had died.

    Raises:
        WorkerError: If no healthy worker is left, or workers die faster than they are replaced.
        Exception: `cause` itself where it is no failure of a worker or environment.
    """
    _raise_others(cause)
    has_died, needs_plan, fruitless = False, in_plan, 0
    for _ in range(_MOST_DEATHS):
        deaths = False
        try:
            for workers, name in ((trainer.workers, "worker"), (trainer.evaluation_workers, "evaluation worker")):
                if _heal(trainer, workers, name):
                    has_died = deaths = True
                    needs_plan = needs_plan or workers is trainer.workers
            if needs_plan:
                _require_workers(trainer)
                _rebuild_plan(trainer)
        except Exception as error:
            cause = _cause_of(error)
            _raise_others(cause)
        else:
            if not has_died:
                _LOGGER.warning("an environment or a helper process failed and training goes on: %s", cause)
            return has_died
        fruitless = 0 if deaths else fruitless + 1
        if fruitless > MAX_WORKER_FAILURE_RETRIES:
            break
    raise WorkerError(f"workers fail faster than they are replaced: {cause}") from cause


def revive(trainer: Any) -> None:
    """Replaces or drops workers that have died unnoticed, if the config says so."""
    if trainer.workers.tolerates_failures and trainer.workers.probe():
        recover(trainer, WorkerError("workers died between two iterations"))


def _raise_others(cause: BaseException) -> None:
    """Raises what is no failure of a worker or an environment."""
    import ray

    recoverable = (ray.exceptions.RayError, EnvError, WorkerError)
    if not isinstance(cause, recoverable) or isinstance(cause, (ConfigError, NonFiniteError, NoWorkersLeftError)):
        raise cause


def _heal(trainer: Any, workers: Any, name: str) -> bool:
    """Drops or replaces the dead ones of a WorkerSet, and says so; returns whether there were any."""
    dead = {} if workers is None else workers.probe()
    if not dead:
        return False
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
        "lost: their running episodes, what they had sampled or seen since they last sent it"
        f"{', and what was on its way to the learner' if workers is trainer.workers else ''}. "
        f"{len(workers.remote_workers())} of {had} go on"
    )
    _LOGGER.warning("%s", "; ".join(said))
    return True


def _drop_failing(trainer: Any) -> bool:
    """Goes on without living workers whose environments fail each time, if others do not; returns whether it does."""
    from rlframe.evaluation.cluster import answers_of

    workers = trainer.workers
    remotes, indexes = workers.remote_workers(), workers.remote_indexes()
    if not trainer.config["ignore_worker_failures"]:
        return False
    counts, _ = answers_of([worker.apply.remote(_failures_in_a_row) for worker in remotes])
    failing = [position for position, count in counts.items() if count >= MAX_WORKER_FAILURE_RETRIES]
    if not 0 < len(failing) < len(remotes):
        return False
    named = ", ".join(f"worker {indexes[position]}" for position in failing)
    workers.drop(failing)
    _LOGGER.warning(
        "%s failed %d times in a row: %d of %d go on", named, MAX_WORKER_FAILURE_RETRIES, len(remotes) - len(failing),
        len(remotes),
    )  # fmt: skip
    _rebuild_plan(trainer)
    return True


def _failures_in_a_row(worker: Any) -> int:
    count: int = worker.failures_in_a_row
    return count


def _rebuild_plan(trainer: Any) -> None:
    """Makes the plan from the workers there are, and takes over counters and positions."""
    old = trainer.train_exec_impl
    old.close()
    plan = trainer._make_plan()
    try:
        with kept_as_they_are():
            state = old.get_state()
        plan.set_state(state)
    except BaseException:
        plan.close()
        raise
    trainer.train_exec_impl = plan
