"""A worker's data: what it reads instead of sampling, what that says of its policy, and where samples are written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.offline.estimators import InputEvaluation
from rlframe.offline.input_reader import give_state, state_of
from rlframe.offline.io_context import IOContext
from rlframe.offline.preparing import as_sampled
from rlframe.offline.sources import reader_of, writer_of

_LOGGER = logging.getLogger("rlframe")


class WorkerData:
    """Reads and writes for one worker.

    Attributes:
        reader: What the config's `input` asks for; None for "sampler".
        writer: What its `output` asks for, or None.

    Args:
        ioctx: The worker's context; its policies are there.
    """

    def __init__(self, ioctx: IOContext) -> None:
        self._worker = ioctx.worker
        self.reader = reader_of(ioctx)
        self.writer = writer_of(ioctx)
        self._evaluation = None if self.reader is None else InputEvaluation(ioctx)
        mixed = ioctx.input_config.get("shuffle_rows", 0) != 0
        if self._evaluation is not None and self._evaluation.estimators and mixed:
            _LOGGER.warning("input_evaluation: rows are mixed by shuffle_rows, wanted episodes; no estimates are made")
            self._evaluation.estimators = []

    def next(self) -> SampleBatch | MultiAgentBatch:
        """Returns the next batch of the reader, or of the environments where there is none."""
        if self.reader is None or self._evaluation is None:
            sampled: SampleBatch | MultiAgentBatch = self._worker.sample_environments()
            return sampled
        batch = self.reader.next()
        self._evaluation.process(batch)
        if self._evaluation.simulates:
            self._worker.sample_environments()
        return as_sampled(batch, self._worker.policy_map)

    def close(self) -> None:
        """Closes files that are read or written."""
        for part in (self.reader, self.writer):
            if callable(getattr(part, "close", None)):
                part.close()  # type: ignore[union-attr]  # readers and writers of users' own may have none

    def get_metrics(self) -> list[Any]:
        """Returns the estimates made since the last call, and the episodes that the reader has heard of."""
        told = getattr(self.reader, "get_metrics", None)
        episodes: list[Any] = told() if callable(told) else []
        return episodes if self._evaluation is None else episodes + self._evaluation.get_metrics()

    def get_state(self) -> dict[str, Any]:
        """Returns the reader's place, and what estimates depend on."""
        return {
            "reader": state_of(self.reader),
            "estimators": None if self._evaluation is None else self._evaluation.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        if self.reader is not None:
            give_state(self.reader, state["reader"])
        if self._evaluation is not None and state["estimators"] is not None:
            self._evaluation.set_state(state["estimators"])


__all__ = ["WorkerData"]
