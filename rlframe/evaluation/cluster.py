"""What rollout workers need of Ray: a runtime, room for them, and errors that read like the original ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from rlframe.config.common import CommonConfig
from rlframe.utils.errors import WorkerError

_LOGGER = logging.getLogger("rlframe")
#: How long resources are waited for that somebody else holds, in seconds.
_PATIENCE_S = 10.0
#: Largest weights that are sent within a call (Ray's own limit is 100 KiB for each argument), and most copies of them.
_IN_CALL_BYTES, _IN_CALL_RECEIVERS = 64 * 1024, 16


def ensure_ray() -> None:
    """Starts a local Ray runtime where none runs; a cluster is joined by calling `ray.init(address=...)` before."""
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


def needs(config: CommonConfig, num_workers: int) -> dict[str, float]:
    """Returns the resources that `num_workers` rollout workers ask for."""
    wanted = {
        "CPU": float(config.num_cpus_per_worker or 0) * num_workers,
        "GPU": float(config.num_gpus_per_worker or 0) * num_workers,
    }
    for name, amount in (config.custom_resources_per_worker or {}).items():
        wanted[name] = float(amount) * num_workers
    return {name: amount for name, amount in wanted.items() if amount > 0}


def check_room(config: CommonConfig, num_workers: int) -> None:
    """Raises where workers would wait forever for resources that the cluster does not have.

    What exists but is in use is waited for some seconds: actors of a trainer that was just stopped end soon after it.
    Inside a placement group (a Tune trial) the scheduler has reserved them already.

    Raises:
        WorkerError: Names what is asked for, what the cluster has, and what is free.
    """
    if ray.util.get_current_placement_group() is not None:
        return
    wanted, until = needs(config, num_workers), time.monotonic() + _PATIENCE_S
    total = ray.cluster_resources()
    short = _short(wanted, ray.available_resources())
    while short and not _short(wanted, total) and time.monotonic() < until:
        time.sleep(0.1)
        short = _short(wanted, ray.available_resources())
    if short:
        key = {"CPU": "num_cpus_per_worker", "GPU": "num_gpus_per_worker"}.get(short, "custom_resources_per_worker")
        option = {"CPU": "num_cpus=...", "GPU": "num_gpus=..."}.get(short, "resources=...")
        raise WorkerError(
            f"num_workers={num_workers} needs {wanted[short]:g} {short}, but the Ray cluster has "
            f"{total.get(short, 0.0):g} of which {ray.available_resources().get(short, 0.0):g} are free; lower "
            f"num_workers or {key}, free what other programs hold, or start Ray with more (ray.init({option}))"
        )


def _short(wanted: Mapping[str, float], there: Mapping[str, float]) -> str | None:
    """Returns a resource of which less is there than wanted, None if all is."""
    return next((name for name, amount in wanted.items() if amount > there.get(name, 0.0) + 1e-9), None)


def unwrap_ray_error(error: BaseException) -> BaseException:
    """Returns the exception that a remote call really raised, for raising it here."""
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        if isinstance(cause, BaseException):
            return cause
    if isinstance(error, ray.exceptions.ActorDiedError):
        inner = getattr(error, "cause", None) or error
        text = str(inner)
        return WorkerError(
            f"a remote worker died: {text}\nrecreate_failed_workers=True replaces dead workers, "
            "ignore_worker_failures=True goes on without them"
        )
    return error


def as_argument(weights: Mapping[str, Any], receivers: int) -> Any:
    """Returns weights as an argument of calls to actors: small ones as they are, others put into the object store once.

    Ray sends small arguments within the call. Through the store they would pass its daemon, which costs the driver,
    each receiver and the daemon more than the copies do.

    Args:
        weights: `{policy id: {name: array}}`, or what policies of users' own have; it must not change afterwards.
        receivers: How many actors will get it.
    """
    small = receivers <= _IN_CALL_RECEIVERS and sum(map(_bytes_of, weights.values())) <= _IN_CALL_BYTES
    return weights if small else ray.put(weights)


def _bytes_of(weights: Any) -> int:
    """Returns the size of a policy's weights; more than is sent in a call where it cannot be told."""
    if not isinstance(weights, Mapping):
        return _IN_CALL_BYTES + 1
    return sum(int(getattr(array, "nbytes", _IN_CALL_BYTES + 1)) for array in weights.values())


def answers_of(
    references: Sequence[Any], timeout_s: float | None = None
) -> tuple[dict[int, Any], dict[int, BaseException]]:
    """Returns what remote calls answered and with what others failed, both by their places in `references`.

    Who asks several workers loses with a dead one only what that one had.

    Args:
        references: What the calls returned.
        timeout_s: Seconds after which a call that has no answer has failed; None waits.
    """
    answers: dict[int, Any] = {}
    failures: dict[int, BaseException] = {}
    if not references:
        return answers, failures
    _, late = ray.wait(list(references), num_returns=len(references), timeout=timeout_s)
    waiting = set(late)
    for place, reference in enumerate(references):
        try:
            if reference in waiting:
                raise ray.exceptions.GetTimeoutError(f"no answer within {timeout_s:g} s")
            answers[place] = ray.get(reference)
        except ray.exceptions.RayError as error:
            failures[place] = error
    return answers, failures
