"""Operators that collect experiences and prepare them for learning."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rlframe.data.columns import NEXT_OBS, OBS
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.execution.plan.context import (
    SAMPLE_TIMER,
    LocalRollouts,
    SharedMetrics,
    _check_sample_batch_type,
    _get_shared_metrics,
    agent_steps,
    concat,
    policy_parts,
)
from rlframe.execution.plan.item_state import pack_item, unpack_item
from rlframe.execution.plan.local_iterator import LocalIterator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Batch = SampleBatch | MultiAgentBatch

# Columns are divided by no less than this when they are standardised, so that a constant one becomes 0.
_SMALLEST_STD = 1e-4


def unpack(batch: Batch) -> Batch:
    """Returns a batch with its observations decompressed."""
    if isinstance(batch, SampleBatch) and all(_is_plain(batch.get(name)) for name in (OBS, NEXT_OBS)):
        return batch
    return batch.decompress_if_needed()


def _is_plain(column: Any) -> bool:
    """Returns whether a column, if there is one, is an array of numbers: compressed ones are objects."""
    return column is None or (isinstance(column, np.ndarray) and column.dtype != object)


def ParallelRollouts(workers: Any, *, mode: str = "bulk_sync", num_async: int = 1) -> LocalIterator[Any]:
    """Collects experiences from all workers, after bringing their weights up to date.

    Gives one SampleBatch or MultiAgentBatch per item. Counts `num_steps_sampled` and `num_agent_steps_sampled`, except
    in mode "raw". Without remote workers the local worker samples, whatever the mode.

    Args:
        workers: The WorkerSet.
        mode: "bulk_sync" waits for one batch of every worker and joins them into one item (with `sample_async`, the
            workers then go on at once, with the weights they have); "async" hands on batches as they come; "raw"
            returns the ParallelIterator over the workers.
        num_async: Requests in flight per worker in mode "async".

    Raises:
        ValueError: If `mode` is none of these.
    """
    if mode not in ("bulk_sync", "async", "raw"):
        raise ValueError(f"Got mode={mode!r}, wanted 'bulk_sync', 'async' or 'raw'")
    if not workers.remote_workers():
        return LocalIterator(partial(LocalRollouts, workers), SharedMetrics(), name="ParallelRollouts")
    workers.sync_weights()
    if mode == "raw":
        from rlframe.execution.plan.parallel_iterator import from_actors

        # The one mode whose result is no LocalIterator: users go on with its gather_sync() or gather_async().
        return cast("LocalIterator[Any]", from_actors(workers.remote_workers(), name="ParallelRollouts"))
    workers.sync_before_sampling()
    from rlframe.execution.remote_rollouts import AsyncRollouts, BulkSyncRollouts

    if mode == "async":
        if num_async < 1:
            raise ValueError(f"Got num_async={num_async}, wanted 1 or more requests in flight per worker")
        return LocalIterator(partial(AsyncRollouts, workers, num_async), SharedMetrics(), name="ParallelRollouts")
    return LocalIterator(partial(BulkSyncRollouts, workers), SharedMetrics(), name="ParallelRollouts")


class ConcatBatches:
    """Collects batches until they hold enough steps, then gives one; for `.combine()`.

    Takes a SampleBatch or MultiAgentBatch; gives a list of one joined batch, or an empty list. Times `sample`, from the
    first fetch to the joined batch. Empty batches are ignored.

    Args:
        min_batch_size: Steps the joined batch holds at least.
        count_steps_by: "env_steps" or "agent_steps".
    """

    def __init__(self, min_batch_size: int, count_steps_by: str = "env_steps") -> None:
        if count_steps_by not in ("env_steps", "agent_steps"):
            raise ValueError(f"Got count_steps_by={count_steps_by!r}, wanted 'env_steps' or 'agent_steps'")
        self.min_batch_size = min_batch_size
        self.count_steps_by = count_steps_by
        self.buffer: list[Batch] = []
        self.count = 0
        self._batch_started: float | None = None

    def plan_args(self) -> str:
        """Returns the size, for reports."""
        return f"{self.min_batch_size} {self.count_steps_by}"

    def _on_fetch_start(self) -> None:
        if self._batch_started is None:
            self._batch_started = perf_counter()

    def __call__(self, batch: Batch) -> list[Batch]:
        """Returns the joined batch once there are enough steps, else nothing."""
        _check_sample_batch_type(batch)
        if batch.count <= 0:
            return []
        self.buffer.append(batch)
        self.count += batch.count if self.count_steps_by == "env_steps" else agent_steps(batch)
        if self.count < self.min_batch_size:
            return []
        joined = concat(self.buffer)
        timer = _get_shared_metrics().timers[SAMPLE_TIMER]
        if self._batch_started is not None:
            timer.push(perf_counter() - self._batch_started)
            timer.push_units_processed(self.count)
        self._batch_started = None
        self.buffer = []
        self.count = 0
        return [joined]

    def get_state(self) -> dict[str, Any]:
        """Returns the batches collected so far."""
        return {"buffer": pack_item(self.buffer), "count": self.count}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes the collected batches back."""
        self.buffer = unpack_item(state["buffer"])
        self.count = int(state["count"])


