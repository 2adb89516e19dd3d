"""Operators that store experiences, and give stored ones back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.columns import BATCH_INDEXES, SEQ_LENS
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch
from rlframe.execution.plan.context import SharedMetrics, _NextValueNotReady
from rlframe.execution.plan.local_iterator import LocalIterator
from rlframe.utils.errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rlframe.data.sample_batch import SampleBatch
    from rlframe.execution.local_rollouts import Batch

_TD_ERROR = "td_error"


def _check_one_given(local_buffer: Any, actors: Sequence[Any] | None) -> None:
    if (local_buffer is None) == (not actors):
        got = "neither" if local_buffer is None else "both"
        raise ValueError(f"Got {got} of local_buffer and actors, wanted exactly one of them")


class StoreToReplayBuffer:
    """Stores batches in a replay buffer.

    Takes a SampleBatch or MultiAgentBatch and gives it on. Actors that store more slowly than workers sample are waited
    for.

    Args:
        local_buffer: A buffer in this process (`add_batch(batch)`).
        actors: Replay actors; each batch goes to a random one of them.
        seed: Seed of that choice.
        blocking: Whether to wait within the call; otherwise it answers with a not-ready marker, so that other branches
            of the plan go on.

    Raises:
        ValueError: If both or neither are given; later, if an actor refuses a batch.
        WorkerError: If an actor has died.
    """

    def __init__(
        self,
        local_buffer: Any = None,
        *,
        actors: Sequence[Any] | None = None,
        seed: int | None = None,
        blocking: bool = True,
    ) -> None:
        _check_one_given(local_buffer, actors)
        self.local_buffer = local_buffer
        self.actors = list(actors or ())
        self._store: Callable[[Batch], Any] | None = None
        if actors:
            from rlframe.execution.replay_actors import StoreInActors

            self._store = StoreInActors(self.actors, seed, None if blocking else 0.0)

    def plan_args(self) -> str:
        """Returns where batches go, for reports."""
        return f"{len(self.actors)} actors" if self.actors else "local buffer"

    def __call__(self, batch: Batch) -> Any:
        """Stores the batch and returns it, or a not-ready marker while too many are under way."""
        if self._store is not None:
            return self._store(batch)
        self.local_buffer.add_batch(batch)
        return batch


class _LocalReplay:
    """Batches of a buffer in this process."""

    plan_name = "Replay"

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def plan_args(self) -> str:
        return "local buffer"

    def __iter__(self) -> _LocalReplay:
        return self

    def __next__(self) -> Any:
        batch = self._buffer.replay()
        return _NextValueNotReady() if batch is None else batch


def Replay(local_buffer: Any = None, *, actors: Sequence[Any] | None = None, num_async: int = 4) -> LocalIterator[Any]:
    """Gives batches out of a replay buffer without end, or not-ready markers until the buffer has enough to begin.

    Gives a SampleBatch or MultiAgentBatch per item. Touches no counters.

    Args:
        local_buffer: A buffer in this process (`replay()` returns a batch, or None to wait).
        actors: Replay actors to draw from.
        num_async: Requests in flight per actor.

    Raises:
        ValueError: If both or neither of buffer and actors are given.
    """
    _check_one_given(local_buffer, actors)
    if local_buffer is not None:
        return LocalIterator(lambda: _LocalReplay(local_buffer), SharedMetrics(), name="Replay")
    from rlframe.execution.replay_actors import ActorsReplay

    return LocalIterator(partial(ActorsReplay, list(actors or ()), num_async), SharedMetrics(), name="Replay")


class UpdatePriorities:
    """Tells a replay buffer how large the TD errors of the rows were that were just learned from.

    Takes `(batch, {policy id: learner info})`, as TrainOneStep gives it, and gives it on. Touches no counters. Rows of
    policies that were not trained, or whose learner reported no `td_error`, keep their priority.

    Args:
        buffer: The buffer that the batch was drawn from (`update_priorities({policy id: (indexes, td_errors)})`).
        prioritized: With False nothing is done, so that a plan needs no branch.
    """

    def __init__(self, buffer: Any, prioritized: bool = True) -> None:
        self.buffer = buffer
        self.prioritized = prioritized

    def plan_args(self) -> str:
        """Returns whether the operator works at all, for reports."""
        return "" if self.prioritized else "off"

    def __call__(self, item: tuple[Batch, dict[str, Any]]) -> tuple[Batch, dict[str, Any]]:
        """Updates the priorities of the batch's rows and returns the item."""
        if not self.prioritized:
            return item
        priorities = td_errors_by_policy(*item)
        if priorities:
            self.buffer.update_priorities(priorities)
        return item


def td_errors_by_policy(batch: Batch, info: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns `{policy id: (batch_indexes, TD errors)}` of a replayed batch: what `update_priorities` takes.

    Left out are policies that were not trained, or whose learner reported no `td_error`, and rows that were drawn
    uniformly, which have no indexes.

    Args:
        batch: What was learned from.
        info: `{policy id: learner info}`.

    Raises:
        ValueError: If there are more or fewer TD errors than rows.
        NonFiniteError: If one is NaN or infinite.
    """
    parts = batch.policy_batches if isinstance(batch, MultiAgentBatch) else {_only_policy(info): batch}
    priorities = {}
    for pid, rows in parts.items():
        td_errors = info[pid].get(_TD_ERROR) if pid in info else None
        if td_errors is None or BATCH_INDEXES not in rows:
            continue
        indexes = _indexes_of(rows)
        if len(indexes) != len(td_errors):
            raise ValueError(
                f"Got {len(td_errors)} TD errors for {len(indexes)} rows of policy {pid!r}, wanted one each: "
                "the loss must report td_error for the whole batch"
            )
        if not np.isfinite(td_errors).all():
            raise NonFiniteError(
                f"Got TD errors of policy {pid!r} that are NaN or infinite, which cannot be priorities: lower the "
                "learning rate, or look for rewards and observations that are not finite"
            )
        priorities[pid] = (indexes, td_errors)
    return priorities


def _indexes_of(rows: SampleBatch) -> Any:
    """Returns which stored rows were drawn; of sequences, for which the loss reports one TD error each, the first."""
    indexes = np.asarray(rows[BATCH_INDEXES])
    if SEQ_LENS not in rows:
        return indexes
    lens = np.asarray(rows[SEQ_LENS])
    return indexes[:: rows.max_seq_len] if rows.zero_padded else indexes[np.cumsum(lens) - lens]


def _only_policy(info: Mapping[str, Any]) -> str:
    return next(iter(info)) if len(info) == 1 else DEFAULT_POLICY_ID
