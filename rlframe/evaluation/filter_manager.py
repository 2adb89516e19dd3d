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

        Raises:
            RayError: If a worker did not answer; what the others saw is merged then, and nothing is sent back.
        """
        if not remotes:
            return
        import ray

        from rlframe.evaluation.cluster import answers_of

        # Asking takes the deltas from a worker, so all that come are used.
        answers, failures = answers_of([worker.get_filters.remote(flush_after=True) for worker in remotes])
        for filters in answers.values():
            for policy_id, made in filters.items():
                local_filters[policy_id].apply_changes(made, with_buffer=False)
        for failure in failures.values():
            raise failure
        if update_remote:
            copies = ray.put({policy_id: made.as_serializable() for policy_id, made in local_filters.items()})
            ray.get([worker.sync_filters.remote(copies) for worker in remotes])