class SelectExperiences:
    """Drops the rows of all policies but some.

    Takes and gives a SampleBatch (unchanged) or a MultiAgentBatch.

    Args:
        policy_ids: List or tuple of the policies to keep; or a function that returns them, asked for each batch:
            policies come and go.
        local_worker: The worker whose policies that learn are kept, instead; RLlib 1.11's way to say it.
    """

    def __init__(
        self, policy_ids: Sequence[str] | Callable[[], Sequence[str]] | None = None, local_worker: Any = None
    ) -> None:
        if local_worker is not None:
            policy_ids = partial(getattr, local_worker, "policies_to_train")
        if not isinstance(policy_ids, (list, tuple)) and not callable(policy_ids):
            # RLlib's programs expect an assertion here, not a ValueError.
            raise AssertionError(f"Got policy_ids of type {type(policy_ids).__name__}, wanted a list or tuple of ids")
        self._policy_ids = policy_ids

    @property
    def policy_ids(self) -> Sequence[str]:
        """The policies to keep."""
        return self._policy_ids() if callable(self._policy_ids) else self._policy_ids

    def plan_args(self) -> str:
        """Returns the policies, for reports."""
        return ", ".join(map(str, self.policy_ids))

    def __call__(self, batch: Batch) -> Batch:
        """Returns the rows of the chosen policies."""
        _check_sample_batch_type(batch)
        if isinstance(batch, MultiAgentBatch):
            wanted = self.policy_ids
            kept = {pid: rows for pid, rows in batch.policy_batches.items() if pid in wanted}
            return MultiAgentBatch(kept, batch.env_steps())
        return batch


class StandardizeFields:
    """Makes columns zero-mean and unit-variance over the batch, for each policy on its own.

        x ← (x − mean(x)) / max(1e-4, std(x))

    Takes and gives a SampleBatch or MultiAgentBatch; the columns are replaced in place.

    Args:
        fields: Names of the columns.

    Raises:
        KeyError: When called with a batch that lacks one of the columns.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = fields

    def plan_args(self) -> str:
        """Returns the columns, for reports."""
        return ", ".join(self.fields)

    def __call__(self, batch: Batch) -> Batch:
        """Standardises the columns in place and returns the batch."""
        _check_sample_batch_type(batch)
        parts = batch.policy_batches if isinstance(batch, MultiAgentBatch) else {DEFAULT_POLICY_ID: batch}
        for pid, rows in parts.items():
            for field in self.fields:
                if field not in rows:
                    raise KeyError(
                        f"Got no column {field!r} in the batch of policy {pid!r} to standardise, only {sorted(rows)}"
                    )
                column = np.asarray(rows[field])
                rows[field] = (column - column.mean()) / max(_SMALLEST_STD, column.std())
        return batch


class UpdateValueNormalizer:
    """Updates PopArt's moments from the value targets of every policy that will learn.

    Takes a SampleBatch or MultiAgentBatch and gives it on. Touches no counters.

    Args:
        workers: The WorkerSet.
    """

    def __init__(self, workers: Any) -> None:
        self.workers, self._local = workers, workers.local_worker()

    def __call__(self, batch: Batch) -> Batch:
        """Hands each policy its rows."""
        local = self._local
        for policy_id, rows in policy_parts(local, batch):
            policy: Any = local.policy_map[policy_id]
            if hasattr(policy, "update_value_normalizer"):  # one of the user's own may lack it
                policy.update_value_normalizer(rows)
        return batch
