"""Observation filters of all workers, kept in step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class FilterManager:
    """Merges what remote workers saw into the local filters, and sends the result back."""

    @staticmethod
    def synchronize(local_filters: Mapping[str, Any], remotes: Sequence[Any], update_remote: bool = True) -> None:
        """Pulls and clears each remote worker's deltas, applies them in worker order, pushes the merged filters.

        Args:
            local_filters: `{policy_id: filter}` of the local worker; changed in place.
            remotes: Remote workers (Ray actors).
            update_remote: Whether to send the merged filters back.
        """
        if not remotes:
            return
        import ray

        for filters in ray.get([worker.get_filters.remote(flush_after=True) for worker in remotes]):
            for policy_id, made in filters.items():
                local_filters[policy_id].apply_changes(made, with_buffer=False)
        if update_remote:
            copies = ray.put({policy_id: made.as_serializable() for policy_id, made in local_filters.items()})
            ray.get([worker.sync_filters.remote(copies) for worker in remotes])
