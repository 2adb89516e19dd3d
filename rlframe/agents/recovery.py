"""What happens after a worker failed and training shall go on."""

from __future__ import annotations

import logging
from typing import Any

from rlframe.utils.errors import ConfigError, EnvError, NonFiniteError, WorkerError

_LOGGER = logging.getLogger("rlframe")


def recover(trainer: Any, cause: BaseException) -> None:
    """Drops or replaces dead remote workers and builds the plan anew with its counters and positions kept.

    An environment that raised in a living worker needs nothing here: its slot starts a new episode (with a new
    environment under `recreate_failed_workers`) when it is next sampled from.

    Raises:
        WorkerError: If no healthy worker is left.
        Exception: `cause` itself where it is no failure of a worker or environment.
    """
    import ray

    if not isinstance(cause, (ray.exceptions.RayError, EnvError, WorkerError)) or isinstance(
        cause, (ConfigError, NonFiniteError)
    ):
        raise cause
    trainer.train_exec_impl.close()
    workers = trainer.workers
    _LOGGER.warning("a worker or environment failed and training goes on: %s", cause)
    if workers.remote_workers():
        dead = workers.probe()
        if trainer.config["recreate_failed_workers"]:
            workers.recreate(dead)
        else:
            workers.drop(dead)
        if not workers.remote_workers():
            raise WorkerError("not enough healthy workers remain to continue: all remote workers died") from cause
        workers.sync_weights(global_vars=workers.local_worker().get_global_vars())
    state = trainer.train_exec_impl.get_state()
    trainer.train_exec_impl = trainer._make_plan()
    trainer.train_exec_impl.set_state(state)
