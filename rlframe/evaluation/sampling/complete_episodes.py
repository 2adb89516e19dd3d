"""Samples of whole episodes: rows wait for the end of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.sampling.rollout_buffer import TrajectorySlice


class CompleteEpisodes:
    """The part of an `EnvRunner` that `batch_mode="complete_episodes"` asks for."""

    settings: Any
    slots: list[Any]
    _pending: list[list[SampleBatch]]
    _fill_buffer: Any  # methods of the runner
    _postprocess: Any

    def _sample_complete(self) -> SampleBatch:
        """Returns the next batch, of at least as many rows as a fragment of each slot.

        Steps are taken as many as rows are missing, then more and more: few are left over for the next batch.
        """
        longest = steps = self.settings.rollout_fragment_length
        tail = 0
        wanted = longest * len(self.slots)
        done: list[SampleBatch] = []
        segments: list[TrajectorySlice] = []
        rows = 0
        while rows < wanted:
            batch, parts = self._fill_buffer(steps)
            for part, piece in zip(parts, split_segments(batch, parts), strict=True):
                pieces = self._pending[part.slot]
                pieces.append(piece)
                if part.ended:
                    done.append(pieces[0] if len(pieces) == 1 else SampleBatch.concat_samples(pieces))
                    segments.append(replace(part, start=rows, stop=rows + done[-1].count))
                    rows = segments[-1].stop
                    self._pending[part.slot] = []
            tail = max(-(-(wanted - rows) // len(self.slots)), 2 * tail)
            steps = min(tail, longest)
        whole = done[0] if len(done) == 1 else SampleBatch.concat_samples(done)
        processed: SampleBatch = self._postprocess(whole, segments)
        return processed


def split_segments(batch: SampleBatch, segments: list[TrajectorySlice]) -> list[SampleBatch]:
    """Returns one batch of views per segment."""
    if len(segments) == 1:
        return [batch]
    return [batch[segment.start : segment.stop] for segment in segments]
