"""Helpers for Ray actors, as RLlib's `utils.actors` had them: tasks that are under way, and actors on this machine."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any

#: Seconds for which `TaskPool.completed` waits at most.
_PATIENCE_S = 10.0


class TaskPool:
    """Tasks that actors are working on: which of them are done, and whose they are."""

    def __init__(self) -> None:
        self._tasks: dict[Any, tuple[Any, Any]] = {}
        self._fetching: deque[tuple[Any, Any]] = deque()

    def add(self, worker: Any, all_obj_refs: Any) -> None:
        """Notes a task.

        Args:
            worker: The actor that works on it.
            all_obj_refs: What its call returned: a reference, or a list of them, of which the first is waited for.
        """
        first = all_obj_refs[0] if isinstance(all_obj_refs, list) else all_obj_refs
        self._tasks[first] = (worker, all_obj_refs)

    def completed(self, blocking_wait: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yields (worker, references) of each task that is done, and forgets it.

        Args:
            blocking_wait: Wait for the first one, up to ten seconds, where none is.
        """
        import ray

        pending = list(self._tasks)
        if not pending:
            return
        ready, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
        if not ready and blocking_wait:
            ready, _ = ray.wait(pending, num_returns=1, timeout=_PATIENCE_S)
        for ref in ready:
            yield self._tasks.pop(ref)

    def completed_prefetch(self, blocking_wait: bool = False, max_yield: int = 999) -> Iterator[tuple[Any, Any]]:
        """Yields what `completed` does, at most `max_yield` of them; the others are kept for the next call."""
        self._fetching.extend(self.completed(blocking_wait))
        for _ in range(min(max_yield, len(self._fetching))):
            yield self._fetching.popleft()

    def reset_workers(self, workers: Collection[Any]) -> None:
        """Forgets the tasks of all actors but these."""
        self._tasks = {ref: task for ref, task in self._tasks.items() if task[0] in workers}
        kept = [task for task in self._fetching if task[0] in workers]
        self._fetching.clear()
        self._fetching.extend(kept)

    @property
    def count(self) -> int:
        """Tasks that are not known to be done."""
        return len(self._tasks)


def split_colocated(actors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the actors of this machine, and the others; they tell by `get_host()`."""
    import ray

    here = platform.node()
    hosts = ray.get([actor.get_host.remote() for actor in actors])
    local = [actor for actor, host in zip(actors, hosts, strict=True) if host == here]
    return local, [actor for actor, host in zip(actors, hosts, strict=True) if host != here]


def drop_colocated(actors: Sequence[Any]) -> list[Any]:
    """Ends the actors of this machine, and returns the others."""
    local, others = split_colocated(actors)
    _end(local)
    return others


def try_create_colocated(cls: Any, args: Sequence[Any], count: int) -> list[Any]:
    """Makes `count` actors `cls.remote(*args)`, ends those that are not on this machine, and returns the others."""
    local, others = split_colocated([cls.remote(*args) for _ in range(count)])
    _end(others)
    return local


def create_colocated(cls: Any, args: Sequence[Any], count: int) -> list[Any]:
    """Returns `count` actors `cls.remote(*args)` on this machine.

    Raises:
        RuntimeError: If the cluster puts too few of them here in nine attempts.
    """
    made: list[Any] = []
    for attempt in range(1, 10):
        if len(made) >= count:
            break
        made.extend(try_create_colocated(cls, args, count * attempt))
    if len(made) < count:
        _end(made)
        raise RuntimeError(f"Got {len(made)} actors on {platform.node()}; wanted {count}: free some of its CPUs.")
    _end(made[count:])
    return made[:count]


def create_colocated_actors(
    actor_specs: Sequence[tuple[Any, Any, Any, int]], node: str | None = "localhost", max_attempts: int = 10
) -> list[list[Any]]:
    """Returns actors that are all on one machine: for each specification a list.

    Args:
        actor_specs: `(actor class, arguments, keyword arguments, count)`; the class has a `get_host()`.
        node: Name of the machine; "localhost" for this one, None for the one that the first actor gets.
        max_attempts: How often to try; those that are elsewhere, or too many, are ended.

    Raises:
        RuntimeError: If the cluster puts too few of them there in so many attempts.
    """
    import ray

    host = platform.node() if node == "localhost" else node
    made: list[list[Any]] = [[] for _ in actor_specs]
    for attempt in range(1, max_attempts + 1):
        for actors, (cls, args, kwargs, count) in zip(made, actor_specs, strict=True):
            if len(actors) >= count:
                continue
            tried = [cls.remote(*(args or ()), **(kwargs or {})) for _ in range(count * attempt)]
            hosts = ray.get([actor.get_host.remote() for actor in tried])
            host = hosts[0] if host is None else host
            actors.extend(actor for actor, where in zip(tried, hosts, strict=True) if where == host)
            _end([actor for actor, where in zip(tried, hosts, strict=True) if where != host] + actors[count:])
            del actors[count:]
        if all(len(actors) >= spec[3] for actors, spec in zip(made, actor_specs, strict=True)):
            return made
    _end([actor for actors in made for actor in actors])
    counts, wanted = [len(actors) for actors in made], [spec[3] for spec in actor_specs]
    raise RuntimeError(f"Got {counts} actors on {host}; wanted {wanted}: free some of its CPUs.")


def _end(actors: Sequence[Any]) -> None:
    for actor in actors:
        actor.__ray_terminate__.remote()


def in_object_store(made: Any) -> Any:
    """Returns a reference to a value that all actors see, without copies of its arrays."""
    import ray

    return ray.put(made)
