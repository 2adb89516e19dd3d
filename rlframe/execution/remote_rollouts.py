"""What remote workers sample: round by round, or as it comes."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution.plan.context import (
    STEPS_SAMPLED_COUNTER,
    LocalRollouts,
    _get_shared_metrics,
    _NextValueNotReady,
    concat,
    count_sampled,
)
from rlframe.execution.plan.item_state import pack_item, unpack_item
from rlframe.execution.plan.remote_sources import AsyncRequests, RequestRound
from rlframe.utils.errors import CheckpointError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlframe.fast.shared_memory import SharedMemoryClient

_LOGGER = logging.getLogger("rlframe")
# A worker that has ended loses those under way, no more.
_MOST_LOST = 1000


def _global_vars() -> dict[str, Any]:
    """Returns how many steps all workers have made."""
    return {"timestep": _get_shared_metrics().counters[STEPS_SAMPLED_COUNTER]}


def _request_sample(workers: Any, worker: Any) -> Any:
    workers.update_worker(worker, _global_vars())
    return worker.sample.remote()


def _request_shared(workers: Any, client: SharedMemoryClient, worker: Any) -> Any:
    # One call with what the worker lacks: a second one costs the driver as much again.
    return worker.sample_shared.remote(client, *workers.news_for(worker, _global_vars()))


class BulkSyncRollouts(LocalRollouts):
    """One batch of every remote worker, joined in the order of the workers."""

    def __init__(self, workers: Any, timeout_s: float | None) -> None:
        super().__init__(workers)
        self._round = RequestRound(partial(_request_sample, workers))
        self._timeout_s = timeout_s

    def plan_args(self) -> str:
        """Returns how many workers sample, for reports."""
        ahead = ", one round ahead" if self._workers.samples_ahead else ""
        return f"bulk_sync, {len(self._workers.remote_workers())} workers{ahead}"

    def __next__(self) -> Any:
        _get_shared_metrics().check_steps_limit()
        remote = self._workers.remote_workers()
        if not remote:
            raise WorkerError("Got no remote workers to sample from, wanted at least one; have all of them died?")
        batches = self._round.collect(remote, self._timeout_s)
        if batches is not None and self._workers.samples_ahead:
            self._round.begin(remote)
        return _NextValueNotReady() if batches is None else count_sampled(concat(batches))

    def get_state(self) -> Any:
        """Returns the batches of a round that is begun, by worker: sampled ahead, or before another worker failed."""
        sampled, packed = self._round.answers(), {}
        for worker, index in zip(self._workers.remote_workers(), self._workers.remote_indexes(), strict=True):
            try:
                packed.update({str(index): pack_item(sampled[worker])} if worker in sampled else {})
            except CheckpointError as error:
                _LOGGER.warning("what worker %d had sampled last is not kept: %s", index, error)
        return packed or None

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes these back."""
        workers = zip(self._workers.remote_workers(), self._workers.remote_indexes(), strict=True)
        self._round.give({worker: unpack_item(state[str(i)]) for worker, i in workers if str(i) in state})


class AsyncRollouts(LocalRollouts):
    """Batches of remote workers as they come."""

    def __init__(self, workers: Any, num_async: int, timeout_s: float | None) -> None:
        super().__init__(workers)
        self._num_async = num_async
        client = self._client = workers.shared_memory_client()
        request = partial(_request_sample, workers) if client is None else partial(_request_shared, workers, client)
        self._requests = AsyncRequests(workers.remote_workers, request, num_async, timeout_s)

    def plan_args(self) -> str:
        """Returns how many workers sample, for reports."""
        return f"async, {len(self._workers.remote_workers())} workers, {self._num_async} in flight each"

    def __next__(self) -> Any:
        _get_shared_metrics().check_steps_limit()
        item, lost = next(self._requests), 0
        while self._client is not None and self._client.is_lost(item):
            # Of a worker that has ended: the next request says so.
            item, lost = next(self._requests), lost + 1
            if lost > _MOST_LOST:
                raise WorkerError(
                    f"Got {lost} fragments in turn that are not where workers said; set share_memory=False"
                )
        return count_sampled(item) if isinstance(item, (SampleBatch, MultiAgentBatch)) else item

    def close(self) -> None:
        """Gives back the memory of fragments; those under way are dropped when the next plan begins."""
        if self._client is not None:
            self._client.release()
