"""Limits that were found for losses summed over rows, where the losses are means."""

from __future__ import annotations

from typing import Any, TypeVar

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.users_code import overridden_by_user

Limit = TypeVar("Limit", float, None)


class RowSums:
    """Mixin of policies whose config may speak of gradients of sums over the rows that count, as RLlib's did.

    Attributes:
        rows_learned: Rows that count in the batch now learned from; 1 where limits are for means.
    """

    rows_learned: float

    def setup_rows(self, config: dict[str, Any], *, sums: bool) -> None:
        """Starts with the rows of a train batch.

        Args:
            config: Reads `train_batch_size`.
            sums: Whether limits are for sums. With a loss of the user's own they are for what it gives, as it is.
        """
        self._limits_are_for_sums = sums and not overridden_by_user(type(self), "loss")
        self.rows_learned = float(config["train_batch_size"]) if self._limits_are_for_sums else 1.0

    def for_means(self, limit: Limit) -> Limit:
        """Returns what a limit of the config is for the gradient of a mean; None for none."""
        return limit and limit / self.rows_learned

    def _count_rows(self: Any, samples: SampleBatch) -> None:
        if self._limits_are_for_sums:
            counts = self.counted_rows(samples)
            self.rows_learned = float(max(samples.count if counts is None else counts.sum(), 1))

    def learn_on_batch(self: Any, samples: SampleBatch) -> dict[str, Any]:
        """Does one learner step; see `LearningPolicy`."""
        self._count_rows(samples)
        info: dict[str, Any] = super().learn_on_batch(samples)  # type: ignore[misc]  # of the policy behind the mixin
        return info

    def compute_gradients(self: Any, postprocessed_batch: SampleBatch) -> Any:
        """Returns the gradients of one batch; see `LearningPolicy`."""
        self._count_rows(postprocessed_batch)
        return super().compute_gradients(postprocessed_batch)  # type: ignore[misc]


__all__ = ["RowSums"]
