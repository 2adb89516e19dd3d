"""Sources that gather items from remote actors: one of each in turn, or as they come."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from rlframe.execution.plan.context import _get_shared_metrics, _NextValueNotReady
from rlframe.utils.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Anything that can be asked for its next item: the actor, and the call that returns a Ray object reference.
    Request = Callable[[Any], Any]


class ShardEnd:
    """What a shard answers when it has no more items; a StopIteration does not survive the way through Ray."""


class RequestRound:
    """One open request per actor, kept until all are answered.

    When one fails, the error is raised, and the answers of the others are kept for the next attempt: what healthy
    workers have sampled is not lost with a dead one.

    Args:
        request: Called with an actor; returns the reference of its next item.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._open: dict[Any, Any] = {}
        self._given: dict[Any, Any] = {}

    def begin(self, actors: Sequence[Any]) -> None:
        """Asks every actor that has no open request; forgets those of actors that are no longer there."""
        current = set(actors)
        self._open = {actor: ref for actor, ref in self._open.items() if actor in current}
        self._given = {actor: answer for actor, answer in self._given.items() if actor in current}
        for actor in actors:
            if actor not in self._open and actor not in self._given:
                self._open[actor] = self._request(actor)

    def collect(self, actors: Sequence[Any], timeout_s: float | None = None) -> list[Any] | None:
        """Returns one answer per actor, in the order of `actors`; None if not all have come within `timeout_s`.

        Raises:
            RayError: What the first failing request failed with.
        """
        import ray

        self.begin(actors)
        refs = list(self._open.values())
        if refs and timeout_s is not None:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=timeout_s)
            if len(ready) < len(refs):
                return None
        try:
            answers = dict(zip(self._open, ray.get(refs), strict=True))
        except Exception:
            self._forget_failed()
            raise
        answers.update(self._given)
        self._open, self._given = {}, {}
        return [answers[actor] for actor in actors]

    def answers(self) -> dict[Any, Any]:
        """Returns by actor what open requests are answered with, and waits for it; those that fail are left out."""
        from rlframe.evaluation.cluster import answers_of

        actors = list(self._open)
        answered, _ = answers_of([self._open[actor] for actor in actors])
        return {**{actors[place]: answer for place, answer in answered.items()}, **self._given}

    def give(self, answers: dict[Any, Any]) -> None:
        """Takes answers of actors, which are not asked again in this round."""
        self._given = dict(answers)

    def _forget_failed(self) -> None:
        import ray

        for actor, ref in list(self._open.items()):
            ready, _ = ray.wait([ref], timeout=0)
            if ready:
                try:
                    ray.get(ref)
                except Exception:
                    del self._open[actor]


class AsyncRequests:
    """A bounded number of open requests per actor; answers are given as they come, those of one actor in order.

    Args:
        actors: Returns the actors to ask. It is called before every item, so that actors which were removed, replaced
            or added meanwhile are taken into account.
        request: Called with an actor; returns the reference of its next item.
        num_async: Open requests per actor.
        timeout_s: Seconds to wait for an item before a not-ready marker is given; None waits.
    """

    def __init__(
        self, actors: Callable[[], Sequence[Any]], request: Request, num_async: int = 1, timeout_s: float | None = None
    ) -> None:
        if num_async < 1:
            raise ValueError(f"Got num_async={num_async}, wanted 1 or more requests in flight per actor")
        self._actors = actors
        self._request = request
        self._num_async = num_async
        self._timeout_s = timeout_s
        # By actor, the one that was served longest ago first; references in the order in which they were asked for.
        self._open: dict[Any, deque[Any]] = {}
        self._ended: set[Any] = set()
        self._fetches = False

    def __iter__(self) -> AsyncRequests:
        return self

    def __next__(self) -> Any:
        import ray

        while True:
            self._top_up()
            if not self._open:
                if self._ended:
                    raise StopIteration
                raise WorkerError("Got no actors to gather items from, wanted at least one; are all workers dead?")
            # Only the oldest request of each actor is waited for: ray.wait() may prefer a younger one.
            heads = {requests[0]: actor for actor, requests in self._open.items()}
            ready, _ = ray.wait(list(heads), num_returns=1, timeout=self._timeout_s, fetch_local=self._fetches)
            if not ready:
                return _NextValueNotReady()
            actor = heads[ready[0]]
            requests = self._open.pop(actor)
            requests.popleft()
            self._open[actor] = requests
            item = ray.get(ready[0])
            if isinstance(item, ShardEnd):
                self._ended.add(actor)
                continue
            requests.append(self._request(actor))
            _get_shared_metrics().current_actor = actor
            return item

    def _top_up(self) -> None:
        """Opens the requests that are missing: at the start, after a failure, and when actors have changed."""
        wanted = [actor for actor in self._actors() if actor not in self._ended]
        if len(wanted) != len(self._open) or any(actor not in self._open for actor in wanted):
            current = set(wanted)
            self._open = {actor: requests for actor, requests in self._open.items() if actor in current}
            # Items of other nodes are fetched while they are waited for; to ask for that costs a round to Ray's daemon
            # for each item, so that it is not asked where there is one node.
            self._fetches = _on_several_nodes()
        for actor in wanted:
            requests = self._open.setdefault(actor, deque())
            while len(requests) < self._num_async:
                requests.append(self._request(actor))


def _on_several_nodes() -> bool:
    import ray

    return len([node for node in ray.nodes() if node["Alive"]]) > 1
