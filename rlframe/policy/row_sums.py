"""Limits that were found for losses summed over rows, where the losses are means."""

from __future__ import annotations

from typing import Any

from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.parts import Component
from rlframe.policy.users_code import overridden_by_user


class RowSums(Component):
    """Counts the rows of the batch now learned from, which a limit for the gradient of their sum is divided by.

    The policy has the count as `rows_learned`: before the first batch that of a train batch; always 1 with a loss of
    the user's own, whose gradient limits are for as it is. Policies have one where a spec of `optimizers()` has
    `limits_for_sums`, as RLlib's limits were.

    Args:
        policy: A policy whose config has `train_batch_size`.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._counts = not overridden_by_user(type(policy), "loss")
        policy.rows_learned = float(policy.config["train_batch_size"]) if self._counts else 1.0

    def before_learning(self, samples: SampleBatch) -> None:
        """Counts the rows that count."""
        if self._counts:
            counts = self._policy.counted_rows(samples)
            self._policy.rows_learned = float(max(samples.count if counts is None else counts.sum(), 1))
