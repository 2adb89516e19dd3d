"""Calls of remote workers that a program keeps under way itself, in a `training_iteration` of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

InFlight = MutableMapping[Any, set[Any]]


def _sample(worker: Any) -> Any:
    return worker.sample()


def asynchronous_parallel_requests(  # noqa: PLR0913, PLR0917 - RLlib's signature
    remote_requests_in_flight: InFlight,
    actors: Sequence[Any],
    ray_wait_timeout_s: float | None = None,
    max_remote_requests_in_flight_per_actor: float = 2,
    remote_fn: Callable[..., Any] | None = _sample,
    remote_args: Sequence[Sequence[Any]] | None = None,
    remote_kwargs: Sequence[dict[str, Any]] | None = None,
    return_result_obj_ref_ids: bool = False,
    num_requests_to_launch: int = 1,
) -> dict[Any, list[Any]]:
    """Asks actors for something, and returns what has come, of these calls and of those that were under way.

    Args:
        remote_requests_in_flight: The calls under way by actor, such as `Trainer.remote_requests_in_flight`. Changed.
        actors: Whom to ask; what others were asked is not waited for.
        ray_wait_timeout_s: Seconds to wait; None waits until one has come.
        max_remote_requests_in_flight_per_actor: No actor is asked anew that has so many calls under way.
        remote_fn: `fn(actor, *args, **kwargs)`, called within each actor; None asks nothing new.
        remote_args: Its arguments, a list for each actor.
        remote_kwargs: Its arguments by name, a dict for each actor.
        return_result_obj_ref_ids: Whether references of Ray are returned, not what they stand for.
        num_requests_to_launch: Calls that each actor gets.

    Returns:
        Results by actor, of those that have any.

    Raises:
        ValueError: If there are not as many arguments as actors.
    """
    import ray

    for name, given in (("remote_args", remote_args), ("remote_kwargs", remote_kwargs)):
        if given is not None and len(given) != len(actors):
            raise ValueError(f"{name}: got {len(given)}, wanted one for each of the {len(actors)} actors")
    for index, actor in enumerate(actors):
        under_way = remote_requests_in_flight.setdefault(actor, set())
        args = remote_args[index] if remote_args else ()
        kwargs = remote_kwargs[index] if remote_kwargs else {}
        for _ in range(0 if remote_fn is None else num_requests_to_launch):
            if len(under_way) < max_remote_requests_in_flight_per_actor:
                under_way.add(actor.apply.remote(remote_fn, *args, **kwargs))
    asked = {call: actor for actor in actors for call in remote_requests_in_flight[actor]}
    results: defaultdict[Any, list[Any]] = defaultdict(list)
    if not asked:
        return results
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ray_wait_timeout_s or 0)
    if not ready and ray_wait_timeout_s is None:
        ready, _ = ray.wait(list(asked), num_returns=1)
    for call in ready:
        remote_requests_in_flight[asked[call]].discard(call)
    for call, result in zip(ready, ready if return_result_obj_ref_ids else ray.get(ready), strict=True):
        results[asked[call]].append(result)
    return results


def wait_asynchronous_requests(
    remote_requests_in_flight: InFlight, ray_wait_timeout_s: float | None = None
) -> dict[Any, list[Any]]:
    """Returns what has come of the calls under way, and asks nothing new; see `asynchronous_parallel_requests`."""
    actors = list(remote_requests_in_flight)
    return asynchronous_parallel_requests(remote_requests_in_flight, actors, ray_wait_timeout_s, remote_fn=None)


def asynchronous_parallel_sample(  # noqa: PLR0913, PLR0917 - RLlib's signature
    trainer: Any,
    actors: Sequence[Any],
    ray_wait_timeout_s: float | None = None,
    max_remote_requests_in_flight_per_actor: int = 2,
    remote_fn: Callable[..., Any] | None = None,
    remote_args: Sequence[Sequence[Any]] | None = None,
    remote_kwargs: Sequence[dict[str, Any]] | None = None,
) -> list[Any] | None:
    """Returns what has come as one list, None where nothing has: the form of RLlib 1.11.

    Args:
        trainer: The trainer, whose calls under way are counted.
        actors: Whom to ask.
        ray_wait_timeout_s: Seconds to wait; None waits until one has come.
        max_remote_requests_in_flight_per_actor: No actor is asked anew that has so many calls under way.
        remote_fn: `fn(actor, *args, **kwargs)`, called within each actor; None asks for samples.
        remote_args: Its arguments, a list for each actor.
        remote_kwargs: Its arguments by name, a dict for each actor.
    """
    came = asynchronous_parallel_requests(
        trainer.remote_requests_in_flight,
        actors,
        ray_wait_timeout_s,
        max_remote_requests_in_flight_per_actor,
        remote_fn or _sample,
        remote_args,
        remote_kwargs,
    )
    return [result for results in came.values() for result in results] or None
