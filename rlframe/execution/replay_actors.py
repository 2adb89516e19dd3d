"""Replay buffers in actors of their own: what stores batches in them, and gives batches out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.execution.plan.context import _NextValueNotReady
from rlframe.execution.plan.remote_sources import AsyncRequests
from rlframe.utils.errors import WorkerError
from rlframe.utils.seeding import entropy_seed, make_rng

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlframe.execution.plan.context import Batch

#: Batches that may be on their way to each replay actor.
_UNDER_WAY = 8


class StoreInActors:
    """Sends each batch to a random actor.

    Args:
        actors: The replay actors.
        seed: Seed of the choice; None for a fresh one.
        timeout_s: How long to wait where too many are under way, in seconds; None until there is room.
    """

    def __init__(self, actors: list[Any], seed: int | None, timeout_s: float | None) -> None:
        self._actors, self._timeout_s = actors, timeout_s
        self._under_way: list[Any] = []
        self._rng = make_rng(entropy_seed() if seed is None else seed, "store")

    def __call__(self, batch: Batch) -> Any:
        """Returns the batch once it is on its way, or a not-ready marker while too many are.

        Raises:
            ValueError: If an actor refused an earlier batch.
            WorkerError: If an actor has died.
        """
        if not self._has_room():
            return _NextValueNotReady()
        actor = self._actors[int(self._rng.integers(len(self._actors)))]
        self._under_way.append(actor.add_batch.remote(batch))
        return batch

    def _has_room(self) -> bool:
        """Returns whether one more batch may be under way; raises what actors said to earlier ones."""
        import ray

        if not self._under_way:
            return True
        over = len(self._under_way) + 1 - _UNDER_WAY * len(self._actors)
        if over > 0:
            ray.wait(self._under_way, num_returns=over, timeout=self._timeout_s)
        done, self._under_way = ray.wait(self._under_way, num_returns=len(self._under_way), timeout=0)
        try:
            ray.get(done)
        except ray.exceptions.RayError as error:
            raise explained(error) from error
        return len(self._under_way) < _UNDER_WAY * len(self._actors)


class ActorsReplay:
    """Batches of replay actors as they come."""

    plan_name = "Replay"

    def __init__(self, actors: Sequence[Any], num_async: int, timeout_s: float | None) -> None:
        self._actors = list(actors)
        self._requests = AsyncRequests(lambda: self._actors, lambda a: a.replay.remote(), num_async, timeout_s)

    def plan_args(self) -> str:
        """Returns how many there are, for reports."""
        return f"{len(self._actors)} actors"

    def __iter__(self) -> ActorsReplay:
        return self

    def __next__(self) -> Any:
        import ray

        try:
            batch = next(self._requests)
        except ray.exceptions.RayError as error:
            raise explained(error) from error
        return _NextValueNotReady() if batch is None else batch


def explained(error: Any) -> Exception:
    """Returns what a replay actor failed with as an error that says what to do."""
    import ray

    if isinstance(error, ray.exceptions.RayTaskError):
        return ValueError(f"a replay shard refused: {error.cause or error}")
    why = str(error).strip().partition("\n")[0]
    return WorkerError(
        f"a replay shard died, and its transitions are lost ({why}); recreate_failed_workers=True puts an empty one in "
        "its place, restore() goes on from a checkpoint; where memory was short, lower replay_buffer_config.capacity"
    )
