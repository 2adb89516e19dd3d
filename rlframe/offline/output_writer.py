"""What keeps experience: the base of all writers."""

from __future__ import annotations

from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch


class OutputWriter:
    """Keeps batches of experience. Derive from it to keep them where no writer here does."""

    def write(self, sample_batch: SampleBatch | MultiAgentBatch) -> None:
        """Keeps a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no write(sample_batch)")


class NoopOutput(OutputWriter):
    """Keeps nothing."""

    def write(self, sample_batch: SampleBatch | MultiAgentBatch) -> None:
        """Forgets the batch."""


__all__ = ["NoopOutput", "OutputWriter"]
